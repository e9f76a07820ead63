"""Next-sentence pairs: a token store in, ranges of its tokens out.

A pair is five numbers, `a_start a_end b_start b_end is_next`: text A is
`store.tokens[a_start:a_end]`, text B is `store.tokens[b_start:b_end]`, and `is_next` is 1 where B
follows A in their document, 0 where B comes from another document. Nothing is copied: sentences of
a document lie end to end in the store, and truncation only moves the ends of a range.
"""

import array
import bisect
from collections.abc import Callable, Iterator

import numpy as np

from keras_bert_d2l.data.store import TokenStore

NUM_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
MIN_LEN = NUM_SPECIALS + 2
_STREAM = 0  # of random numbers, among those of one (seed, epoch)
_BLOCK = 1 << 14  # chunks completed at a time, so that memory is hardly more than the result's


def make_pairs(
    store: TokenStore,
    *,
    max_len: int,
    seed: int,
    epoch: int,
    documents: np.ndarray | None = None,
) -> np.ndarray:
    """Cuts documents into pairs of texts for next-sentence prediction, as google's BERT does.

    Sentences of a document are gathered into a chunk until they fill `max_len`. The chunk is split
    between two sentences at random: the first part is A. Half of the time B is the second part
    (`is_next` 1); otherwise B is taken from another document, from a random sentence on, with as
    many whole sentences as fill the row, and the sentences that are left of the chunk go back to be
    used again. A pair that is too long loses tokens of its longer text, each from the front or the
    back as a coin falls. (github.com/google-research/bert, create_pretraining_data.py.)

    Three things differ. All chunks aim at `max_len`: google makes a tenth of them shorter. B never
    comes from the same document: there it can, after ten draws. And half of all pairs are true ones
    also where there are chunks of one sentence, which cannot be split, so that their B is always
    another's: here they draw like the others, and their "next" passes on to the next chunk that can
    be split and has drawn "other". (Where most chunks have one sentence, fewer than half are true.)

    Args:
        store: The tokenised corpus.
        max_len: Longest row, `[CLS]` and both `[SEP]` included.
        seed: Together with `epoch` determines the pairs.
        epoch: Each epoch has pairs of its own.
        documents: int `(n,)`, the documents to use. None: all.

    Returns: int64 `(number of pairs, 5)`, in the order of the documents. A and B hold at least one
        token each and at most `max_len - 3` together.

    Raises:
        ValueError: Fewer than two documents, so that there is no other document to draw from; or a
            `max_len` that is too small.
    """
    if max_len < MIN_LEN:
        raise ValueError(
            f"`max_len` must be at least {MIN_LEN}: three special tokens and a token of each text. "
            f"Received: max_len={max_len}."
        )
    if documents is None:
        documents = np.arange(store.num_documents)
    if len(documents) < 2:
        raise ValueError(
            "Next-sentence pairs need at least two documents, because the false ones come from "
            f"another document. Received: {len(documents)}. Separate the documents of the corpus "
            "by blank lines or put them in files of their own."
        )
    room = max_len - NUM_SPECIALS
    random = np.random.default_rng((seed, epoch, _STREAM))
    pairs = array.array("q")
    for chunks in _cut(store, documents, room, _uniforms(random).__next__):
        pairs.frombytes(_complete(store, documents, chunks, room, random).tobytes())
    return np.frombuffer(pairs, np.int64).reshape(-1, 5)


def _cut(
    store: TokenStore, documents: np.ndarray, room: int, draw: Callable[[], float]
) -> Iterator[np.ndarray]:
    """Cuts documents into chunks and these into A and B.

    Yields: int64 `(chunks, 4)`, a bounded number at a time: index in `documents`; first sentence of
        A; sentence after A; sentence after B, or -1 where B is to come from another document.
    """
    # Views that give Python's own integers: ten times as fast as NumPy's, one at a time.
    offsets, bounds = store.sentence_offsets.data, store.document_offsets.data
    chunks = array.array("q")
    owed = 0  # chunks of one sentence that have drawn "next"
    for owner, document in enumerate(documents):
        first, stop = bounds[document], bounds[document + 1]
        while first < stop:
            end = bisect.bisect_left(offsets, offsets[first] + room, first + 1, stop)
            is_next = draw() < 0.5
            a_stop = first + 1
            if end - first == 1:
                owed += is_next
                is_next = False
            else:
                a_stop += int(draw() * (end - first - 1))
                if owed and not is_next:
                    owed -= 1
                    is_next = True
            chunks.extend((owner, first, a_stop, end if is_next else -1))
            first = end if is_next else a_stop
            if len(chunks) == 4 * _BLOCK:
                yield np.frombuffer(chunks, np.int64).reshape(-1, 4)
                chunks = array.array("q")
    yield np.frombuffer(chunks, np.int64).reshape(-1, 4)


def _complete(
    store: TokenStore,
    documents: np.ndarray,
    chunks: np.ndarray,
    room: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Makes pairs of chunks: finds B where it is missing and truncates; int64 `(chunks, 5)`."""
    offsets = store.sentence_offsets
    owner, a_first, a_stop, b_stop = chunks.T
    is_next = b_stop >= 0
    b_first, b_stop = a_stop.copy(), b_stop.copy()
    other = ~is_next
    wanted = room - (offsets[a_stop[other]] - offsets[a_first[other]])
    b_first[other], b_stop[other] = _elsewhere(store, documents, owner[other], wanted, random)
    starts = offsets[np.stack([a_first, b_first], axis=1)]
    ends = offsets[np.stack([a_stop, b_stop], axis=1)]
    starts, ends = _truncate(starts, ends, room, random)
    return np.stack([starts[:, 0], ends[:, 0], starts[:, 1], ends[:, 1], is_next], axis=1)


def _elsewhere(
    store: TokenStore,
    documents: np.ndarray,
    owner: np.ndarray,
    wanted: np.ndarray,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Sentences of documents other than `documents[owner]`, with about `wanted` tokens each.

    Returns: the first sentence and the one after the last; at least one, never past the document.
    """
    other = random.integers(len(documents) - 1, size=len(owner))
    other += other >= owner  # every document but the owner is equally likely
    low, high = (store.document_offsets[documents[other] + end] for end in (0, 1))
    first = random.integers(low, high)
    filled = np.searchsorted(store.sentence_offsets, store.sentence_offsets[first] + wanted)
    return first, np.clip(filled, first + 1, high)


def _truncate(
    starts: np.ndarray, ends: np.ndarray, room: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shortens ranges `(pairs, 2)` of A and B until both fit into `room` tokens.

    Taking one token after the other from the longer text (from B where they are equal) leaves the
    lengths computed here. As each token goes from the front or the back as a coin falls, the number
    taken from the front is binomial.
    """
    a, b = (ends - starts).T
    kept_b = np.minimum(b, np.maximum(room - a, room // 2))
    kept_a = np.minimum(a, room - kept_b)
    kept = np.stack([kept_a, kept_b], axis=1)
    starts = starts + random.binomial(ends - starts - kept, 0.5)
    return starts, starts + kept


def _uniforms(random: np.random.Generator) -> Iterator[float]:
    """Numbers in [0, 1), drawn in blocks: one at a time costs twenty times as much."""
    while True:
        yield from random.random(4096).tolist()
