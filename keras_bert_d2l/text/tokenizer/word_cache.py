"""Tokenize many texts faster, because most words of a text were tokenized before.

No token of a tokenizer extends over a space, and a word between two spaces has the same tokens in
every text. Words are compared by hashes of 64 bits.

S: texts, T: tokens of all texts, W: words of all texts.
"""

import functools
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_SLOT_BITS = 19  # one word per slot
_MOST_BYTES = 1 << 22  # that are split into words, which needs about 10 times as much memory
_LONGEST = 64  # bytes of a word that is remembered
_MOST_IDS = 1 << 21  # remembered
_HASH, _START, _COUNT = range(3)  # columns of the table
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_WORDS_AT_ONCE = 1 << 14  # so that intermediate results stay in the processor's cache
_POWER_BITS = 17


class _Words(NamedTuple):
    """The words of a text in bytes: word w is `text[starts[w] : ends[w]]`.

    `hashes` has an equal number for equal words, whose high bits depend on all of its bytes,
    uint64 `(W,)`.
    """

    starts: np.ndarray
    ends: np.ndarray
    hashes: np.ndarray


class WordCache:
    """Tokenizes lists of texts exactly as a tokenizer does, and remembers the tokens of words.

    It needs about 40 MB of memory, and may be used by several threads.

    Args:
        tokenizer: The tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        special = (*tokenizer.vocab.special_tokens, *tokenizer.options.get("special_tokens", ()))
        self._has_spaces = any(" " in token for token in special)
        self._table = np.zeros((1 << _SLOT_BITS, 3), np.uint64)
        self._ids = np.zeros(0, np.int32)  # of all words that were tokenized, then unused places
        self._num_ids = 0
        self._lock = threading.Lock()

    def tokenize(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts, int32 `(T,)`, and how many each text has, int64 `(S,)`."""
        encoded = [text.encode() for text in texts]
        content = b" ".join([*encoded, b""])
        if self._has_spaces or not 0 < len(content) <= _MOST_BYTES:
            return self._directly(texts)
        words = _split_at_spaces(content)
        with self._lock:
            starts, counts = self._look_up(words, content)
            ends = np.cumsum(counts)
            places = np.repeat(starts - (ends - counts), counts)
            places += np.arange(ends[-1])
            ids = self._ids[places]
        last = np.cumsum([len(text) + 1 for text in encoded]) - 1  # the space after each text
        before = np.append(0, ends[np.searchsorted(words.ends, last)])
        return ids, np.diff(before)

    def _look_up(self, words: _Words, content: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Return where the ids of each word start, and how many there are, int64 `(W,)` each."""
        slots = (words.hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)
        found = np.take(self._table, slots, axis=0)  # several times as fast as indexing
        new = np.flatnonzero(found[:, _HASH] != words.hashes)
        if len(new):
            if self._num_ids > _MOST_IDS:
                self._table[:] = 0
                self._num_ids = 0
                return self._look_up(words, content)
            hashes, first, which = np.unique(
                words.hashes[new], return_index=True, return_inverse=True
            )
            some = new[first]
            spans = zip(words.starts[some].tolist(), words.ends[some].tolist(), strict=True)
            ids, counts = self._directly([content[start:end] for start, end in spans])
            starts = self._remember(ids) + np.cumsum(counts) - counts
            places = np.stack([starts, counts], axis=1).astype(np.uint64)
            entries = np.column_stack([hashes, places])
            found[new] = entries[which]
            is_short = words.ends[some] - words.starts[some] <= _LONGEST
            self._table[slots[some[is_short]]] = entries[is_short]
        return found[:, _START].astype(np.int64), found[:, _COUNT].astype(np.int64)

    def _remember(self, ids: np.ndarray) -> int:
        """Add ids to those of all words, and return their first place."""
        start, self._num_ids = self._num_ids, self._num_ids + len(ids)
        if self._num_ids > len(self._ids):
            self._ids = np.resize(self._ids, 2 * self._num_ids)
        self._ids[start : self._num_ids] = ids
        return start

    def _directly(self, texts: Sequence[str] | Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        ragged = self._tokenizer.tokenize(texts)
        return ragged.values.numpy(), ragged.row_lengths().numpy()


def _split_at_spaces(text: bytes) -> _Words:
    """Split a text at every plain space. Its last byte must be a space."""
    content = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(content == ord(" "))
    starts = np.append(0, ends[:-1] + 1)
    hashes = np.empty(len(ends), np.uint64)
    for first in range(0, len(ends), _WORDS_AT_ONCE):
        some = slice(first, first + _WORDS_AT_ONCE)
        start, end = starts[first], ends[some][-1] + 1
        prefixes = content[start:end].astype(np.uint64)
        powers, inverses = _powers(1 << max(int(end - start).bit_length(), _POWER_BITS))
        prefixes *= powers[: end - start]
        np.cumsum(prefixes, out=prefixes)
        # A polynomial in the bytes of each word and the space after it, from the lowest power on.
        hashes[some] = np.diff(prefixes[ends[some] - start], prepend=np.uint64(0))
        hashes[some] *= inverses[starts[some] - start]
    return _Words(starts, ends, (hashes ^ (hashes >> np.uint64(32))) * _FACTOR)


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first powers of the factor, and of its inverse modulo 2**64, uint64 `(count,)`."""
    inverse = np.uint64(pow(int(_FACTOR), -1, 1 << 64))
    powers, inverses = np.full((2, count), np.array([[_FACTOR], [inverse]]))
    return np.cumprod(powers), np.cumprod(inverses)
