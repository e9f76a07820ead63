"""Tokens and their ids: a `vocab.txt` or a corpus in, a `Vocab` out."""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from keras_bert_d2l.files import write_text
from keras_bert_d2l.text.vocab.learning import learn_tokens

# Padding, unknown, start, separator, mask: as google-research/bert and as the book write them.
GOOGLE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BOOK_SPECIALS = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")


class Vocab:
    """An immutable two-way map between V tokens and the ids 0 to V - 1.

    The five special tokens may stand anywhere, in google's spelling (`[PAD] [UNK] [CLS] [SEP]
    [MASK]`) or in the book's (`<pad> <unk> <cls> <sep> <mask>`); where a vocabulary has both,
    google's count.

    `vocab[token]` is an id, that of the unknown token where `token` is not in the vocabulary;
    `vocab[["a", "b"]]` is a list of ids. `token in vocab`, `len(vocab)`, iteration in the order
    of the ids and `==` do what they say.

    Args:
        tokens: V distinct, non-empty strings without line breaks; a token's position is its id.

    Raises:
        ValueError: A token is no string, empty, has a line break or is given twice, or a special
            token is missing.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        if isinstance(tokens, str):
            raise ValueError(
                f"`tokens` must be a sequence of strings. Received one string: {tokens!r:.80}; "
                "`Vocab.from_file(path)` reads a file."
            )
        self._tokens = tuple(tokens)
        self._ids: dict[str, int] = {}
        for position, token in enumerate(self._tokens):
            _check_token(token, position)
            first = self._ids.setdefault(token, position)
            if first != position:
                raise ValueError(
                    f"The tokens of a vocabulary must be distinct. Received: {token!r} as the ids "
                    f"{first} and {position} (lines {first + 1} and {position + 1} of the file); "
                    "rename one of them."
                )
        self._special_tokens = _find_specials(self._ids)
        self._special_ids = tuple(self._ids[token] for token in self._special_tokens)
        self._fingerprint = hashlib.sha256(self._text().encode("utf-8")).hexdigest()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "Vocab":
        """Reads a `vocab.txt`: UTF-8, one token a line, the first line is id 0.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: The file is empty, is not UTF-8, or is no vocabulary.
        """
        name = os.fspath(path)
        try:
            text = pathlib.Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name!r} must be UTF-8. Received: byte {error.start} is "
                f"0x{error.object[error.start]:02x} ({error.reason}); convert the file, for "
                "instance with `iconv -f LATIN1 -t UTF-8`."
            ) from error
        if not text.strip():
            raise ValueError(f"{name!r} is empty; a vocabulary file has one token a line.")
        try:  # no splitlines(): U+0085 and U+2028 may be tokens
            return cls(text.removesuffix("\n").split("\n"))
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from error

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Writes a `vocab.txt`: UTF-8, one token a line; the file appears whole or not at all."""
        write_text(path, self._text())

    def with_tokens(self, tokens: Iterable[str]) -> "Vocab":
        """Returns a vocabulary with more tokens, which get the ids from V on.

        Raises:
            ValueError: A token is in the vocabulary already, is given twice or is no token.
        """
        if isinstance(tokens, str):
            raise ValueError(f"`tokens` must be a list. Received one string: {tokens!r:.80}.")
        return Vocab([*self._tokens, *tokens])

    def without_tokens(self, tokens: Iterable[str]) -> "Vocab":
        """Returns a vocabulary without some tokens; the others move up, in the same order.

        The five special tokens always stay.

        Raises:
            ValueError: A token is not in the vocabulary.
        """
        if isinstance(tokens, str):
            raise ValueError(f"`tokens` must be a list. Received one string: {tokens!r:.80}.")
        dropped = set(tokens)
        unknown = sorted(token for token in dropped if token not in self)
        if unknown:
            raise ValueError(
                f"`tokens` must be in the vocabulary. Received: {unknown[0]!r}, which is not."
            )
        dropped -= set(self._special_tokens)
        return Vocab([token for token in self._tokens if token not in dropped])

    def _text(self) -> str:
        return "".join(f"{token}\n" for token in self._tokens)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The V tokens in the order of their ids."""
        return self._tokens

    @property
    def pad_id(self) -> int:
        """Id of the token that fills a row up."""
        return self._special_ids[0]

    @property
    def unk_id(self) -> int:
        """Id of the token that stands for an unknown word."""
        return self._special_ids[1]

    @property
    def cls_id(self) -> int:
        """Id of the token that starts a sequence."""
        return self._special_ids[2]

    @property
    def sep_id(self) -> int:
        """Id of the token that ends a text."""
        return self._special_ids[3]

    @property
    def mask_id(self) -> int:
        """Id of the token that hides another one."""
        return self._special_ids[4]

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of padding, unknown, start, separator and mask."""
        return self._special_ids

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The five special tokens, in the order of `special_ids`."""
        return self._special_tokens

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what `to_file` writes, 64 hexadecimal digits."""
        return self._fingerprint

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocab) and self._tokens == other._tokens

    def __hash__(self) -> int:
        return hash(self._fingerprint)

    def __repr__(self) -> str:
        return f"Vocab({len(self)} tokens, {self._fingerprint[:12]})"

    @overload
    def __getitem__(self, token: str) -> int: ...
    @overload
    def __getitem__(self, token: Sequence[Any]) -> list[Any]: ...
    def __getitem__(self, token: str | Sequence[Any]) -> int | list[Any]:
        if isinstance(token, str):
            return self._ids.get(token, self.unk_id)
        if isinstance(token, list | tuple):
            return [self[one] for one in token]
        raise ValueError(
            "A vocabulary is indexed with a token (str) or a list of tokens. Received: "
            f"{token!r:.80}; `to_tokens(ids)` goes the other way."
        )

    @overload
    def to_tokens(self, ids: int) -> str: ...
    @overload
    def to_tokens(self, ids: Any) -> Any: ...
    def to_tokens(self, ids: Any) -> Any:
        """Returns the token of an id, or a list of tokens for a list or array of ids.

        Raises:
            ValueError: An id is no integer or lies outside 0 to V - 1.
        """
        if isinstance(ids, list | tuple):
            return [self.to_tokens(one) for one in ids]
        if isinstance(ids, int | np.integer) and not isinstance(ids, bool):
            if 0 <= ids < len(self):
                return self._tokens[ids]
            raise ValueError(
                f"An id must be in 0..{len(self) - 1}, this vocabulary has {len(self)} tokens. "
                f"Received: {ids}; does the vocabulary belong to these ids?"
            )
        if hasattr(ids, "to_list"):  # a tf.RaggedTensor
            return self.to_tokens(ids.to_list())
        if hasattr(ids, "__array__"):
            return self.to_tokens(np.asarray(ids).tolist())
        raise ValueError(f"Ids must be integers. Received: {ids!r:.80} ({type(ids).__name__}).")


def learn_vocab(
    corpus: Iterable[Sequence[str]], size: int = 30522, lowercase: bool = True
) -> Vocab:
    """Learns a WordPiece vocabulary from text.

    Words are counted after the normalisation that the `Tokenizer` does; the learner of
    tensorflow-text then finds the pieces top down: frequent substrings, of which the occurrences
    within a longer piece do not count. The same text, size and case give the same vocabulary,
    byte for byte, in whatever order the documents come.

    `[PAD] [UNK] [CLS] [SEP] [MASK]` are the ids 0 to 4; single characters follow, then the longer
    pieces from the most frequent on. Memory is bounded: beyond a million different words the
    rarest are forgotten while counting, and the 100,000 most frequent are learned from.

    Args:
        corpus: A `Corpus`, or any iterable of documents, each a list of sentences.
        size: Number of tokens, V. The vocabulary has exactly as many, or fewer if the text has
            too few pieces that occur twice.
        lowercase: Whether to lower the words and strip their accents; the `Tokenizer` needs the
            same.

    Returns: a `Vocab`.

    Raises:
        ImportError: tensorflow-text is not installed or does not match TensorFlow.
        ValueError: `size` is too small, the corpus has no text, or a document is no list.
    """
    least = 2 * len(GOOGLE_SPECIALS)
    is_int = isinstance(size, int | np.integer) and not isinstance(size, bool)
    if not is_int or size < least:
        raise ValueError(
            f"`size` must be an integer of at least {least}: the special tokens and some "
            f"characters. Received: size={size!r}."
        )
    return Vocab(learn_tokens(corpus, int(size), GOOGLE_SPECIALS, lowercase))


def _check_token(token: object, position: int) -> None:
    where = f"as id {position} (line {position + 1} of the file)"
    if not isinstance(token, str):
        raise ValueError(f"Tokens must be strings. Received: {token!r:.80} {where}.")
    if not token:
        raise ValueError(
            f"Tokens must not be empty. Received: an empty one {where}; give it a name that "
            "no text contains, such as [unused1], so that the other ids stay as they are."
        )
    if "\n" in token or "\r" in token:
        raise ValueError(f"Tokens must not contain line breaks. Received: {token!r:.80} {where}.")


def _find_specials(ids: dict[str, int]) -> tuple[str, ...]:
    spellings = (GOOGLE_SPECIALS, BOOK_SPECIALS)
    missing = [[token for token in spelling if token not in ids] for spelling in spellings]
    for spelling, absent in zip(spellings, missing, strict=True):
        if not absent:
            return spelling
    nearest = min(missing, key=len)
    raise ValueError(
        "A vocabulary must have the five special tokens of one spelling, "
        f"{' '.join(GOOGLE_SPECIALS)} or {' '.join(BOOK_SPECIALS)}. Missing: {' '.join(nearest)}; "
        f"add them to the {len(ids)} tokens that were received."
    )
