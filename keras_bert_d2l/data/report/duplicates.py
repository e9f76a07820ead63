"""Find duplicate documents and sentences by their hashes."""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from keras_bert_d2l.data.store.token_store import TokenStore

_SENTENCES_AT_ONCE = 1 << 16
_COMPARED = 1 << 22  # hashes in memory; of more hashes, only a sample is compared
_NUM_REPEATED = 10
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True)
class Copies:
    """Statistics on the duplicate items of a sequence.

    Attributes:
        share: Share of items that are copies of an earlier one.
        sampled: One in this many items was compared; 1 means all of them.
        most_repeated: Index of the first occurrence and count of the most repeated items.
    """

    share: float
    sampled: int
    most_repeated: tuple[tuple[int, int], ...]


def find_copies(hashes: Iterable[np.ndarray], count: int) -> Copies:
    """Find duplicates by their hashes. For very many items, estimate the share from a sample.

    The sample contains all copies of an item or none, so it has the same share of duplicates.

    Args:
        hashes: Blocks of uint64 hashes.
        count: The number of hashes.
    """
    sampled = -(-count // _COMPARED)
    found, places = [], []
    start = 0
    for block in hashes:
        mine = np.flatnonzero(block % np.uint64(sampled) == 0)
        found.append(block[mine])
        places.append(start + mine)
        start += len(block)
    looked_at = np.concatenate(found)
    if not len(looked_at):
        return Copies(0.0, sampled, ())
    _, first, times = np.unique(looked_at, return_index=True, return_counts=True)
    most = np.argsort(-times, kind="stable")[:_NUM_REPEATED]
    where = np.concatenate(places)[first]
    repeated = tuple((int(where[n]), int(times[n])) for n in most if times[n] > 1)
    return Copies(1 - len(times) / len(looked_at), sampled, repeated)


def sentence_hashes(store: TokenStore) -> Iterator[np.ndarray]:
    """Yield blocks of uint64 hashes, one hash of the ids per sentence."""
    for first in range(0, store.num_sentences, _SENTENCES_AT_ONCE):
        offsets = np.asarray(store.sentence_offsets[first : first + _SENTENCES_AT_ONCE + 1])
        starts = offsets[:-1] - offsets[0]
        ids = store.tokens[offsets[0] : offsets[-1]].astype(np.uint64)
        place = np.arange(len(ids), dtype=np.uint64)
        place -= np.repeat(starts.astype(np.uint64), np.diff(offsets))
        yield np.add.reduceat(_mixed(_mixed(ids) + place), starts)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Apply the finalizer of SplitMix64: every output bit depends on every input bit."""
    values = values + _INCREMENT
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    return values ^ (values >> np.uint64(31))
