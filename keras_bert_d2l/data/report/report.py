"""What a model will see: a token store in, figures and examples out.

All is measured, on the store as it is and on examples made of it as for training. Memory does not
grow with the store.

R: rows, T: tokens in a row, P: predicted positions, V: vocabulary size.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from keras_bert_d2l.data.pretraining.masking import Masking, mask_tokens
from keras_bert_d2l.data.pretraining.packing import ROWS, lay_out, padding_share
from keras_bert_d2l.data.pretraining.pairs import OBJECTIVES, Examples, make_examples
from keras_bert_d2l.data.report.copies import Copies, find_copies, sentence_hashes
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab

_AT_ONCE = 1 << 22  # values in memory
_SAMPLED_TOKENS = 1 << 26  # of the store, for examples: of a larger one every n-th document
_MASKED_TOKENS = 1 << 19  # rate of masks to within a thousandth
_ROWS_AT_ONCE = 256
_BATCH_SIZE = 32  # of bucketed rows
_NUM_FREQUENT = 24
_NUM_BARS, _LONGEST_SENTENCE = 32, 64
_LABELS = {"nsp": ("not next", "next"), "sop": ("swapped", "in order"), "none": ("", "")}


@dataclasses.dataclass(frozen=True)
class Word:
    """A token of an example, as text.

    Attributes:
        seen: What the model sees, without `##`.
        original: What it was before masking.
        kind: `"text"`, `"special"`; or of the predicted ones `"masked"`, `"replaced"`, `"kept"`.
        starts_word: Whether there is a space before it.
        segment: 0 or 1.
    """

    seen: str
    original: str
    kind: str
    starts_word: bool
    segment: int


@dataclasses.dataclass(frozen=True)
class Example:
    """A row without its padding.

    Attributes:
        words: Its tokens.
        label: What the second head is to find out, in words, or nothing.
    """

    words: tuple[Word, ...]
    label: str


@dataclasses.dataclass(frozen=True)
class Histogram:
    """How many things have which length.

    Attributes:
        width: Lengths in a bar: bar n counts lengths from `n * width` on.
        counts: Things in each bar; the last one holds those that are longer, too.
    """

    width: int
    counts: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Group:
    """Figures that belong together: a title, and names with values in words."""

    title: str
    figures: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class DataReport:
    """What `data_report` found.

    Attributes:
        source: The folder of the store.
        max_len: T.
        masking: The masking.
        objective: `"nsp"`, `"sop"` or `"none"`.
        num_documents: Documents in the store.
        num_sentences: Sentences in the store.
        num_tokens: Tokens in the store, special ones not included.
        vocab_size: V.
        num_unused: Tokens of the vocabulary that the text does not have.
        unknown_rate: Share of the tokens that stand for an unknown word.
        most_frequent: The most frequent tokens and their counts.
        documents: Copies of documents.
        lines: Copies of sentences.
        repeated_lines: The most repeated sentences, and how often each occurs.
        sentence_lengths: Tokens of the sentences.
        example_lengths: Tokens of the examples, special ones included.
        num_examples: Examples that were made, one pass over the documents.
        mean_length: Mean number of tokens of an example.
        positive_share: Share of examples with the label 1; None for the objective `"none"`.
        padding: Share of padding for `"padded"`, `"packed"` and `"bucketed"` rows.
        num_measured: Tokens on which masks were measured.
        mask_rate: Share of them that is predicted.
        replaced: Of the predicted ones the shares of `"masked"`, `"replaced"` and `"kept"`.
        examples: A sample.
    """

    source: str
    max_len: int
    masking: Masking
    objective: str
    num_documents: int
    num_sentences: int
    num_tokens: int
    vocab_size: int
    num_unused: int
    unknown_rate: float
    most_frequent: tuple[tuple[str, int], ...]
    documents: Copies
    lines: Copies
    repeated_lines: tuple[tuple[str, int], ...]
    sentence_lengths: Histogram
    example_lengths: Histogram
    num_examples: int
    mean_length: float
    positive_share: float | None
    padding: dict[str, float]
    num_measured: int
    mask_rate: float
    replaced: dict[str, float]
    examples: tuple[Example, ...]

    def groups(self) -> tuple[Group, ...]:
        """The figures in words."""
        text = (
            ("documents", f"{self.num_documents:,}"),
            ("sentences", f"{self.num_sentences:,}"),
            ("tokens", f"{self.num_tokens:,}"),
            ("tokens in a sentence", f"{self.num_tokens / self.num_sentences:.1f}"),
            ("copied documents", _of_sample(self.documents)),
            ("copied sentences", _of_sample(self.lines)),
        )
        vocabulary = (
            ("tokens", f"{self.vocab_size:,}"),
            ("never used", f"{self.num_unused:,}, {self.num_unused / self.vocab_size:.1%}"),
            ("unknown in the text", f"{self.unknown_rate:.3%}"),
        )
        examples = [
            ("number", f"{self.num_examples:,}"),
            ("tokens on average", f"{self.mean_length:.1f}"),
            ("tokens at most", f"{self.max_len}"),
        ]
        if self.positive_share is not None:
            name = _LABELS[self.objective][1]
            examples.append((f"labelled {name!r}", f"{self.positive_share:.2%}"))
        padding = tuple((f"{rows} rows", f"{share:.2%}") for rows, share in self.padding.items())
        masks = (
            ("strategy", f"{self.masking.strategy}, {self.masking.rate:.0%} wanted"),
            ("predicted", f"{self.mask_rate:.2%} of {self.num_measured:,} tokens"),
            ("of these masked", f"{self.replaced['masked']:.2%}"),
            ("replaced by another", f"{self.replaced['replaced']:.2%}"),
            ("left as they are", f"{self.replaced['kept']:.2%}"),
        )
        return (
            Group("Text", text),
            Group("Vocabulary", vocabulary),
            Group("Examples", tuple(examples)),
            Group("Padding", padding),
            Group("Masks", masks),
        )


def data_report(
    store: TokenStore,
    tokenizer: Tokenizer,
    *,
    max_len: int = 128,
    masking: str | Masking = "token",
    objective: str = "nsp",
    short_seq_prob: float = 0.0,
    seed: int = 0,
    num_shown: int = 20,
) -> DataReport:
    """Measures what a model will see of a text.

    Counts are of the whole store. Examples are those of an epoch, of every n-th document where the
    store is large; masks are measured on half a million tokens of them.

    Args:
        store: The tokenised text.
        tokenizer: The one it was made with, `store.tokenizer()`.
        max_len: Length of a row, T.
        masking: A strategy or a `Masking`, as of `pretraining_dataset`.
        objective: `"nsp"`, `"sop"` or `"none"`.
        short_seq_prob: Share of the examples that are made shorter.
        seed: Determines examples and masks.
        num_shown: Examples in the sample.

    Returns: a `DataReport`.

    Raises:
        ValueError: An argument is out of its range, the text makes no example, or the store was
            made with another tokenizer.
    """
    store.check_tokenizer(tokenizer)
    masking = Masking(masking) if isinstance(masking, str) else masking
    if objective not in OBJECTIVES:
        raise ValueError(f"`objective` must be one of {OBJECTIVES}. Received: {objective!r}.")
    if not 0 <= short_seq_prob <= 1 or seed < 0:
        raise ValueError(
            "`short_seq_prob` must be in [0, 1] and `seed` not negative. Received: "
            f"short_seq_prob={short_seq_prob}, seed={seed}."
        )
    vocab = tokenizer.vocab
    counts = np.zeros(len(vocab), np.int64)
    for ids in _blocks(store.tokens):
        counts += np.bincount(ids, minlength=len(vocab))
    most_frequent = np.argsort(-counts, kind="stable")[:_NUM_FREQUENT]
    lines = find_copies(sentence_hashes(store), store.num_sentences)
    sampled = np.arange(0, store.num_documents, -(-store.num_tokens // _SAMPLED_TOKENS))
    examples = make_examples(
        store,
        objective=objective,
        max_len=max_len,
        seed=seed,
        epoch=0,
        documents=sampled,
        short_seq_prob=short_seq_prob,
    )
    if not len(examples):
        raise ValueError(f"The text makes no example of two sentences: {store.description}.")
    lengths = examples.lengths()
    masks = _Masks(store, vocab, masking, max_len, objective)
    masks.measure(examples, np.random.default_rng((seed, 1)), num_shown)
    return DataReport(
        source=str(store.directory),
        max_len=max_len,
        masking=masking,
        objective=objective,
        num_documents=store.num_documents,
        num_sentences=store.num_sentences,
        num_tokens=store.num_tokens,
        vocab_size=len(vocab),
        num_unused=int(np.sum(np.delete(counts, vocab.special_ids) == 0)),
        unknown_rate=float(counts[vocab.unk_id] / store.num_tokens),
        most_frequent=tuple((vocab.tokens[n], int(counts[n])) for n in most_frequent if counts[n]),
        documents=find_copies(_blocks(store.document_hashes), store.num_documents),
        lines=lines,
        repeated_lines=_texts(store, tokenizer, lines.most_repeated),
        sentence_lengths=_sentence_lengths(store),
        example_lengths=_histogram([lengths], -(-(max_len + 1) // _NUM_BARS), max_len),
        num_examples=len(examples),
        mean_length=float(lengths.mean()),
        positive_share=None if objective == "none" else float(examples.labels.mean()),
        padding={rows: _padding(lengths, rows, max_len, seed) for rows in ROWS},
        num_measured=masks.num_tokens,
        mask_rate=masks.num_predicted / masks.num_tokens,
        replaced={k: n / max(masks.num_predicted, 1) for k, n in masks.by_kind.items()},
        examples=tuple(masks.examples),
    )


class _Masks:
    """Masks rows as the pipeline of training does, counts, and keeps the first as text."""

    def __init__(
        self, store: TokenStore, vocab: Vocab, masking: Masking, max_len: int, objective: str
    ) -> None:
        self._stored = np.asarray(store.tokens)
        self._vocab = vocab
        self._masking = masking
        self._max_len = max_len
        self._objective = objective
        self.num_tokens = self.num_predicted = 0
        self.by_kind = dict.fromkeys(("masked", "replaced", "kept"), 0)
        self.examples: list[Example] = []

    def measure(self, examples: Examples, random: np.random.Generator, num_shown: int) -> None:
        order = random.permutation(len(examples))[: max(num_shown, _MASKED_TOKENS // self._max_len)]
        for first in range(0, len(order), _ROWS_AT_ONCE):
            rows = order[first : first + _ROWS_AT_ONCE]
            self._measure(examples, rows, random.integers(1 << 63, size=len(rows)), num_shown)

    def _measure(
        self, examples: Examples, order: np.ndarray, keys: np.ndarray, num_shown: int
    ) -> None:
        vocab = self._vocab
        layout = lay_out(
            self._stored,
            examples,
            order,
            np.arange(len(order) + 1),
            vocab=vocab,
            max_len=self._max_len,
            max_examples=1,
            segments=self._objective != "none",
            packed=False,
        )
        corrupted, positions, _, weights = (
            tensor.numpy()
            for tensor in mask_tokens(
                layout.tokens,
                layout.valid_lens,
                keys,
                vocab=vocab,
                masking=self._masking,
                num_predictions=self._masking.num_predictions(self._max_len),
            )
        )
        is_predicted = np.zeros(corrupted.shape, bool)
        row, slot = np.nonzero(weights)
        is_predicted[row, positions[row, slot]] = True
        kinds = np.where(corrupted == vocab.mask_id, "masked", "replaced")
        kinds = np.where(corrupted == layout.tokens, "kept", kinds)
        self.num_tokens += int(layout.valid_lens.sum())
        self.num_predicted += int(is_predicted.sum())
        for kind in self.by_kind:
            self.by_kind[kind] += int(np.sum(kinds[is_predicted] == kind))
        is_special = np.isin(layout.tokens, [vocab.cls_id, vocab.sep_id])
        kinds = np.where(is_predicted, kinds, np.where(is_special, "special", "text"))
        for n in range(min(len(order), num_shown - len(self.examples))):
            shown = slice(layout.valid_lens[n])
            words = map(
                self._word,
                corrupted[n, shown].tolist(),
                layout.tokens[n, shown].tolist(),
                kinds[n, shown].tolist(),
                layout.segments[n, shown].tolist(),
            )
            label = _LABELS[self._objective][layout.labels[n, 0]]
            self.examples.append(Example(tuple(words), label))

    def _word(self, seen: int, original: int, kind: str, segment: int) -> Word:
        before, after = self._vocab.tokens[original], self._vocab.tokens[seen]
        starts = not before.startswith("##") or before == "##"
        return Word(_plain(after), _plain(before), kind, starts, segment)


def _plain(token: str) -> str:
    return token.removeprefix("##") or token


def _of_sample(copies: Copies) -> str:
    of = f", estimated from 1 of {copies.sampled}" if copies.sampled > 1 else ""
    return f"{copies.share:.2%}{of}"


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    for first in range(0, len(array), _AT_ONCE):
        yield np.asarray(array[first : first + _AT_ONCE])


def _texts(
    store: TokenStore, tokenizer: Tokenizer, places: Iterable[tuple[int, int]]
) -> tuple[tuple[str, int], ...]:
    return tuple(
        (tokenizer.detokenize(store.sentence(place).astype(np.int32)).numpy()[0].decode(), times)
        for place, times in places
    )


def _sentence_lengths(store: TokenStore) -> Histogram:
    offsets = store.sentence_offsets
    lengths = (
        np.diff(offsets[first : first + _AT_ONCE + 1])
        for first in range(0, store.num_sentences, _AT_ONCE)
    )
    return _histogram(lengths, _LONGEST_SENTENCE // _NUM_BARS, _LONGEST_SENTENCE)


def _histogram(lengths: Iterable[np.ndarray], width: int, longest: int) -> Histogram:
    last = longest // width
    counts = sum(
        np.bincount(np.minimum(some // width, last), minlength=last + 1) for some in lengths
    )
    return Histogram(width, tuple(np.asarray(counts).tolist()))


def _padding(lengths: np.ndarray, rows: str, max_len: int, seed: int) -> float:
    options: dict[str, Any] = {"rows": rows, "max_len": max_len, "seed": seed}
    return float(padding_share(lengths, batch_size=min(_BATCH_SIZE, len(lengths)), **options))
