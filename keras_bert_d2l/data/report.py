"""`data_report`: statistics of a text and of the pretraining examples made from it.

All numbers are measured on the complete store, or on examples made from it as in training. Memory
use does not grow with the store.

T: tokens in a row, V: vocabulary size.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.data.pretraining.dataset import excluding_own_tokens
from keras_bert_d2l.data.pretraining.masking import Masking, Strategy, mask_tokens
from keras_bert_d2l.data.pretraining.packing import ROWS, lay_out, padding_share
from keras_bert_d2l.data.pretraining.pairs import (
    ExampleOptions,
    Examples,
    Objective,
    make_examples,
)
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

_LABELS = {"nsp": ("not next", "next"), "sop": ("swapped", "in order"), "none": ("", "")}
_SAMPLED_TOKENS = 1 << 26  # in a larger store, only every n-th document is used for examples
_AT_ONCE = 1 << 22  # values in memory at a time
_BATCH_SIZE = 32  # for bucketed rows
_NUM_SHOWN = 10  # examples


@dataclasses.dataclass(frozen=True, repr=False)
class DataReport:
    r"""The measurements of `data_report`.

    `groups()` returns them as text; the command `keras-bert-d2l report` prints them.

    Attributes:
        store: The token store, with its counts.
        max_len: T.
        objective: `"nsp"`, `"sop"` or `"none"`.
        num_unused: Number of tokens in the vocabulary that never occur in the text.
        unknown_rate: Share of unknown-word tokens.
        duplicates: Share of documents that are copies of an earlier one. For more than four
            million documents, it is estimated from a part of them.
        sentence_lengths: Tokens per sentence: median, 90th percentile and maximum.
        example_lengths: The same for the tokens per example, with special tokens.
        num_examples: Number of examples in one pass over the documents. For a large store, it is
            estimated from a part of them.
        mean_length: Mean number of tokens per example.
        positive_share: Share of examples with label 1; None for `objective="none"`.
        padding: Share of padding for `"padded"`, `"packed"` and `"bucketed"` rows.
        examples: Ten masked examples as text, with the original of each predicted token in
            parentheses.

    Example:
        >>> import keras_bert_d2l as kb
        >>> with open("pets.txt", "w") as file:
        ...     print("The cat sat.", "It slept.", "", "A dog ran.", sep="\n", file=file)
        >>> corpus = kb.Corpus.open("pets.txt", layout="lines")
        >>> tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=50))
        >>> store = kb.build_store(corpus, tokenizer, "stores/pets")
        >>> report = kb.data_report(store, tokenizer, max_len=16)
        >>> list(report.groups())
        ['Text', 'Vocabulary', 'Examples', 'Padding']
    """

    store: TokenStore
    max_len: int
    objective: str
    num_unused: int
    unknown_rate: float
    duplicates: float
    sentence_lengths: tuple[int, int, int]
    example_lengths: tuple[int, int, int]
    num_examples: int
    mean_length: float
    positive_share: float | None
    padding: dict[str, float]
    examples: tuple[str, ...]

    def __repr__(self) -> str:
        lines = (
            f"  {title}: " + ", ".join(map(" ".join, figures))
            for title, figures in self.groups().items()
        )
        return "\n".join([f"DataReport of {str(self.store.directory)!r}", *lines])

    def groups(self) -> dict[str, list[tuple[str, str]]]:
        """Return the measurements as text: by the title of a group, their names and values."""
        store, vocab_size = self.store, self.store.vocab_size
        examples = [
            ("number", f"{self.num_examples:,}"),
            ("mean tokens", f"{self.mean_length:.1f}"),
            _quantiles(self.example_lengths),
            ("allowed tokens", f"{self.max_len}"),
        ]
        if self.positive_share is not None:
            name = _LABELS[self.objective][1]
            examples.append((f"labeled {name!r}", f"{self.positive_share:.2%}"))
        return {
            "Text": [
                ("documents", f"{store.num_documents:,}"),
                ("sentences", f"{store.num_sentences:,}"),
                ("tokens", f"{store.num_tokens:,}"),
                ("mean tokens per sentence", f"{store.num_tokens / store.num_sentences:.1f}"),
                _quantiles(self.sentence_lengths),
                ("duplicate documents", f"{self.duplicates:.2%}"),
            ],
            "Vocabulary": [
                ("tokens", f"{vocab_size:,}"),
                ("never used", f"{self.num_unused:,}, {self.num_unused / vocab_size:.1%}"),
                ("unknown in the text", f"{self.unknown_rate:.3%}"),
            ],
            "Examples": examples,
            "Padding": [(f"{rows} rows", f"{share:.2%}") for rows, share in self.padding.items()],
        }


def data_report(
    store: TokenStore,
    tokenizer: Tokenizer,
    *,
    max_len: int = 128,
    masking: Strategy | Masking = "token",
    objective: Objective = "nsp",
    short_seq_prob: float = 0.0,
    seed: int = 0,
) -> DataReport:
    r"""Measure a text and the pretraining examples made from it.

    Tokens, sentences and documents are counted in the complete store. Examples are those of one
    epoch; for a large store, they are made from every n-th document.

    Args:
        store: The tokenized text.
        tokenizer: The tokenizer the store was built with, `store.tokenizer()`.
        max_len: Tokens per row, T.
        masking: A strategy or a `Masking`, as for `pretraining_dataset`.
        objective: `"nsp"`, `"sop"` or `"none"`, as for `pretraining_dataset`.
        short_seq_prob: Share of examples that are shortened.
        seed: Random seed of the examples and masks.

    Returns:
        A `DataReport`.

    Raises:
        ValueError: An argument is out of range, the text yields no examples, or the store was built
            with a different tokenizer.

    Example:
        >>> import keras_bert_d2l as kb
        >>> with open("pets.txt", "w") as file:
        ...     print("The cat sat.", "It slept.", "", "A dog ran.", sep="\n", file=file)
        >>> corpus = kb.Corpus.open("pets.txt", layout="lines")
        >>> tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=50))
        >>> store = kb.build_store(corpus, tokenizer, "stores/pets")
        >>> report = kb.data_report(store, tokenizer, max_len=16, masking="whole_word")
        >>> report.num_examples, report.max_len
        (3, 16)
    """
    check_type("store", store, TokenStore, "Open a folder with `TokenStore.open`.")
    store.check_tokenizer(tokenizer)
    masking = excluding_own_tokens(Masking.of(masking), tokenizer)
    every = -(-store.num_tokens // _SAMPLED_TOKENS)
    options = ExampleOptions(
        max_len=max_len,
        objective=objective,
        seed=seed,
        documents=np.arange(0, store.num_documents, every),
        short_seq_prob=short_seq_prob,
        num_separators=tokenizer.vocab.num_separators,
    )
    examples = make_examples(store, options, epoch=0)
    if not len(examples):
        raise ValueError(f"The text yields no example of two sentences: {store.description}.")
    vocab, lengths = tokenizer.vocab, examples.lengths()
    settings = {"max_len": max_len, "batch_size": min(_BATCH_SIZE, len(lengths)), "seed": seed}
    counts = np.zeros(len(vocab), np.int64)
    for ids in _blocks(store.tokens):
        counts += np.bincount(ids, minlength=len(vocab))
    return DataReport(
        store=store,
        max_len=max_len,
        objective=objective,
        num_unused=int(np.sum(np.delete(counts, vocab.special_ids) == 0)),
        unknown_rate=float(counts[vocab.unk_id] / store.num_tokens),
        duplicates=_share_of_copies(store.document_hashes),
        sentence_lengths=_length_quantiles(_count_sentence_lengths(store)),
        example_lengths=_length_quantiles(np.bincount(lengths)),
        num_examples=len(examples) * every,
        mean_length=float(lengths.mean()),
        positive_share=float(examples.labels.mean()) if examples.are_pairs else None,
        padding={rows: padding_share(lengths, rows=rows, **settings) for rows in ROWS},
        examples=tuple(_masked_examples(store, examples, options, vocab=vocab, masking=masking)),
    )


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the values of an array that may be larger than memory, block by block."""
    for first in range(0, len(array), _AT_ONCE):
        yield np.asarray(array[first : first + _AT_ONCE])


def _share_of_copies(hashes: np.ndarray) -> float:
    """Return the share of hashes that are equal to an earlier one.

    Of very many hashes, only those with one remainder are compared: all copies of one, or none.
    """
    number = np.uint64(-(-len(hashes) // _AT_ONCE))
    compared = np.concatenate([block[block % number == 0] for block in _blocks(hashes)])
    return 1 - len(np.unique(compared)) / max(len(compared), 1)


def _count_sentence_lengths(store: TokenStore) -> np.ndarray:
    """Return how many sentences have each number of tokens."""
    counts = np.zeros(0, np.int64)
    for first in range(0, store.num_sentences, _AT_ONCE):
        lengths = np.diff(store.sentence_offsets[first : first + _AT_ONCE + 1])
        found = np.bincount(lengths, minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
    return counts


def _length_quantiles(counts: np.ndarray) -> tuple[int, int, int]:
    """Return the median, the 90th percentile and the maximum of the lengths that are counted."""
    total = np.cumsum(counts)
    median, ninetieth = np.searchsorted(total, np.multiply((0.5, 0.9), total[-1])).tolist()
    return median, ninetieth, len(counts) - 1


def _masked_examples(
    store: TokenStore,
    examples: Examples,
    options: ExampleOptions,
    *,
    vocab: Vocab,
    masking: Masking,
) -> Iterator[str]:
    """Yield some random examples as text, each predicted token with its original."""
    random = np.random.default_rng((options.seed, 1))
    order = random.permutation(len(examples))[:_NUM_SHOWN]
    splits = np.arange(len(order) + 1)
    layout = lay_out(store.tokens, examples, order, splits, vocab=vocab, max_len=options.max_len)
    masked = mask_tokens(
        layout.tokens,
        layout.valid_lens,
        random.integers(1 << 63, size=len(order)),
        vocab=vocab,
        masking=masking,
        num_predictions=masking.num_predictions(options.max_len),
    )
    seen, positions, _, weights = (tensor.numpy() for tensor in masked)
    for row, length in enumerate(layout.valid_lens):
        predicted = positions[row, weights[row] > 0]
        label = _LABELS[options.objective][layout.labels[row, 0]]
        words = [f"{label}:"] if label else []
        for place, token in enumerate(layout.tokens[row, :length]):
            word = vocab.as_text(seen[row, place])
            word += f"({vocab.as_text(token)})" if place in predicted else ""
            words.append(word if vocab.continues[token] or not words else f" {word}")
        yield "".join(words)


def _quantiles(lengths: tuple[int, int, int]) -> tuple[str, str]:
    return "median, 90th percentile, maximum", ", ".join(f"{length:,}" for length in lengths)
