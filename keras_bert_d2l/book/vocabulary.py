"""Lines of text in, lists of tokens and a vocabulary of whole words out (d2l.ai, section 9.2)."""

import collections
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import overload

UNK = "<unk>"


def tokenize(lines: Iterable[str], token: str = "word") -> list[list[str]]:
    """Splits every line into words at white space, or into characters.

    Args:
        lines: Lines of text.
        token: `"word"` or `"char"`.

    Returns: one list of tokens for each line.

    Raises:
        ValueError: `token` is neither, or `lines` is one text instead of several.
    """
    if isinstance(lines, str):
        raise ValueError(f"`lines` must be a list of lines. Received one text: {lines!r}.")
    if token not in ("word", "char"):
        raise ValueError(f"`token` must be 'word' or 'char'. Received: token={token!r}.")
    return [line.split() if token == "word" else list(line) for line in lines]


class Vocab:
    """The book's vocabulary: `<unk>` is id 0, then the reserved tokens, then words by frequency.

    Words of equal frequency stand in alphabetical order, so that the same counts give the same ids
    whatever the order of the text. (The book's editions differ here: one keeps the order in which
    words are met, another sorts the whole vocabulary alphabetically and `<unk>` with it.)

    `idx_to_token` and `token_to_idx` are a plain list and dictionary, and may be assigned, as the
    book does to take over a stored vocabulary. `kb.Vocab(vocab.idx_to_token)` turns it into the
    vocabulary that the rest of the package works with; it needs all five special tokens.

    Args:
        tokens: Tokens, or a list of lists of them (one for each sentence).
        min_freq: Words that occur less often are left out.
        reserved_tokens: Tokens that are kept whatever their frequency.
    """

    def __init__(
        self,
        tokens: Sequence[str] | Sequence[Sequence[str]] = (),
        min_freq: int = 0,
        reserved_tokens: Sequence[str] = (),
    ) -> None:
        counts = collections.Counter(_flat(tokens))
        self.token_freqs: list[tuple[str, int]] = sorted(
            sorted(counts.items()), key=operator.itemgetter(1), reverse=True
        )
        frequent = (token for token, freq in self.token_freqs if freq >= min_freq)
        # A dictionary keeps the first place of a token and drops its repetitions.
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
    def __getitem__(self, tokens):
        """The id of a token, `unk` for an unknown one; for a list, the list of ids."""
        if isinstance(tokens, list | tuple):
            unk, token_to_idx = self.unk, self.token_to_idx
            return [token_to_idx.get(token, unk) for token in tokens]
        return self.token_to_idx.get(tokens, self.unk)

    def to_tokens(self, indices):
        """The token of an id; for a list or a one-dimensional array, the list of tokens."""
        if hasattr(indices, "__len__"):
            return [self.idx_to_token[int(index)] for index in indices]
        return self.idx_to_token[int(indices)]

    @property
    def unk(self) -> int:
        """Id of the unknown token."""
        return self.token_to_idx[UNK]


def _flat(tokens: Sequence[str] | Sequence[Sequence[str]]) -> Iterable[str]:
    """The tokens of all sentences in one row."""
    if tokens and not isinstance(tokens[0], str):
        return itertools.chain.from_iterable(tokens)
    return tokens  # type: ignore[return-value]  # the other half of the union
