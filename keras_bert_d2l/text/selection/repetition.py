"""Gopher's rules for repeated phrases, for a batch of documents at once.

A cheap test with upper bounds shows that most documents break none of the rules. The others are
decided by comparing the n-grams. Words and n-grams are compared by hashes.

N: documents, W: words of all documents.
"""

from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.text.words import scattered, split_at_spaces

_TOP = {2: 0.20, 3: 0.18, 4: 0.16}  # share of characters in the most frequent n-gram
_COPIED = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}  # in repetitions of n-grams
# The limits of the cheap test. n/2 pairs of words, rounded up, cover an n-gram, so the most
# frequent n-gram has at most that many times the characters of the most frequent pair.
_LEAST_TOP = min(most / -(-n // 2) for n, most in _TOP.items())
_SHORTEST, _LEAST_COPIED = min(_COPIED), min(_COPIED.values())

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_PLACES = np.uint64((1 << 20) - 1)  # the numbers of all words of a batch
_IS_LETTER = np.array([bytes([byte]).isalpha() for byte in range(256)])


class WordArrays:
    """The words of a batch of documents, as arrays.

    Args:
        texts: The documents, with one space between words.
        counts: How many words each has: at least one, and all together at most a million.

    Attributes:
        hashes: A hash of each word, uint64 `(W,)`.
        lengths: The sizes of the words in bytes, `(W,)`.
        owners: The numbers of their documents, `(W,)`.
        firsts: The numbers of the first words of the documents, `(N,)`.
        sizes: The sizes of the documents in bytes, without spaces, `(N,)`.
    """

    def __init__(self, texts: Sequence[str], counts: Sequence[int]) -> None:
        content = f"{' '.join(texts)} ".encode()
        starts, ends, self.hashes = split_at_spaces(content)
        self.lengths = ends - starts
        self.owners = np.repeat(np.arange(len(texts)), counts)
        self.firsts = np.append(0, np.cumsum(counts)[:-1])
        self.sizes = np.add.reduceat(self.lengths, self.firsts)
        self._initials = np.frombuffer(content, np.uint8)[starts]

    def beginning_with_letters(self) -> np.ndarray:
        """Return how many words of each document begin with an ASCII letter, `(N,)`."""
        return np.add.reduceat(_IS_LETTER[self._initials], self.firsts, dtype=np.int64)

    def may_be_repetitive(self) -> np.ndarray:
        """Return False for documents that are certainly not repetitive, bool `(N,)`."""
        num_words = len(self.hashes)
        following = np.append(self.hashes, np.zeros(_SHORTEST, np.uint64))
        ngrams = self.salted_hashes()
        for n in range(2, _SHORTEST + 1):
            ngrams *= _FACTOR
            ngrams += following[n - 1 : n - 1 + num_words]
            if n == 2:
                is_frequent = self._largest_sums(_bins(ngrams)) > _LEAST_TOP * self.sizes
        bins = _bins(ngrams)
        places = np.flatnonzero(np.bincount(bins)[bins] > 1)
        places, is_copy = _sorted_by_ngram(scattered(ngrams[places]), places)
        is_covered: np.ndarray = np.zeros(num_words + _SHORTEST, bool)
        for n in range(_SHORTEST):
            is_covered[places[is_copy] + n] = True
        covered = np.flatnonzero(is_covered[:num_words])
        copied = np.bincount(self.owners[covered], self.lengths[covered], len(self.sizes))
        return is_frequent | (copied > _LEAST_COPIED * self.sizes)

    def salted_hashes(self) -> np.ndarray:
        """Return hashes that differ for equal words of different documents, uint64 `(W,)`."""
        return scattered(self.owners.astype(np.uint64) * _FACTOR + self.hashes)

    def _largest_sums(self, bins: np.ndarray) -> np.ndarray:
        """Return an upper bound of the characters in the most frequent pair of words, `(N,)`.

        The bin of the most frequent pair has all its characters, and perhaps those of other pairs.
        """
        sums = np.bincount(bins, self.lengths + np.append(self.lengths[1:], 0))
        return np.maximum.reduceat(sums[bins], self.firsts)


def are_repetitive(words: WordArrays) -> np.ndarray:
    """Return which documents repeat phrases of 2 to 10 words too often, bool `(N,)`.

    Sizes are measured in bytes.
    """
    num_words, num_texts = len(words.hashes), len(words.sizes)
    ends = np.append(0, np.cumsum(words.lengths))
    last = np.append(words.firsts[1:], num_words)[words.owners]  # where its document ends
    repetitive: np.ndarray = np.zeros(num_texts, bool)
    hashes = words.salted_hashes()
    places = np.arange(num_words)  # where the n-grams begin that occur at least twice
    for n in range(2, max(_COPIED) + 1):
        places = places[places + n <= last[places]]
        if not len(places):
            break
        hashes[places] = scattered(hashes[places] * _FACTOR + words.hashes[places + n - 1])
        places, is_copy = _sorted_by_ngram(hashes[places], places)
        if n in _TOP:
            lengths = ends[places + n] - ends[places]
            shares = _most_frequent(lengths, is_copy, words.owners[places], words.sizes)
            repetitive |= shares > _TOP[n]
        else:
            covered = np.zeros(num_words + 1, np.int64)
            np.add.at(covered, places[is_copy], 1)
            np.add.at(covered, places[is_copy] + n, -1)
            copied = np.where(np.cumsum(covered[:-1]) > 0, words.lengths, 0)
            repetitive |= np.bincount(words.owners, copied, num_texts) > _COPIED[n] * words.sizes
        places = places[is_copy | np.append(is_copy[1:], False)]
    return repetitive


def _most_frequent(
    lengths: np.ndarray, is_copy: np.ndarray, owners: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Return the share of characters in each document's most frequent n-gram, float `(N,)`."""
    firsts = np.flatnonzero(~is_copy)
    times = np.diff(firsts, append=len(is_copy))
    best = np.zeros(len(sizes), np.int64)  # of equally frequent n-grams, the longest
    np.maximum.at(best, owners[firsts], (times << 32) + lengths[firsts])
    return np.where(best >> 33, (best >> 32) * (best & 0xFFFFFFFF), 0) / np.maximum(sizes, 1)


def _sorted_by_ngram(hashes: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places sorted by n-gram, and whether each has the n-gram of the one before."""
    keys = np.sort((hashes & ~_PLACES) | places.astype(np.uint64))
    is_copy: np.ndarray = np.zeros(len(keys), bool)
    is_copy[1:] = (keys[1:] ^ keys[:-1]) <= _PLACES
    return (keys & _PLACES).astype(np.int64), is_copy


def _bins(hashes: np.ndarray) -> np.ndarray:
    """Distribute hashes to bins, of which most have one hash or none."""
    num_bits = (4 * len(hashes)).bit_length()
    return (scattered(hashes) >> np.uint64(64 - num_bits)).astype(np.int64)
