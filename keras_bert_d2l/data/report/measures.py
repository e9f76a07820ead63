"""Measure a token store: duplicates, counts and lengths, and masks of a sample of examples.

R: rows, T: tokens in a row, V: vocabulary size.
"""

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from keras_bert_d2l.data.pretraining.masking import Masking, mask_tokens
from keras_bert_d2l.data.pretraining.packing import Layout, lay_out
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, Examples
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.vocab import Vocab

LABELS = {"nsp": ("not next", "next"), "sop": ("swapped", "in order"), "none": ("", "")}
_PREDICTED = ("masked", "replaced", "kept")
_NUM_SHOWN = 10  # examples
_NUM_TOKENS = 1 << 19  # enough to measure the mask rate to within 0.1 %
_ROWS_AT_ONCE = 256
_AT_ONCE = 1 << 22  # values in memory at a time
_SENTENCES_AT_ONCE = 1 << 16
_COMPARED = 1 << 22  # hashes in memory; of more hashes, only a sample is compared
_NUM_REPEATED = 10


def blocks_of(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the values of an array that may be larger than memory, block by block."""
    for first in range(0, len(array), _AT_ONCE):
        yield np.asarray(array[first : first + _AT_ONCE])


def count_ids(tokens: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the count of each id of the vocabulary, int64 `(V,)`."""
    counts = np.zeros(vocab_size, np.int64)
    for ids in blocks_of(tokens):
        counts += np.bincount(ids, minlength=vocab_size)
    return counts


def sentence_lengths(store: TokenStore) -> np.ndarray:
    """Return how many sentences have each number of tokens."""
    counts = np.zeros(0, np.int64)
    for first in range(0, store.num_sentences, _AT_ONCE):
        lengths = np.diff(store.sentence_offsets[first : first + _AT_ONCE + 1])
        found = np.bincount(lengths, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return counts


def quantiles(counts: np.ndarray) -> tuple[int, int, int]:
    """Return the median, the 90th percentile and the maximum of the lengths that are counted."""
    total = np.cumsum(counts)
    median, ninetieth = np.searchsorted(total, np.multiply((0.5, 0.9), total[-1])).tolist()
    return median, ninetieth, len(counts) - 1


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
    values = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def mask_sample(
    store: TokenStore,
    examples: Examples,
    options: ExampleOptions,
    *,
    vocab: Vocab,
    masking: Masking,
) -> tuple[int, dict[str, int], tuple[str, ...]]:
    """Mask half a million tokens of random examples, and convert some examples to text.

    Returns:
        The number of these tokens; how many are `"masked"`, `"replaced"` and `"kept"`; and
        ten examples, with the original in parentheses after each of these tokens.
    """
    random = np.random.default_rng((options.seed, 1))
    num_rows = max(_NUM_SHOWN, _NUM_TOKENS // options.max_len)
    order = random.permutation(len(examples))[:num_rows]
    stored = np.asarray(store.tokens)
    num_tokens, counts = 0, dict.fromkeys(_PREDICTED, 0)
    shown: list[str] = []
    for first in range(0, len(order), _ROWS_AT_ONCE):
        rows = order[first : first + _ROWS_AT_ONCE]
        splits = np.arange(len(rows) + 1)
        layout = lay_out(stored, examples, rows, splits, vocab=vocab, max_len=options.max_len)
        keys = random.integers(1 << 63, size=len(rows))
        seen, is_predicted = _mask(layout, keys, vocab, masking)
        num_tokens += int(layout.valid_lens.sum())
        after, before = seen[is_predicted], layout.tokens[is_predicted]
        kinds = np.select([after == before, after == vocab.mask_id], ["kept", "masked"], "replaced")
        for kind in _PREDICTED:
            counts[kind] += int(np.sum(kinds == kind))
        for row in range(min(len(rows), _NUM_SHOWN - len(shown))):
            label = LABELS[options.objective][layout.labels[row, 0]]
            words = [f"{label}:"] if label else []
            for n in range(layout.valid_lens[row]):
                token = layout.tokens[row, n]
                word = vocab.as_text(seen[row, n])
                word += f"({vocab.as_text(token)})" if is_predicted[row, n] else ""
                words.append(word if vocab.continues[token] or not words else f" {word}")
            shown.append("".join(words))
    return num_tokens, counts, tuple(shown)


def _mask(
    layout: Layout, keys: np.ndarray, vocab: Vocab, masking: Masking
) -> tuple[np.ndarray, np.ndarray]:
    """Return the corrupted tokens, and whether each token is predicted, both `(R, T)`."""
    num_predictions = masking.num_predictions(layout.tokens.shape[1])
    masked = mask_tokens(
        layout.tokens,
        layout.valid_lens,
        keys,
        vocab=vocab,
        masking=masking,
        num_predictions=num_predictions,
    )
    seen, positions, _, weights = (tensor.numpy() for tensor in masked)
    row, slot = np.nonzero(weights)
    is_predicted = np.zeros(seen.shape, bool)
    is_predicted[row, positions[row, slot]] = True
    return seen, is_predicted
