"""Word tokenization and a vocabulary of complete words (d2l.ai, section 9.2)."""

import collections
import itertools
import operator
from collections.abc import Collection, Iterable, Sequence, Sized
from typing import SupportsInt, cast, overload

from keras_bert_d2l.checks import check_choice, check_integer, check_list, check_type, wrong
from keras_bert_d2l.text import vocab as text_vocab

UNK = "<unk>"


def tokenize(lines: Iterable[str], token: str = "word") -> list[list[str]]:
    """Split every line into words at whitespace, or into characters.

    Args:
        lines: Lines of text.
        token: `"word"` or `"char"`.

    Returns:
        One list of tokens per line.

    Raises:
        ValueError: `token` is neither `"word"` nor `"char"`, or `lines` is a single string.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> d2l.tokenize(["the cat sat"])
        [['the', 'cat', 'sat']]
    """
    check_choice("token", token, ("word", "char"))
    if isinstance(lines, str) or not isinstance(lines, Iterable):
        raise wrong("lines", "a list of lines", lines)
    lines = [check_type("lines", line, str, "Every line must be a string.") for line in lines]
    return [line.split() if token == "word" else list(line) for line in lines]


class Vocab:
    """The book's vocabulary: `<unk>` is id 0, then the reserved tokens, then words by frequency.

    Words of equal frequency are in alphabetical order, so the same counts give the same ids
    regardless of the order of the text. (The book's editions differ here: one keeps the order in
    which words occur; another sorts the complete vocabulary, including `<unk>`, alphabetically.)

    `idx_to_token` and `token_to_idx` are a plain list and a plain dictionary. They can be assigned,
    as the book does to load a stored vocabulary. `kb.Vocab(vocab.idx_to_token)` is the vocabulary
    for all other parts of the package. It requires all five special tokens.

    Args:
        tokens: Tokens, or a list with one list of tokens per sentence.
        min_freq: Minimum frequency. Words that occur less often are discarded.
        reserved_tokens: Tokens that are kept regardless of their frequency.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> vocab = d2l.Vocab([["a", "b", "b"]], reserved_tokens=["<pad>"])
        >>> vocab.idx_to_token
        ['<unk>', '<pad>', 'b', 'a']
        >>> vocab[["a", "c"]]
        [3, 0]
    """

    def __init__(
        self,
        tokens: Sequence[str] | Sequence[Sequence[str]] = (),
        min_freq: int = 0,
        reserved_tokens: Sequence[str] = (),
    ) -> None:
        check_list("tokens", tokens, "tokens, or of sentences, each a list of tokens")
        check_integer("min_freq", min_freq, 0)
        check_list("reserved_tokens", reserved_tokens, "tokens")
        counts = collections.Counter(_flat(tokens))
        self.token_freqs: list[tuple[str, int]] = sorted(
            sorted(counts.items()), key=operator.itemgetter(1), reverse=True
        )
        frequent = (token for token, freq in self.token_freqs if freq >= min_freq)
        # A dictionary keeps the first position of a token and drops its repetitions.
        unique_tokens = dict.fromkeys([UNK, *reserved_tokens, *frequent])
        self.idx_to_token: list[str] = list(unique_tokens)
        self.token_to_idx: dict[str, int] = {
            token: idx for idx, token in enumerate(self.idx_to_token)
        }

    def __len__(self) -> int:
        return len(self.idx_to_token)

    @overload
    def __getitem__(self, tokens: str) -> int: ...
    @overload
    def __getitem__(self, tokens: list[str] | tuple[str, ...]) -> list[int]: ...
    def __getitem__(self, tokens: str | list[str] | tuple[str, ...]) -> int | list[int]:
        """Return the id of a token, or the ids of a list of tokens; `unk` for unknown tokens."""
        if isinstance(tokens, list | tuple):
            unk, token_to_idx = self.unk, self.token_to_idx
            return [token_to_idx.get(token, unk) for token in tokens]
        return self.token_to_idx.get(tokens, self.unk)

    @overload
    def to_tokens(self, indices: SupportsInt) -> str: ...
    @overload
    def to_tokens(self, indices: Collection[SupportsInt]) -> list[str]: ...
    def to_tokens(self, indices: SupportsInt | Collection[SupportsInt]) -> str | list[str]:
        """Return the token of an id, or the tokens of a list or one-dimensional array of ids."""
        if isinstance(indices, Sized):
            return [self.idx_to_token[int(index)] for index in indices]
        return self.idx_to_token[int(indices)]

    @property
    def unk(self) -> int:
        """Id of the unknown token."""
        return self.token_to_idx[UNK]


def check_vocab(vocab: object) -> Vocab:
    """Return a vocabulary of the book or of the package, or raise a `ValueError`."""
    if not isinstance(vocab, Vocab | text_vocab.Vocab):
        raise wrong("vocab", "a Vocab, such as `load_data_wiki` returns", vocab)
    return cast(Vocab, vocab)


def _flat(tokens: Sequence[str] | Sequence[Sequence[str]]) -> Iterable[str]:
    """Flatten the tokens of all sentences into one iterable."""
    if tokens and not isinstance(tokens[0], str):
        return itertools.chain.from_iterable(tokens)
    return tokens  # type: ignore[return-value]  # the other half of the union
