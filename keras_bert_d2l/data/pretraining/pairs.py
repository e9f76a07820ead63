"""Cut the documents of a token store into pretraining examples: pairs of texts, or single texts.

`split_documents` chooses the documents for training or evaluation.

Each text is a range, `store.tokens[start:end]`, so no tokens are copied. The sentences of a
document are contiguous in the store, and truncation only moves the ends of a range.
"""

import array
import bisect
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np

from keras_bert_d2l.checks import check_choice, check_integer, check_share
from keras_bert_d2l.data.store.token_store import TokenStore

Objective: TypeAlias = Literal["nsp", "sop", "none"]
OBJECTIVES = get_args(Objective)
NUM_SPECIALS = 3  # [CLS] A [SEP] B [SEP]
MIN_LEN = NUM_SPECIALS + 2
_SHORTEST = 2  # minimum target length of a short example, in tokens
_STREAM = 0  # random stream of a (seed, epoch); `epochs` uses streams 1 and 2
_BLOCK = 1 << 14  # chunks completed together; limits memory to little more than the result's


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExampleOptions:
    """Options for cutting documents into examples; see `pretraining_dataset`.

    Raises:
        ValueError: An option is out of range.
    """

    max_len: int
    objective: Objective = "nsp"
    seed: int = 0
    documents: np.ndarray | None = None  # int (n,), the documents to use; None: all
    short_seq_prob: float = 0.0
    num_separators: int = 1  # between the texts of a pair, as in the vocabulary

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, OBJECTIVES)
        least = self.num_added + 2 if self.are_pairs else MIN_LEN - 2
        reason = ": the special tokens and one token of each text"
        check_integer("max_len", self.max_len, least, reason)
        check_integer("seed", self.seed, 0)
        check_share("short_seq_prob", self.short_seq_prob, ends=True)

    @property
    def are_pairs(self) -> bool:
        """Whether an example has two texts."""
        return self.objective != "none"

    @property
    def num_added(self) -> int:
        """Number of special tokens in the row of a pair."""
        return NUM_SPECIALS + self.num_separators - 1


@dataclasses.dataclass(frozen=True)
class Examples:
    """The examples of an epoch.

    Attributes:
        texts: int64 `(N, 2, 2)` for pairs and `(N, 1, 2)` for single texts: the start and end of
            each text in `TokenStore.tokens`.
        labels: int64 `(N,)`, 1 if B follows A (`"nsp"`) or the texts are in order (`"sop"`); all 0
            for single texts.
        num_separators: Number of separators between the texts of a pair.
    """

    texts: np.ndarray
    labels: np.ndarray
    num_separators: int = 1

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def are_pairs(self) -> bool:
        """Whether an example is a pair of texts."""
        return self.texts.shape[1] == 2

    def lengths(self) -> np.ndarray:
        """Return the tokens per example, including `[CLS]` and the `[SEP]` after each text."""
        num_more = 1 + (self.num_separators - 1) * self.are_pairs
        return (self.texts[:, :, 1] - self.texts[:, :, 0] + 1).sum(axis=1) + num_more

    def with_empty(self) -> "Examples":
        """Return a copy with one more example, without text, to fill up the last batch with."""
        texts = np.concatenate([self.texts, np.zeros_like(self.texts[:1])])
        return Examples(texts, np.append(self.labels, 0), self.num_separators)


def make_examples(store: TokenStore, options: ExampleOptions, *, epoch: int) -> Examples:
    """Cut documents into the examples of an epoch.

    `"nsp"`, next-sentence prediction: sentences of a document are collected in a chunk until they
    fill a row. The chunk is split at a random sentence boundary, and the first part is A. In half
    of the pairs, B is the second part (label 1). Otherwise, B comes from a different document: it
    starts at a random sentence and continues in full sentences until the row is full (label 0). The
    second part of the chunk then starts the next chunk. There are two differences from Google's
    BERT:

    - B never comes from A's own document. In Google's code it can, after ten unsuccessful draws.
    - Half of the pairs are true even if many chunks have a single sentence. Such a chunk cannot be
      split, so its B always comes from a different document. Here it draws "next" or "other" like
      any chunk, and a "next" is passed on to the next chunk that can be split and has drawn
      "other". (If most chunks have one sentence, fewer than half of the pairs are true.)

    `"sop"`, sentence-order prediction: half of the chunks have their two parts swapped; the label
    is 1 if they are in order. A chunk has at least two sentences: a single last sentence is paired
    with the one before it, and a document of one sentence gives no pair. (google-research/albert
    fills such a chunk with text from a different document.)

    `"none"`, masked tokens only: an example contains as many consecutive sentences as fit, and only
    a sentence longer than a row is split. An example ends at the end of its document.

    A pair that is too long is truncated token by token: its longer text loses a token at a random
    end until the pair fits.

    Sources: github.com/google-research/bert, create_pretraining_data.py; Lan et al. 2019, ALBERT,
    section 3.1; Liu et al. 2019, RoBERTa, section 4.2 (DOC-SENTENCES).

    Args:
        store: The tokenized corpus.
        options: The options.
        epoch: Epoch number. The examples depend on the seed and the epoch.

    Returns:
        The examples in document order. Each text has at least one token, and each
        example fits into a row of `max_len` tokens.

    Raises:
        ValueError: There are fewer than two documents for `"nsp"`.
    """
    cutter = _Cutter(store, options, epoch)
    if not options.are_pairs:
        return cutter.single_texts()
    if options.objective == "nsp" and len(cutter.documents) < 2:
        raise ValueError(
            "Next-sentence pairs need at least two documents, because a false pair is made of "
            f"two. Received: {len(cutter.documents)}. Separate the documents of the corpus with "
            "blank lines, or put each document in its own file."
        )
    if options.objective == "nsp":
        chunks, to_pairs, width = cutter.split_chunks(), cutter.complete, 5
    else:
        chunks, to_pairs, width = cutter.halved_chunks(), cutter.swap_half, 3
    numbers = array.array("q")
    values = itertools.chain.from_iterable(chunks)
    while (block := np.fromiter(itertools.islice(values, _BLOCK * width), np.int64)).size:
        numbers.frombytes(to_pairs(block.reshape(-1, width)).tobytes())
    pairs = np.frombuffer(numbers, np.int64).reshape(-1, 5)
    return Examples(pairs[:, :4].reshape(-1, 2, 2), pairs[:, 4], options.num_separators)


class _Cutter:
    """Cuts the documents of one epoch. A chunk is a run of consecutive sentences of a document.

    For speed, loops over sentences read the offsets as memoryviews (`.data`), which return Python
    integers ten times as fast as NumPy indexing does, and draw random numbers in blocks.
    """

    def __init__(self, store: TokenStore, options: ExampleOptions, epoch: int) -> None:
        documents = options.documents
        self.documents = np.arange(store.num_documents) if documents is None else documents
        self._store = store
        self._offsets, self._bounds = store.sentence_offsets.data, store.document_offsets.data
        self._random = np.random.default_rng((options.seed, epoch, _STREAM))
        self._draw = _uniforms(self._random).__next__
        self._short_seq_prob = options.short_seq_prob
        # Tokens available for both texts of a pair, or for single texts including their [SEP].
        self._room = options.max_len - (options.num_added if options.are_pairs else 1)

    def _target(self) -> int:
        """Return the target length of the next example in tokens: the full room, or less."""
        if self._short_seq_prob and self._draw() < self._short_seq_prob:
            return _SHORTEST + int(self._draw() * (self._room - _SHORTEST + 1))
        return self._room

    def split_chunks(self) -> Iterator[tuple[int, ...]]:
        """Cut documents into chunks and split these into A and B, for next-sentence prediction.

        Yields:
            The index in `documents`; the first sentence of A; the sentence after A; the sentence
            after B, or -1 if B must come from a different document; the target length of the pair.
        """
        offsets, bounds, draw = self._offsets, self._bounds, self._draw
        owed = 0  # number of single-sentence chunks that have drawn "next"
        for owner, document in enumerate(self.documents):
            first, stop = bounds[document], bounds[document + 1]
            while first < stop:
                target = self._target()
                end = bisect.bisect_left(offsets, offsets[first] + target, first + 1, stop)
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
                yield owner, first, a_stop, end if is_next else -1, target
                first = end if is_next else a_stop

    def complete(self, chunks: np.ndarray) -> np.ndarray:
        """Convert split chunks to pairs: draw the missing texts B and truncate."""
        offsets = self._store.sentence_offsets
        owner, a_first, a_stop, b_stop, target = chunks.T
        is_next = b_stop >= 0
        b_first, b_stop = a_stop.copy(), b_stop.copy()
        other = ~is_next
        wanted = target[other] - (offsets[a_stop[other]] - offsets[a_first[other]])
        b_first[other], b_stop[other] = self._sentences_elsewhere(owner[other], wanted)
        starts = offsets[np.stack([a_first, b_first], axis=1)]
        ends = offsets[np.stack([a_stop, b_stop], axis=1)]
        return self._truncated(starts, ends, is_next)

    def _sentences_elsewhere(
        self, owner: np.ndarray, wanted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw sentences from documents other than `owner`, with about `wanted` tokens each.

        Returns:
            The first sentence and the sentence after the last: at least one, all of one document.
        """
        offsets, random = self._store.sentence_offsets, self._random
        other = random.integers(len(self.documents) - 1, size=len(owner))
        other += other >= owner  # every document but the owner is equally likely
        low, high = (self._store.document_offsets[self.documents[other] + end] for end in (0, 1))
        first = random.integers(low, high)
        filled = np.searchsorted(offsets, offsets[first] + wanted)
        return first, np.clip(filled, first + 1, high)

    def halved_chunks(self) -> Iterator[tuple[int, ...]]:
        """Cut documents into chunks of at least two sentences, for sentence-order prediction.

        Yields:
            The first sentence; the sentence after the first part; the one after the second part.
        """
        offsets, bounds = self._offsets, self._bounds
        for document in self.documents:
            begin, stop = bounds[document], bounds[document + 1]
            first = begin
            while first < stop and stop - begin > 1:
                first = min(first, stop - 2)
                end = bisect.bisect_left(offsets, offsets[first] + self._target(), first + 2, stop)
                yield first, first + 1 + int(self._draw() * (end - first - 1)), end
                first = end

    def swap_half(self, chunks: np.ndarray) -> np.ndarray:
        """Convert halved chunks to pairs: swap the parts of half of them and truncate."""
        stops = self._store.sentence_offsets[chunks]
        in_order = self._random.random(len(chunks)) < 0.5
        columns = np.where(in_order[:, None], [0, 1], [1, 0])
        starts = np.take_along_axis(stops, columns, axis=1)
        ends = np.take_along_axis(stops, columns + 1, axis=1)
        # Truncate after swapping: which text loses an odd token must not reveal the order.
        return self._truncated(starts, ends, in_order)

    def _truncated(self, starts: np.ndarray, ends: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return pairs, int64 `(pairs, 5)`: start and end of A, start and end of B, label."""
        starts, ends = truncate(starts, ends, self._room, self._random)
        return np.stack([starts[:, 0], ends[:, 0], starts[:, 1], ends[:, 1], labels], axis=1)

    def single_texts(self) -> Examples:
        """Cut documents into texts of full sentences, for masked language modeling only."""
        offsets, bounds = self._offsets, self._bounds
        ranges = array.array("q")
        for document in self.documents:
            begin, stop = bounds[document], bounds[document + 1]
            start, end, sentence = offsets[begin], offsets[stop], begin
            while start < end:
                most = start + self._target() - 1
                # The end of the last sentence that fits; at or before `start` if none does.
                last = bisect.bisect_right(offsets, most, sentence, stop + 1) - 1
                sentence = max(last, begin)
                text_end = offsets[sentence]
                if text_end <= start:
                    text_end = most  # split a sentence that is longer than a row
                ranges.extend((start, text_end))
                start = text_end
        texts = np.frombuffer(ranges, np.int64).reshape(-1, 1, 2)
        return Examples(texts, np.zeros(len(texts), np.int64))


def truncate(
    starts: np.ndarray, ends: np.ndarray, room: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shorten the ranges `(pairs, 2)` of A and B until each pair fits into `room` tokens.

    The lengths are those that remain after removing tokens one by one from the longer text (from B
    if both are equally long). Each token is removed from the front or the back with equal
    probability, so the number removed from the front is binomial.
    """
    a, b = (ends - starts).T
    kept_b = np.minimum(b, np.maximum(room - a, room // 2))
    kept_a = np.minimum(a, room - kept_b)
    kept = np.stack([kept_a, kept_b], axis=1)
    starts = starts + random.binomial(ends - starts - kept, 0.5)
    return starts, starts + kept


def _uniforms(random: np.random.Generator) -> Iterator[float]:
    """Yield numbers in [0, 1), drawn in blocks because single draws take twenty times as long."""
    blocks = (random.random(4096).tolist() for _ in itertools.count())
    return itertools.chain.from_iterable(blocks)


def split_documents(hashes: np.ndarray, split: str | None, held_out: float) -> np.ndarray:
    """Return the indices of the documents in one part of the split.

    Args:
        hashes: uint64 `(N,)`, `TokenStore.document_hashes`.
        split: `"train"`, `"held_out"`, or None for all.
        held_out: Share of documents to hold out, in (0, 1): those with the smallest hashes.

    Returns:
        Document indices in ascending order.

    Raises:
        ValueError: An argument is out of range, or a part would have fewer than two documents.
    """
    if split is None:
        return np.arange(len(hashes))
    check_choice("split", split, ("train", "held_out"))
    check_share("held_out", held_out)
    different = np.unique(hashes)
    if len(different) < 4:
        raise ValueError(
            "Holding out documents requires at least two different documents in each part, for "
            "every objective, because a false pair is made of two. Received: "
            f"{len(hashes):,} in total, {len(different):,} of them different. Separate "
            "documents with blank lines, put each in its own file, or add text."
        )
    count = max(2, round(held_out * len(hashes)))
    largest = np.clip(np.sort(hashes)[count - 1], different[1], different[-3])
    is_held_out = hashes <= largest  # identical documents stay together
    return np.flatnonzero(is_held_out == (split == "held_out"))
