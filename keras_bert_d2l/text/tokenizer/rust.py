"""Token ids and rows outside of graphs, by the library `tokenizers` and NumPy.

This module does not need TensorFlow. B: texts, T: tokens in a row.
"""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from keras_bert_d2l.text.unicode_gaps import disputed_characters
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.text.wordpiece_file import MAX_WORD_CHARACTERS, wordpiece_fields
from keras_bert_d2l.types import ConfigDict

if TYPE_CHECKING:
    import tokenizers

# Characters in all texts of a call. TensorFlow's operations take less time for more.
MOST_CHARACTERS = 2000
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")


class RustTokenizer:
    """Splits texts into tokens by the library `tokenizers`, and builds rows of them.

    Args:
        tokenizer: A tokenizer of the library.
        vocab: Its vocabulary.
        truncation_side: The end of a text that truncation removes, `"right"` or `"left"`.
    """

    def __init__(
        self, tokenizer: "tokenizers.Tokenizer", vocab: Vocab, truncation_side: str = "right"
    ) -> None:
        self.vocab, self._tokenizer = vocab, tokenizer
        self._keeps_end = truncation_side == "left"

    def encode(self, texts: Sequence[str]) -> list["tokenizers.Encoding"]:
        """Tokenize texts, without special tokens."""
        if len(texts) == 1:  # a batch would start threads
            return [self._tokenizer.encode(texts[0], add_special_tokens=False)]
        found: list[tokenizers.Encoding]
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return found

    def rows(
        self,
        sides: Sequence[Sequence["tokenizers.Encoding"]],
        max_len: int | None,
        pad: bool = False,
    ) -> dict[str, np.ndarray]:
        """Return the rows of texts or pairs, and `num_tokens` before truncation, `(B,)`.

        The longer text is truncated first. The library could truncate pairs, too, but it keeps
        every combination of what it removes from both texts, which are millions if the texts are
        very long.
        """
        num_added, rows, lengths = self.vocab.num_added(len(sides)), [], []
        for parts in zip(*sides, strict=True):
            lengths.append(num_added + sum(map(len, parts)))
            room = lengths[-1] if max_len is None else max_len - num_added
            sizes = _kept_sizes(room, *map(len, parts))
            rows.append([self.kept(x.ids, n) for x, n in zip(parts, sizes, strict=False)])
        batch = self.framed(rows, max_len if pad and max_len else 0)
        return {**batch, "num_tokens": np.array(lengths, np.int64)}

    def kept(self, ids: Sequence[int], size: int) -> Sequence[int]:
        """Truncate the tokens of a text."""
        return ids[max(len(ids) - size, 0) :] if self._keeps_end else ids[:size]

    def framed(
        self, rows: Sequence[Sequence[Sequence[int]]], width: int = 0
    ) -> dict[str, np.ndarray]:
        """Add special tokens to the one or two texts of each row, and padding up to `width`."""
        cls, sep, pad = self.vocab.cls_id, self.vocab.sep_id, self.vocab.pad_id
        separators = [sep] * (self.vocab.num_added(len(rows[0])) - len(rows[0]))
        parts = [
            ([cls, *first, *separators], [x for ids in second for x in (*ids, sep)])
            for first, *second in rows
        ]
        valid_lens = np.array([len(first) + len(second) for first, second in parts], np.int32)
        tokens = np.full((len(rows), max(width, *valid_lens)), pad, np.int32)
        segments = np.zeros_like(tokens)
        for row, (first, second) in enumerate(parts):
            tokens[row, : valid_lens[row]] = first + second
            segments[row, len(first) : valid_lens[row]] = 1
        return {"tokens": tokens, "segments": segments, "valid_lens": valid_lens}


class QuickTokenizer(RustTokenizer):
    """Splits a few texts into the tokens that the operations of `Tokenizer` give, in less time.

    Args:
        vocab: The vocabulary.
        options: The options of WordPiece, and `truncation_side`, as for `Tokenizer`.
    """

    def __init__(self, vocab: Vocab, options: ConfigDict) -> None:
        import tokenizers

        options = dict(options)
        side = options.pop("truncation_side", "right")
        self._disputed: frozenset[str] = frozenset()
        # `Tokenizer` knows this spelling of the unknown token in all vocabularies of WordPiece.
        self._unknown = GOOGLE_SPECIALS[1]
        if vocab.kind == "wordpiece":
            compat = options.pop("compat")
            fields = wordpiece_fields(vocab, **options)
            fields["model"]["max_input_chars_per_word"] = MAX_WORD_CHARACTERS[compat]
            text = json.dumps(fields)
            self._disputed = frozenset(map(chr, disputed_characters()))
        else:
            text = vocab.to_text()
        super().__init__(tokenizers.Tokenizer.from_str(text), vocab, side)

    @classmethod
    def of(cls, vocab: Vocab, options: ConfigDict) -> Self | None:
        """Return the tokenizer, or None if the library is missing or does not know its tokens."""
        try:
            found = cls(vocab, options)
        except Exception:  # the library raises Exception itself
            return None
        return found if found.knows(options.get("normalized_tokens", ())) else None

    def knows(self, texts: Sequence[str]) -> bool:
        """Return whether the tokens of texts are those of TensorFlow's operations."""
        return not self._disputed or all(map(self._is_undisputed, texts))

    def _is_undisputed(self, text: str) -> bool:
        if self._unknown in text and self._unknown not in self.vocab.special_tokens:
            return False
        if text.isascii():
            return True
        return self._disputed.isdisjoint(text) and not _PRIVATE.search(text)


def are_short(sides: Sequence[Sequence[str]]) -> bool:
    """Return whether texts are so short that TensorFlow's operations take more time."""
    return sum(len(text) for texts in sides for text in texts) <= MOST_CHARACTERS


def _kept_sizes(room: int, first: int, second: int = 0) -> tuple[int, ...]:
    """Return how many tokens of two texts fit into `room`, from their lengths."""
    of_shorter = min(first, second, room // 2)
    kept = of_shorter, room - of_shorter
    return kept[::-1] if first > second else kept
