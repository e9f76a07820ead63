"""Texts as rows of token ids, with the library `tokenizers` in place of TensorFlow.

The rows, words and spans are those of `Preprocessor` and of its classes in `tasks`.

B: texts, T: tokens in a row, L: maximum number of tokens in an answer.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tokenizers

from keras_bert_d2l.serving.protocol import Arrays
from keras_bert_d2l.text.tokenizer.numpy_rows import Ids, framed
from keras_bert_d2l.text.unicode_gaps import white_space
from keras_bert_d2l.text.vocab import Vocab

MAX_ANSWER_LEN, NUM_BEST = 30, 20  # as in the signatures of SavedModels
_SPACES = frozenset(map(chr, white_space()))


class Word(NamedTuple):
    """A word of a text.

    Attributes:
        token: The index of its first token in the text.
        start: The index of its first character.
        end: The index after its last character.
    """

    token: int
    start: int
    end: int


class NumPyPreprocessor:
    """Converts strings to the rows that a model reads, as `Preprocessor` does with TensorFlow.

    Args:
        tokenizer: Splits texts into tokens.
        vocab: The vocabulary.
        max_len: Maximum number of tokens in a row.
        truncation_side: The end of a text that truncation removes, `"right"` or `"left"`.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        vocab: Vocab,
        max_len: int,
        truncation_side: str = "right",
    ) -> None:
        self._tokenizer, self._vocab, self._max_len = tokenizer, vocab, max_len
        self._side = truncation_side
        self._continues = vocab.continues.tolist()
        self._joined = vocab.unk_id if vocab.kind in ("unigram", "character-bpe") else None
        self._has_spaces = vocab.kind != "wordpiece"
        self._space = " " * (vocab.kind in ("bpe", "character-bpe"))  # before words but the first
        self._added = tuple(x.content for x in tokenizer.get_added_tokens_decoder().values())
        self.room = max_len - vocab.num_added(1)  # tokens of a text

    def encode(self, texts: np.ndarray) -> list[tokenizers.Encoding]:
        """Tokenize texts `(B,)`, without special tokens."""
        strings = [text.decode("utf-8", "replace") for text in texts]
        return self._tokenizer.encode_batch(strings, add_special_tokens=False)

    def kept(self, ids: Sequence[int], size: int) -> Sequence[int]:
        """Truncate the tokens of a text."""
        return ids[max(len(ids) - size, 0) :] if self._side == "left" else ids[:size]

    def of_texts(self, *texts: np.ndarray) -> tuple[Arrays, np.ndarray]:
        """Return the rows of texts or pairs, and whether each was truncated, bool `(B,)`.

        The library could truncate pairs, too, but it keeps every combination of what it removes
        from both texts, which are millions if the texts are very long.
        """
        sides = [Ids.of([one.ids for one in self.encode(side)]) for side in texts]
        batch = framed(sides, self._vocab, self._max_len, truncation_side=self._side)
        return batch, batch.pop("num_tokens") > self._max_len

    def framed(self, rows: Sequence[Sequence[Sequence[int]]]) -> Arrays:
        """Add special tokens and padding to the one or two texts of each row."""
        return framed([*map(Ids.of, zip(*rows, strict=True))], self._vocab)

    def of_words(self, words: np.ndarray) -> tuple[str, list[int], list[Word]]:
        """Return given words `(W,)` as a text with spaces, its tokens, and their places in it.

        Empty words at the end are padding. The tokens are those of `tasks.tag.rows.split_words`: a
        word without tokens has the unknown one.
        """
        [places], ids, found, start = words.nonzero(), list[int](), list[Word](), 0
        strings = [x.decode("utf-8", "replace") for x in words[: max(places, default=-1) + 1]]
        for string in strings:
            space = self._space if found and not string.startswith(self._added) else ""
            found.append(Word(len(ids), start, start + len(string)))
            encoding = self._tokenizer.encode(space + string, add_special_tokens=False)
            ids += encoding.ids or [self._vocab.unk_id]
            start += len(string) + 1
        return " ".join(strings), ids, found

    def words(self, encoding: tokenizers.Encoding, text: str, places: Sequence[int]) -> list[Word]:
        """Return the words of a text, and `places`, what `spaced` returns for it."""
        found: list[Word] = []
        last = 0
        for place, (token, (start, end)) in enumerate(
            zip(encoding.ids, encoding.offsets, strict=True)
        ):
            is_near = token == self._joined and start <= last
            if found and (self._continues[token] or is_near):
                found[-1] = found[-1]._replace(end=end)
            else:
                found.append(Word(place, start, end))
            last = end
        ends = [places[max(x.start, x.end - 1)] + (x.start < x.end) for x in found]
        whole = [
            Word(x.token, *self._whole(text, places[x.start], end))
            for x, end in zip(found, ends, strict=True)
        ]
        return [word for word in whole if word.start < word.end or not self._has_spaces]

    def _whole(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Exclude the spaces around a span, and move its end past combining accents."""
        if self._has_spaces:
            while start < len(text) and text[start] in _SPACES:
                start += 1
            while end > 0 and text[end - 1] in _SPACES:
                end -= 1
        while end < len(text) and unicodedata.category(text[end]) == "Mn":
            end += 1
        return start, end

    def best_spans(
        self,
        encoding: tokenizers.Encoding,
        text: str,
        windows: Sequence[tuple[int, np.ndarray, np.ndarray]],
        num_best: int,
    ) -> list[tuple[tuple[int, int], float]]:
        """Return the best answers in a context: their characters and their logits, best first.

        Args:
            encoding: The tokens of the context.
            text: The context.
            windows: Its windows: the index of the first token, and for each of their tokens the
                logits that an answer starts and that it ends there.
            num_best: Maximum number of spans of a window and of all.
        """
        found: dict[tuple[int, int], float] = {}
        for begin, starts, ends in windows:
            offsets = encoding.offsets[begin : begin + len(starts)]
            is_text = np.array([start < end for start, end in offsets], bool)
            starts, ends = (np.where(is_text, x, -np.inf) for x in (starts, ends))
            padded = np.append(ends, np.full(MAX_ANSWER_LEN, -np.inf, ends.dtype))
            to = np.arange(len(starts))[:, None] + np.arange(MAX_ANSWER_LEN)
            sums = (starts[:, None] + padded[to]).ravel()
            for place in np.argsort(-sums, kind="stable")[:num_best]:
                first, length = divmod(int(place), MAX_ANSWER_LEN)
                if sums[place] > -np.inf:
                    span = self._whole(text, offsets[first][0], offsets[first + length][1])
                    found[span] = max(found.get(span, -np.inf), float(sums[place]))
        spans = [(span, logit) for span, logit in found.items() if span[0] < span[1]]
        return sorted(spans, key=lambda one: -one[1])[:num_best]
