"""Find near-duplicate documents in the shards of a corpus: MinHash with LSH, then comparison.

Documents that agree in a band of their sketches are compared by the Jaccard similarity of their
sets of word n-grams. A document is discarded if it is similar enough to an earlier one. The result
depends neither on the number of processes nor on the order of comparisons.

The band keys are distributed to files on disk until each file is small, so memory does not grow
with the corpus, apart from one byte per document.
"""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from keras_bert_d2l.data.store import shards
from keras_bert_d2l.data.store.manifest import token_dtype
from keras_bert_d2l.data.store.partitions import ENTRIES_AT_ONCE, partitions
from keras_bert_d2l.data.store.sketches import BANDS, Sketcher, jaccard
from keras_bert_d2l.text.vocab.vocab import Vocab

_PAIRS_AT_ONCE = 1 << 9  # compared; their n-grams take at most 32 MB
_TOKENS_AT_ONCE = 1 << 18  # of which n-grams are computed; 15 MB


def discard_near_duplicates(
    folders: Sequence[pathlib.Path], vocab: Vocab, threshold: float, keep: np.ndarray
) -> None:
    """Discard documents whose Jaccard similarity with an earlier document reaches a threshold.

    Args:
        folders: The shards.
        vocab: The vocabulary of their token ids.
        threshold: Least similarity of near-duplicates.
        keep: bool `(N,)`, True for documents that are not yet discarded. Changed in place.
    """
    texts = _Documents(folders, vocab)
    for entries in partitions(_entries(folders), BANDS * len(keep), folders[0].parent):
        pairs = _candidates(entries)
        while len(pairs := pairs[keep[pairs[:, 1]]]):
            some, pairs = pairs[:_PAIRS_AT_ONCE], pairs[_PAIRS_AT_ONCE:]
            keep[some[texts.similarities(some) >= threshold, 1]] = False


def _entries(folders: Sequence[pathlib.Path]) -> Iterator[np.ndarray]:
    """Yield blocks of all band keys, each with the number of its document, uint64 `(E, 2)`."""
    num_keys = 0
    for folder in folders:
        with open(folder / shards.BANDS, "rb") as file:
            while len(keys := np.fromfile(file, "<u8", ENTRIES_AT_ONCE)):
                places = np.arange(num_keys, num_keys + len(keys), dtype=np.uint64)
                num_keys += len(keys)
                yield np.stack([keys, places // np.uint64(BANDS)], axis=1)


def _candidates(entries: np.ndarray) -> np.ndarray:
    """Return the pairs of documents to compare, the earlier one first, int64 `(pairs, 2)`.

    Each document is compared with the first and with the previous document of equal key. The number
    of pairs therefore grows with the number of documents, however many are alike.
    """
    keys, places = entries[np.lexsort((entries[:, 1], entries[:, 0]))].T
    is_equal = keys[1:] == keys[:-1]
    starts = np.where(np.append(True, ~is_equal), np.arange(len(keys)), 0)
    later = np.flatnonzero(is_equal) + 1
    earlier = np.stack([np.maximum.accumulate(starts)[later], later - 1])
    pairs = np.stack([places[earlier].ravel(), np.tile(places[later], 2)], axis=1)
    return np.unique(pairs.astype(np.int64), axis=0)


class _Documents:
    """The token ids of the documents in all shards, by the number of the document."""

    def __init__(self, folders: Sequence[pathlib.Path], vocab: Vocab) -> None:
        self._folders = folders
        self._dtype = token_dtype(len(vocab))
        self._sketcher = Sketcher(vocab)
        sizes = [(folder / shards.SIZES).stat().st_size for folder in folders]
        self._ends = np.cumsum(sizes) // shards.LENGTH.itemsize

    def similarities(self, pairs: np.ndarray) -> np.ndarray:
        """Return the Jaccard similarities of pairs of documents."""
        numbers, places = np.unique(pairs, return_inverse=True)
        sets: list[np.ndarray] = []
        for shard, own_numbers in self._by_shard(numbers):
            sets += self._sets(shard, own_numbers)
        both = zip(*places.reshape(pairs.shape).T, strict=True)
        return np.array([jaccard(sets[first], sets[second]) for first, second in both])

    def _by_shard(self, numbers: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the shards of some documents, and the numbers of the documents within the shard."""
        owners = np.searchsorted(self._ends, numbers, side="right")
        for shard in np.unique(owners).tolist():
            start = self._ends[shard - 1] if shard else 0
            yield shard, numbers[owners == shard] - start

    def _sets(self, shard: int, numbers: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the n-grams of documents of a shard."""
        folder = self._folders[shard]
        lengths = np.fromfile(folder / shards.SIZES, shards.LENGTH).astype(np.int64)
        ends = np.cumsum(lengths)[numbers]
        lengths = lengths[numbers]
        ids = np.memmap(folder / shards.TOKENS, self._dtype, mode="r")
        batches = np.cumsum(lengths) // _TOKENS_AT_ONCE
        for batch in np.unique(batches):
            mine = np.flatnonzero(batches == batch)
            documents = [ids[ends[number] - lengths[number] : ends[number]] for number in mine]
            yield from self._sketcher.ngram_sets(np.concatenate(documents), lengths[mine])
