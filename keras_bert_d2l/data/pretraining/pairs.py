"""Examples for pretraining: a token store in, ranges of its tokens out.

A text of an example is a range, `store.tokens[start:end]`. Nothing is copied: sentences of a
document lie end to end in the store, and truncation only moves the ends of a range.

`make_pairs` makes examples of two texts A and B, five numbers each: `a_start a_end b_start b_end
label`. `make_texts` makes examples without a label, of one text or, across documents, of several.
"""

import array
import bisect
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from keras_bert_d2l.data.store.token_store import TokenStore

OBJECTIVES = ("nsp", "sop", "none")
NUM_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
MIN_LEN = NUM_SPECIALS + 2
_SHORTEST = 2  # tokens that a short example aims at
_STREAM = 0  # of random numbers, among those of one (seed, epoch)
_BLOCK = 1 << 14  # chunks completed at a time, so that memory is hardly more than the result's


@dataclasses.dataclass(frozen=True)
class Examples:
    """What the rows of an epoch are made of.

    Attributes:
        texts: int64 `(number of texts, 2)`, start and end in `TokenStore.tokens`.
        splits: int64 `(N + 1,)`: example n is `texts[splits[n] : splits[n + 1]]`.
        labels: int64 `(N,)`, 1 where B follows A; 0 everywhere where there is nothing to tell.
    """

    texts: np.ndarray
    splits: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def lengths(self) -> np.ndarray:
        """Tokens of each example in a row, `[CLS]` and the `[SEP]` after each text included."""
        stops = np.concatenate([[0], np.cumsum(self.texts[:, 1] - self.texts[:, 0] + 1)])
        return stops[self.splits[1:]] - stops[self.splits[:-1]] + 1


def make_examples(
    store: TokenStore,
    *,
    objective: str,
    max_len: int,
    seed: int,
    epoch: int,
    documents: np.ndarray | None = None,
    short_seq_prob: float = 0.0,
    cross_documents: bool = False,
) -> Examples:
    """The examples of `make_pairs` or, for the objective `"none"`, of `make_texts`."""
    if documents is None:
        documents = np.arange(store.num_documents)
    settings: dict[str, Any] = {
        "max_len": max_len,
        "seed": seed,
        "epoch": epoch,
        "documents": documents,
        "short_seq_prob": short_seq_prob,
    }
    if objective == "none":
        return make_texts(store, cross_documents=cross_documents, **settings)
    pairs = make_pairs(store, objective=objective, **settings)
    splits = np.arange(0, 2 * len(pairs) + 1, 2)
    return Examples(pairs[:, :4].reshape(-1, 2), splits, pairs[:, 4])


def make_pairs(
    store: TokenStore,
    *,
    max_len: int,
    seed: int,
    epoch: int,
    objective: str = "nsp",
    documents: np.ndarray | None = None,
    short_seq_prob: float = 0.0,
) -> np.ndarray:
    """Cuts documents into pairs of texts.

    Sentences of a document are gathered into a chunk until they fill `max_len`. The chunk is split
    between two sentences at random: the first part is A, the second is what follows. A pair that is
    too long loses tokens of its longer text, each from the front or the back as a coin falls.

    `"nsp"`, next-sentence prediction: half of the time B is what follows (label 1); otherwise B is
    taken from another document, from a random sentence on, with as many whole sentences as fill the
    row, and the sentences that are left of the chunk go back to be used again (label 0). Two things
    differ from google's BERT. B never comes from the same document: there it can, after ten draws.
    And half of all pairs are true ones also where there are chunks of one sentence, which cannot be
    split, so that their B is always another's: here they draw like the others, and their "next"
    passes on to the next chunk that can be split and has drawn "other". (Where most chunks have one
    sentence, fewer than half are true.) (github.com/google-research/bert,
    create_pretraining_data.py.)

    `"sop"`, sentence-order prediction: half of the time the two parts change places; the label is 1
    where they are in order. Chunks have two sentences at least: a last sentence that is alone is
    paired with the one before it, and a document of one sentence makes no pair. (Lan et al. 2019,
    ALBERT, section 3.1; google-research/albert fills such a chunk with another document's text.)

    Args:
        store: The tokenised corpus.
        max_len: Longest row, `[CLS]` and both `[SEP]` included.
        seed: Together with `epoch` determines the pairs.
        epoch: Each epoch has pairs of its own.
        objective: `"nsp"` or `"sop"`.
        documents: int `(n,)`, the documents to use. None: all.
        short_seq_prob: Share of chunks that are gathered to a random length from 2 tokens to what
            `max_len` has room for, so that the model sees short rows too. (google draws once for
            each document.)

    Returns: int64 `(number of pairs, 5)`, in the order of the documents. A and B hold at least one
        token each and at most `max_len - 3` together.

    Raises:
        ValueError: A `max_len` that is too small; or, for `"nsp"`, fewer than two documents, so
            that there is no other document to draw from.
    """
    _check_max_len(max_len, MIN_LEN)
    if documents is None:
        documents = np.arange(store.num_documents)
    if objective == "nsp" and len(documents) < 2:
        raise ValueError(
            "Next-sentence pairs need at least two documents, because the false ones come from "
            f"another document. Received: {len(documents)}. Separate the documents of the corpus "
            "by blank lines or put them in files of their own."
        )
    room = max_len - NUM_SPECIALS
    random = np.random.default_rng((seed, epoch, _STREAM))
    draw = _uniforms(random).__next__
    cut, complete = (_cut, _complete) if objective == "nsp" else (_cut_in_order, _put_in_order)
    pairs = array.array("q")
    for chunks in cut(store, documents, _targets(room, short_seq_prob, draw), draw):
        pairs.frombytes(complete(store, documents, chunks, room, random).tobytes())
    return np.frombuffer(pairs, np.int64).reshape(-1, 5)


def make_texts(
    store: TokenStore,
    *,
    max_len: int,
    seed: int,
    epoch: int,
    documents: np.ndarray | None = None,
    short_seq_prob: float = 0.0,
    cross_documents: bool = False,
) -> Examples:
    """Cuts documents into texts of full sentences, for masked tokens alone.

    An example holds as many successive sentences as fit; only a sentence longer than a row is cut.
    It ends with its document or, with `cross_documents`, goes on with the next one after a
    `[SEP]`; documents then come in a random order. (Liu et al. 2019, RoBERTa, section 4.2:
    DOC-SENTENCES and FULL-SENTENCES.)

    Args: as of `make_pairs`.

    Returns: examples of one text; with `cross_documents` of one text for each document.

    Raises:
        ValueError: A `max_len` that is too small.
    """
    _check_max_len(max_len, MIN_LEN - 2)
    if documents is None:
        documents = np.arange(store.num_documents)
    random = np.random.default_rng((seed, epoch, _STREAM))
    if cross_documents:
        documents = random.permutation(documents)
    target = _targets(max_len - 1, short_seq_prob, _uniforms(random).__next__)
    offsets, bounds = store.sentence_offsets.data, store.document_offsets.data
    texts, splits = array.array("q"), array.array("q", [0])
    room = target()  # every text with its [SEP]
    for document in documents:
        begin, stop = bounds[document], bounds[document + 1]
        start, end, sentence = offsets[begin], offsets[stop], begin
        while start < end:
            # Where the last sentence ends that fits; at `start` or before where none does.
            last = bisect.bisect_right(offsets, start + room - 1, sentence, stop + 1) - 1
            sentence = max(last, begin)
            text_end = offsets[sentence]
            if text_end <= start and len(texts) == 2 * splits[-1]:
                text_end = start + room - 1  # a sentence that is longer than a row
            if text_end > start:
                texts.extend((start, text_end))
                room -= text_end - start + 1
                start = text_end
            if start < end or not cross_documents:  # what follows needs a row of its own
                splits.append(len(texts) // 2)
                room = target()
    if len(texts) > 2 * splits[-1]:
        splits.append(len(texts) // 2)
    labels = np.zeros(len(splits) - 1, np.int64)
    return Examples(
        np.frombuffer(texts, np.int64).reshape(-1, 2), np.frombuffer(splits, np.int64), labels
    )


def _cut(
    store: TokenStore,
    documents: np.ndarray,
    target: Callable[[], int],
    draw: Callable[[], float],
) -> Iterator[np.ndarray]:
    """Cuts documents into chunks and these into A and B.

    Yields: int64 `(chunks, 5)`, a bounded number at a time: index in `documents`; first sentence of
        A; sentence after A; sentence after B, or -1 where B is to come from another document; and
        the tokens that the chunk aims at.
    """
    # Views that give Python's own integers: ten times as fast as NumPy's, one at a time.
    offsets, bounds = store.sentence_offsets.data, store.document_offsets.data
    chunks = array.array("q")
    owed = 0  # chunks of one sentence that have drawn "next"
    for owner, document in enumerate(documents):
        first, stop = bounds[document], bounds[document + 1]
        while first < stop:
            room = target()
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
            chunks.extend((owner, first, a_stop, end if is_next else -1, room))
            first = end if is_next else a_stop
            if len(chunks) == 5 * _BLOCK:
                yield np.frombuffer(chunks, np.int64).reshape(-1, 5)
                chunks = array.array("q")
    yield np.frombuffer(chunks, np.int64).reshape(-1, 5)


def _cut_in_order(
    store: TokenStore,
    documents: np.ndarray,
    target: Callable[[], int],
    draw: Callable[[], float],
) -> Iterator[np.ndarray]:
    """Cuts documents into chunks of at least two sentences and these into two parts.

    Yields: int64 `(chunks, 3)`, a bounded number at a time: first sentence; sentence after the
        first part; sentence after the second.
    """
    offsets, bounds = store.sentence_offsets.data, store.document_offsets.data
    chunks = array.array("q")
    for document in documents:
        begin, stop = bounds[document], bounds[document + 1]
        first = begin
        while first < stop and stop - begin > 1:
            first = min(first, stop - 2)
            end = bisect.bisect_left(offsets, offsets[first] + target(), first + 2, stop)
            chunks.extend((first, first + 1 + int(draw() * (end - first - 1)), end))
            first = end
            if len(chunks) == 3 * _BLOCK:
                yield np.frombuffer(chunks, np.int64).reshape(-1, 3)
                chunks = array.array("q")
    yield np.frombuffer(chunks, np.int64).reshape(-1, 3)


def _complete(
    store: TokenStore,
    documents: np.ndarray,
    chunks: np.ndarray,
    room: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Makes pairs of chunks: finds B where it is missing and truncates; int64 `(chunks, 5)`."""
    offsets = store.sentence_offsets
    owner, a_first, a_stop, b_stop, target = chunks.T
    is_next = b_stop >= 0
    b_first, b_stop = a_stop.copy(), b_stop.copy()
    other = ~is_next
    wanted = target[other] - (offsets[a_stop[other]] - offsets[a_first[other]])
    b_first[other], b_stop[other] = _elsewhere(store, documents, owner[other], wanted, random)
    starts = offsets[np.stack([a_first, b_first], axis=1)]
    ends = offsets[np.stack([a_stop, b_stop], axis=1)]
    return _pairs(starts, ends, is_next, room, random)


def _put_in_order(
    store: TokenStore,
    documents: np.ndarray,
    chunks: np.ndarray,
    room: int,
    random: np.random.Generator,
) -> np.ndarray:
    """Makes pairs of chunks: swaps half of them and truncates; int64 `(chunks, 5)`."""
    stops = store.sentence_offsets[chunks]
    in_order = random.random(len(chunks)) < 0.5
    columns = np.where(in_order[:, None], [0, 1], [1, 0])
    starts = np.take_along_axis(stops, columns, axis=1)
    ends = np.take_along_axis(stops, columns + 1, axis=1)
    # Only now: which text loses a token more must not tell the order.
    return _pairs(starts, ends, in_order, room, random)


def _pairs(
    starts: np.ndarray,
    ends: np.ndarray,
    labels: np.ndarray,
    room: int,
    random: np.random.Generator,
) -> np.ndarray:
    starts, ends = _truncate(starts, ends, room, random)
    return np.stack([starts[:, 0], ends[:, 0], starts[:, 1], ends[:, 1], labels], axis=1)


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


def _targets(room: int, short_seq_prob: float, draw: Callable[[], float]) -> Callable[[], int]:
    """A function that gives the tokens an example aims at: `room`, or now and then fewer."""
    if not short_seq_prob:
        return lambda: room

    def target() -> int:
        if draw() < short_seq_prob:
            return _SHORTEST + int(draw() * (room - _SHORTEST + 1))
        return room

    return target


def _check_max_len(max_len: int, least: int) -> None:
    if max_len < least:
        raise ValueError(
            f"`max_len` must be at least {least}: the special tokens and a token of each text. "
            f"Received: max_len={max_len}."
        )
