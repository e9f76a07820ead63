"""The vocabulary: a two-way map between tokens and ids, and what else defines a tokenizer.

It is stored as `vocab.txt`, or as `tokenizer.json` if its tokenizer is not WordPiece.
"""

import functools
import hashlib
import json
import os
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from keras_bert_d2l.checks import check_path, check_that, is_integer, shown
from keras_bert_d2l.files import write_text
from keras_bert_d2l.reading import (
    MOST_VOCAB_BYTES,
    check_file,
    check_size,
    errors_naming,
    read_json_object,
)
from keras_bert_d2l.text import definition as definitions
from keras_bert_d2l.text.definition import SpecialTokensError
from keras_bert_d2l.text.definition_checks import check
from keras_bert_d2l.text.text_files import read_text
from keras_bert_d2l.types import ConfigDict, PathLike, Tensor

# Padding, unknown, start, separator and mask token, as spelled by google, the book and MPNet.
GOOGLE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BOOK_SPECIALS = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")
MPNET_SPECIALS = ("<pad>", "[UNK]", "<s>", "</s>", "<mask>")
VOCAB_FILE, JSON_FILE = "vocab.txt", "tokenizer.json"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# WordPiece marks the tokens that continue a word. Other tokenizers mark those that start one.
_SUFFIX, _WORD_STARTS = "##", {"bpe": tuple("ĠĊĉč"), "wordlevel": ("",)}


class Vocab:
    """An immutable two-way map between V tokens and the ids 0 to V - 1.

    The five special tokens may have any ids. Those of WordPiece are spelled as google does (`[PAD]
    [UNK] [CLS] [SEP] [MASK]`), as the book does (`<pad> <unk> <cls> <sep> <mask>`) or as MPNet does
    (`<pad> [UNK] <s> </s> <mask>`). If a vocabulary has several, Google's are used, except that
    MPNet's are used if `<s>` comes before `[CLS]`, as in the vocabulary of MPNet, which has both.
    Other tokenizers have special tokens of any spelling, which the definition names by role.

    `vocab[token]` returns the id of a token, or the id of the unknown token if the vocabulary does
    not have it. `vocab[["a", "b"]]` returns a list of ids. `token in vocab`, `len(vocab)`,
    iteration (in the order of the ids) and `==` work as expected.

    Args:
        tokens: V distinct, non-empty strings. The position of a token is its id. Those of WordPiece
            have no control characters.
        definition: None for WordPiece. For other tokenizers, the fields of Hugging Face's
            `tokenizer.json` without the vocabulary; `from_file` reads them.

    Attributes:
        tokens: The V tokens in the order of their ids.
        definition: As given.
        kind: `"wordpiece"`, `"bpe"` (byte-level BPE), `"unigram"` (SentencePiece),
            `"character-bpe"` (BPE of characters, as in SentencePiece) or `"wordlevel"`.
        special_tokens: The padding, unknown, start, separator and mask token.
        special_ids: Their ids, in this order.
        pad_id: Id of the padding token.
        unk_id: Id of the unknown token, which replaces words that cannot be split into pieces.
        cls_id: Id of the token that starts a sequence.
        sep_id: Id of the token that ends each text.
        mask_id: Id of the token that replaces masked tokens.
        num_separators: Number of separators between the two texts of a pair: 1, or 2 as in RoBERTa
            and MPNet.
        has_segments: Whether the second text of a pair is in segment 1; not in XLM-R and RoBERTa.
        continues: Whether each token continues a word, bool `(V,)`. Special tokens do not.
        file_name: Name of the file that holds the vocabulary: `vocab.txt` or `tokenizer.json`.
        fingerprint: SHA-256 of the contents of that file, 64 hexadecimal digits.

    Raises:
        ValueError: If a token is not a string, is empty, contains a control character or occurs
            twice, if a special token is missing, or if `definition` is not a definition.

    Example:
        >>> import keras_bert_d2l as kb
        >>> vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s"])
        >>> vocab[["cat", "##s", "dog"]]
        [5, 6, 1]
        >>> vocab.to_tokens([5, 6])
        ['cat', '##s']
    """

    def __init__(self, tokens: Sequence[str], definition: ConfigDict | None = None) -> None:
        is_right = isinstance(tokens, Iterable) and not isinstance(tokens, str)
        advice = "To read a file, use `Vocab.from_file(path)`."
        check_that(is_right, "tokens", "a sequence of strings", tokens, advice)
        self.tokens = tuple(tokens)
        self._ids: dict[str, int] = {}
        for position, token in enumerate(self.tokens):
            is_text = isinstance(token, str) and token != ""
            if not is_text or (definition is None and _CONTROL.search(token)):
                raise ValueError(
                    "Tokens must be strings of at least one character, without control characters "
                    f"such as line breaks. Received: {shown(token)} as id {position} (line "
                    f"{position + 1} of the file). Restore the vocabulary from a copy."
                )
            first = self._ids.setdefault(token, position)
            if first != position:
                raise ValueError(
                    f"The tokens of a vocabulary must be distinct. Received: {shown(token)} as the "
                    f"ids {first} and {position} (lines {first + 1} and {position + 1} of the "
                    "file). Rename one of them."
                )
        self.definition = definition
        self.num_separators, self.kind = 1, "wordpiece"
        if definition is None:
            self.special_tokens = _find_specials(self._ids)
            self.num_separators += self.special_tokens == MPNET_SPECIALS
        else:
            check(self.tokens, definition)
            self.special_tokens = tuple(definition["special_tokens"])
            self.kind = definitions.kind_of(definition)
            *_, self.num_separators = definitions.frame(definition) or (1,)
        self.has_segments = definition is None or definitions.has_segments(definition)
        self.file_name = VOCAB_FILE if definition is None else JSON_FILE
        self.special_ids = tuple(self._ids[token] for token in self.special_tokens)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids

    def num_added(self, num_texts: int) -> int:
        """Return the number of special tokens in a row of one text, or of the 2 texts of a pair."""
        return 2 + (self.num_separators if num_texts > 1 else 0)

    def as_text(self, number: int) -> str:
        """Return a token without the mark of its place in a word, such as `##`."""
        token = self.tokens[number]
        if self.definition is None:
            return token.removeprefix(_SUFFIX) or token
        return (token not in self._whole and definitions.token_text(token, self.kind)) or token

    def spelled(self, number: int) -> str:
        """Return a token as `Prediction.token` shows it."""
        token, text = self.to_tokens(number), self.as_text(number)
        if self.definition is None or text == token or "\ufffd" in text:  # part of a character
            return token
        return text if self.continues[number] else f" {text}"

    @classmethod
    def from_file(cls, path: PathLike) -> "Vocab":
        """Read a `vocab.txt`, or a `tokenizer.json` of BPE, Unigram or WordLevel.

        A `vocab.txt` is UTF-8 with one token per line; the first line has the id 0. As in
        transformers, of equal lines the last one is the token, and every line counts. With a
        warning, the others, empty lines and those with control characters, which no text has, are
        renamed to `[line 7]` and so on. Empty lines at the end do not count.

        Raises:
            FileNotFoundError: If the file does not exist.
            ValueError: If the file is empty, is not UTF-8, or is not a vocabulary.
        """
        check_path("path", path)
        name = os.fspath(path)
        if name.endswith(".json"):
            with errors_naming(path):
                return cls(*definitions.from_json(read_json_object(path, MOST_VOCAB_BYTES)))
        check_size(check_file(path), MOST_VOCAB_BYTES)
        text = "".join(read_text(pathlib.Path(path))).removesuffix("\n")
        tokens = [line.removesuffix("\r") for line in text.split("\n")]
        while tokens and not tokens[-1]:
            tokens.pop()
        if not any(map(str.strip, tokens)):
            raise ValueError(f"{name!r} is empty. A vocabulary file has one token per line.")
        try:
            return cls(without_odd_tokens(tokens, name))
        except ValueError as error:
            raise type(error)(f"{name!r}: {error}") from error

    def to_file(self, path: PathLike) -> None:
        """Write a `vocab.txt` or, if the tokenizer is not WordPiece, a `tokenizer.json`.

        A `vocab.txt` is UTF-8 with one token per line. Hugging Face's library tokenizers can read
        the `tokenizer.json`. The file is written atomically.

        Raises:
            ValueError: If only one of `path` and `file_name` ends with `.json`.
        """
        ending = pathlib.Path(self.file_name).suffix
        if (pathlib.Path(path).suffix == ".json") != (ending == ".json"):
            raise ValueError(
                f"`path` must end with {ending}, because the tokenizer of this vocabulary is of "
                f"the kind {self.kind!r}. Received: {os.fspath(path)!r}. Save it as "
                f"{self.file_name}, or in a format that has one."
            )
        write_text(path, self.to_text())

    def with_tokens(self, tokens: Iterable[str], special: bool = False) -> "Vocab":
        """Return a vocabulary with more tokens, whose ids start at V.

        Tokenizers other than WordPiece keep the new tokens whole in a text; in their files, those
        that are `special` are marked so.

        Raises:
            ValueError: If a token is invalid, is already in the vocabulary, or occurs twice.
        """
        new, definition = _as_list(tokens), self.definition
        if definition is not None:
            definition = definitions.with_added(definition, new, special)
        return Vocab([*self.tokens, *new], definition)

    def first_tokens(self, number: int) -> "Vocab":
        """Return a vocabulary of the first tokens, which must include the special tokens."""
        definition = self.definition
        if definition is not None:
            definition = definitions.first_tokens(definition, self.tokens, number)
        return Vocab(self.tokens[:number], definition)

    def to_text(self) -> str:
        """Return the text that `to_file` writes."""
        if self.definition is None:
            return "".join(f"{token}\n" for token in self.tokens)
        fields = definitions.to_json(self.tokens, self.definition)
        return json.dumps(fields, ensure_ascii=False) + "\n"

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the text that `to_file` writes, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_text().encode("utf-8")).hexdigest()

    @functools.cached_property
    def continues(self) -> np.ndarray:
        """Whether each token continues a word, bool `(V,)`."""
        if self.definition is None:
            found = [token.startswith(_SUFFIX) and token != _SUFFIX for token in self.tokens]
        else:
            starts, whole = _WORD_STARTS.get(self.kind, "▁"), self._whole
            found = [not token.startswith(starts) and token not in whole for token in self.tokens]
        return np.array(found)

    @functools.cached_property
    def _whole(self) -> frozenset[str]:
        """The tokens that stay whole in a text."""
        return frozenset((*self.special_tokens, *definitions.added_tokens(self.definition or {})))

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Vocab)
            and self.tokens == other.tokens
            and self.definition == other.definition
        )

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Vocab({len(self)} tokens, {self.fingerprint[:12]})"

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
            "The index of a vocabulary must be a token (str) or a list of tokens. Received: "
            f"{shown(token)}. To convert ids to tokens, use `to_tokens(ids)`."
        )

    @overload
    def to_tokens(self, ids: int) -> str: ...
    @overload
    def to_tokens(self, ids: Tensor) -> list[Any]: ...
    def to_tokens(self, ids: Tensor) -> str | list[Any]:
        """Convert ids to tokens: an id to a string, a (nested) list or an array to a list.

        Raises:
            ValueError: If an id is not an integer in 0 to V - 1.
        """
        if isinstance(ids, list | tuple):
            return [self.to_tokens(one) for one in ids]
        if is_integer(ids):
            if 0 <= ids < len(self):
                return self.tokens[ids]
            raise ValueError(
                f"An id must be in 0..{len(self) - 1}, because this vocabulary has {len(self)} "
                f"tokens. Received: {ids}. Check that the ids come from this vocabulary."
            )
        if hasattr(ids, "to_list"):  # a tf.RaggedTensor
            return self.to_tokens(ids.to_list())
        if hasattr(ids, "__array__"):
            return self.to_tokens(np.asarray(ids).tolist())
        raise ValueError(f"Ids must be integers. Received: {shown(ids)} ({type(ids).__name__}).")


def vocab_file_in(folder: pathlib.Path) -> pathlib.Path:
    """Return the vocabulary file of a folder that this package wrote.

    Such a folder has one of the two files. A `tokenizer.json` beside a `vocab.txt` is foreign.
    """
    file, other = folder / VOCAB_FILE, folder / JSON_FILE
    return other if other.is_file() and not file.is_file() else file


def without_odd_tokens(tokens: Sequence[str], name: str) -> list[str]:
    """Rename the tokens that no text has, with a warning that names their file `name`."""
    last = {token: position for position, token in enumerate(tokens)}
    start = "[line "
    while any(token.startswith(start) for token in last):
        start = f"[{start}"
    named = [
        token if token and last[token] == i and not _CONTROL.search(token) else f"{start}{i + 1}]"
        for i, token in enumerate(tokens)
    ]
    odd = [new for new, token in zip(named, tokens, strict=True) if new != token]
    if odd:
        warnings.warn(
            f"{name!r}: {len(odd)} tokens are empty, contain control characters or are equal to a "
            f"later one, so no text has them. They are renamed: {', '.join(odd[:3])}"
            f"{' and others' if odd[3:] else ''}.",
            stacklevel=3,
        )
    return named


def _as_list(tokens: Iterable[str]) -> list[str]:
    if isinstance(tokens, str):
        raise ValueError(f"`tokens` must be a list. Received one string: {shown(tokens)}.")
    return list(tokens)


def _find_specials(ids: dict[str, int]) -> tuple[str, ...]:
    """Return the five special tokens in the spelling that the vocabulary uses."""
    spellings = [GOOGLE_SPECIALS, BOOK_SPECIALS, MPNET_SPECIALS]
    if ids.get("<s>", len(ids)) < ids.get("[CLS]", len(ids)):
        spellings.reverse()  # the vocabulary of MPNet continues with that of BERT
    missing = {
        spelling: [token for token in spelling if token not in ids] for spelling in spellings
    }
    spelling = min(missing, key=lambda spelling: len(missing[spelling]))
    if missing[spelling]:
        raise SpecialTokensError(
            "A vocabulary must have five special tokens, spelled as "
            f"{', '.join(map(' '.join, spellings[:-1]))} or {' '.join(spellings[-1])}. "
            f"Missing: {' '.join(missing[spelling])}. Add them to the {len(ids)} tokens received."
        )
    return spelling
