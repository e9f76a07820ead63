"""MinHash sketches of documents, computed from token ids.

The words of a document are joined from their word pieces, so a sketch needs no text. Words are
normalized as by the tokenizer: lowercased if it lowercases, and punctuation marks are words.

N: documents, G: word n-grams of all of them.
"""

import functools
import itertools

import numpy as np

from keras_bert_d2l.text.vocab.vocab import Vocab

NUM_WORDS = 5  # in an n-gram
# Two documents are compared if they agree in all rows of at least one band. At a Jaccard similarity
# of 0.8, this holds with a probability of 0.998; at 0.7, with 0.92; at 0.3, with 0.014.
BANDS, ROWS = 20, 6
_BINS = BANDS * ROWS
_EMPTY = np.uint64(1 << 32)  # more than any value in a bin
_MOST_NGRAMS = 1 << 12  # compared in a pair; for longer documents, the similarity is estimated
_PIECE = "##"  # begins every piece of a word but the first

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# The bins from which an empty bin takes its value, relative to it, in the order of attempts.
_ATTEMPTS = np.random.default_rng(0).permutation(np.arange(1, _BINS))


def mixed(values: np.ndarray) -> np.ndarray:
    """Apply the finalizer of SplitMix64: every output bit depends on every input bit."""
    values = values + _FACTOR
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    return values ^ (values >> np.uint64(31))


class Sketcher:
    """Computes word n-grams and sketches from the token ids of documents.

    Args:
        vocab: The vocabulary of the ids.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._continues = np.array([token.startswith(_PIECE) for token in vocab.tokens])
        self._hashes = mixed(np.arange(len(vocab), dtype=np.uint64))

    def ngrams(self, ids: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hashes of all word n-grams, and how many of them each document has.

        A document of fewer than five words has one n-gram, with all its words.

        Args:
            ids: Concatenated token ids of all documents.
            lengths: Number of ids of each document, at least 1, int64 `(N,)`.

        Returns:
            uint64 `(G,)`, in the order of the documents, and int64 `(N,)`.
        """
        firsts = np.cumsum(lengths) - lengths
        is_start = ~self._continues[ids]
        is_start[firsts] = True
        starts = np.flatnonzero(is_start)
        hashes = self._hashes[ids]
        pieces = np.flatnonzero(~is_start)
        place = pieces - starts[np.cumsum(is_start)[pieces] - 1]
        hashes[pieces] = mixed(hashes[pieces] + place.astype(np.uint64))
        num_words = np.add.reduceat(is_start, firsts, dtype=np.int64)
        # Zeros between the documents separate their n-grams.
        gap = NUM_WORDS - 1
        padded = np.zeros(len(starts) + gap * len(lengths), np.uint64)
        before = np.cumsum(num_words + gap) - (num_words + gap)
        padded[_ranges(before, num_words)] = np.add.reduceat(hashes, starts)
        grams = padded[: len(padded) - gap].copy()
        for n in range(1, NUM_WORDS):
            grams *= _FACTOR
            grams += padded[n : len(padded) - gap + n]
        counts = np.maximum(num_words - gap, 1)
        return mixed(grams[_ranges(before, counts)]), counts

    def bands(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return one key per document and band, uint64 `(N, BANDS)`.

        The sketch is MinHash with one permutation: each n-gram falls into one of the bins, and
        each bin keeps its smallest value (Li et al. 2012). Empty bins take the value of another
        bin (Shrivastava 2017).
        """
        grams, counts = self.ngrams(ids, lengths)
        cells = np.repeat(np.arange(len(lengths)) * _BINS, counts)
        half = np.uint64(32)
        cells += (((grams >> half) * np.uint64(_BINS)) >> half).astype(np.int64)
        sketch = np.full(len(lengths) * _BINS, _EMPTY)
        np.minimum.at(sketch, cells, grams & np.uint64(0xFFFFFFFF))
        is_empty = sketch == _EMPTY
        empty = np.flatnonzero(is_empty)
        for step in _ATTEMPTS:
            if not len(empty):
                break
            source = empty - empty % _BINS + (empty + step) % _BINS
            is_found = ~is_empty[source]
            sketch[empty[is_found]] = sketch[source[is_found]]
            empty = empty[~is_found]
        rows = sketch.reshape(len(lengths), BANDS, ROWS)
        keys = np.broadcast_to(np.arange(BANDS, dtype=np.uint64), rows.shape[:2])
        return functools.reduce(lambda key, row: mixed(key + rows[:, :, row]), range(ROWS), keys)

    def ngram_sets(self, ids: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Return the distinct n-grams of each document, sorted. Of many, the 4,096 smallest."""
        grams, counts = self.ngrams(ids, lengths)
        ends = np.cumsum(counts)
        return [
            np.unique(grams[start:end])[:_MOST_NGRAMS]
            for start, end in itertools.pairwise([0, *ends.tolist()])
        ]


def jaccard(first: np.ndarray, second: np.ndarray) -> float:
    """Return the Jaccard similarity of two results of `ngram_sets`."""
    both = np.sort(np.concatenate([first, second]))
    is_copy = both[1:] == both[:-1]
    most = max(len(first), len(second))
    if most < _MOST_NGRAMS:
        return int(is_copy.sum()) / (len(both) - int(is_copy.sum()))
    # Of the smallest values of the union, count those of both documents (Broder 1997).
    union = both[np.append(True, ~is_copy)][:most]
    return int(np.isin(union, both[1:][is_copy]).sum()) / len(union)


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the integers `starts[n]` to `starts[n] + counts[n] - 1` for each n, concatenated."""
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(starts - before, counts)
