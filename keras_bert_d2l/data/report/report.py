"""`data_report`: statistics of a text and of the pretraining examples made from it.

All numbers are measured on the complete store, or on examples made from it as in training. Memory
use does not grow with the store.

T: tokens in a row, V: vocabulary size.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.data.pretraining.dataset import excluding_own_tokens
from keras_bert_d2l.data.pretraining.masking import Masking, Strategy
from keras_bert_d2l.data.pretraining.packing import ROWS, padding_share
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, Objective, make_examples
from keras_bert_d2l.data.report import measures
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_SAMPLED_TOKENS = 1 << 26  # in a larger store, only every n-th document is used for examples
_BATCH_SIZE = 32  # for bucketed rows
_NUM_FREQUENT = 24


@dataclasses.dataclass(frozen=True, repr=False)
class DataReport:
    r"""The measurements of `data_report`.

    `groups()` returns them as text; the command `keras-bert-d2l report` prints them.

    Attributes:
        store: The token store, with its counts.
        max_len: T.
        masking: The masking options.
        objective: `"nsp"`, `"sop"` or `"none"`.
        num_unused: Number of tokens in the vocabulary that never occur in the text.
        unknown_rate: Share of unknown-word tokens.
        most_frequent: The most frequent tokens and their counts.
        documents: Duplicate documents.
        lines: Duplicate sentences.
        repeated_lines: The most repeated sentences and their counts.
        sentence_lengths: Tokens per sentence: median, 90th percentile and maximum.
        example_lengths: The same for the tokens per example, with special tokens.
        num_examples: Number of examples in one pass over the documents. For a large store, it is
            estimated from a part of them.
        mean_length: Mean number of tokens per example.
        positive_share: Share of examples with label 1; None for `objective="none"`.
        padding: Share of padding for `"padded"`, `"packed"` and `"bucketed"` rows.
        num_measured: Number of tokens on which the masks were measured.
        mask_rate: Share of these tokens that are predicted.
        replaced: Share of the predicted tokens that are `"masked"`, `"replaced"` and `"kept"`.
        examples: A sample of masked examples as text, with the original of each predicted token in
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
        ['Text', 'Vocabulary', 'Examples', 'Padding', 'Masks']
    """

    store: TokenStore
    max_len: int
    masking: Masking
    objective: str
    num_unused: int
    unknown_rate: float
    most_frequent: tuple[tuple[str, int], ...]
    documents: measures.Copies
    lines: measures.Copies
    repeated_lines: tuple[tuple[str, int], ...]
    sentence_lengths: tuple[int, int, int]
    example_lengths: tuple[int, int, int]
    num_examples: int
    mean_length: float
    positive_share: float | None
    padding: dict[str, float]
    num_measured: int
    mask_rate: float
    replaced: dict[str, float]
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
        text = [
            ("documents", f"{store.num_documents:,}"),
            ("sentences", f"{store.num_sentences:,}"),
            ("tokens", f"{store.num_tokens:,}"),
            ("mean tokens per sentence", f"{store.num_tokens / store.num_sentences:.1f}"),
            _quantiles(self.sentence_lengths),
            ("duplicate documents", _share(self.documents)),
            ("duplicate sentences", _share(self.lines)),
        ]
        if store.num_duplicates is not None:
            text.append(("duplicates skipped by the build", f"{store.num_duplicates:,}"))
        examples = [
            ("number", f"{self.num_examples:,}"),
            ("mean tokens", f"{self.mean_length:.1f}"),
            _quantiles(self.example_lengths),
            ("allowed tokens", f"{self.max_len}"),
        ]
        if self.positive_share is not None:
            name = measures.LABELS[self.objective][1]
            examples.append((f"labeled {name!r}", f"{self.positive_share:.2%}"))
        return {
            "Text": text,
            "Vocabulary": [
                ("tokens", f"{vocab_size:,}"),
                ("never used", f"{self.num_unused:,}, {self.num_unused / vocab_size:.1%}"),
                ("unknown in the text", f"{self.unknown_rate:.3%}"),
                ("most frequent", " ".join(token for token, _ in self.most_frequent[:6])),
            ],
            "Examples": examples,
            "Padding": [(f"{rows} rows", f"{share:.2%}") for rows, share in self.padding.items()],
            "Masks": [
                ("strategy", f"{self.masking.strategy}, {self.masking.rate:.0%} requested"),
                ("predicted", f"{self.mask_rate:.2%} of {self.num_measured:,} tokens"),
                *((kind, f"{share:.2%}") for kind, share in self.replaced.items()),
            ],
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
    epoch; for a large store, they are made from every n-th document. Masks are measured on half a
    million tokens of these examples.

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
    num_measured, kinds, shown = measures.mask_sample(
        store, examples, options, vocab=vocab, masking=masking
    )
    num_predicted = sum(kinds.values())
    settings = {"max_len": max_len, "batch_size": min(_BATCH_SIZE, len(lengths)), "seed": seed}
    padding = {rows: padding_share(lengths, rows=rows, **settings) for rows in ROWS}
    counts = measures.count_ids(store.tokens, store.vocab_size)
    most_frequent = np.argsort(-counts, kind="stable")[:_NUM_FREQUENT]
    hashes = measures.blocks_of(store.document_hashes)
    documents = measures.find_copies(hashes, store.num_documents)
    lines = measures.find_copies(measures.sentence_hashes(store), store.num_sentences)
    return DataReport(
        store=store,
        max_len=max_len,
        masking=masking,
        objective=objective,
        num_unused=int(np.sum(np.delete(counts, vocab.special_ids) == 0)),
        unknown_rate=float(counts[vocab.unk_id] / store.num_tokens),
        most_frequent=tuple((vocab.tokens[n], int(counts[n])) for n in most_frequent if counts[n]),
        documents=documents,
        lines=lines,
        repeated_lines=_texts(store, tokenizer, lines.most_repeated),
        sentence_lengths=measures.quantiles(measures.sentence_lengths(store)),
        example_lengths=measures.quantiles(np.bincount(lengths)),
        num_examples=len(examples) * every,
        mean_length=float(lengths.mean()),
        positive_share=float(examples.labels.mean()) if examples.are_pairs else None,
        padding=padding,
        num_measured=num_measured,
        mask_rate=num_predicted / num_measured,
        replaced={kind: n / max(num_predicted, 1) for kind, n in kinds.items()},
        examples=shown,
    )


def _quantiles(lengths: tuple[int, int, int]) -> tuple[str, str]:
    return "median, 90th percentile, maximum", ", ".join(f"{length:,}" for length in lengths)


def _share(copies: measures.Copies) -> str:
    estimated = f", estimated from 1 of {copies.sampled}" if copies.sampled > 1 else ""
    return f"{copies.share:.2%}{estimated}"


def _texts(
    store: TokenStore, tokenizer: Tokenizer, places: Iterable[tuple[int, int]]
) -> tuple[tuple[str, int], ...]:
    return tuple(
        (tokenizer.detokenize(store.sentence(place).astype(np.int32)).numpy()[0].decode(), times)
        for place, times in places
    )
