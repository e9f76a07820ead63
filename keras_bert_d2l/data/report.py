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
from keras_bert_d2l.data.pretraining.packing import lay_out
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
_AT_ONCE = 1 << 22  # tokens in memory at a time
_NUM_SHOWN = 10  # examples


@dataclasses.dataclass(frozen=True)
class DataReport:
    r"""The measurements of `data_report`.

    `groups()` returns them as text; the command `keras-bert-d2l report` prints them.

    Attributes:
        store: The token store, with its counts.
        max_len: T.
        num_unused: Number of tokens in the vocabulary that never occur in the text.
        unknown_rate: Share of unknown-word tokens.
        num_examples: Number of examples in one pass over the documents. For a large store, it is
            estimated from a part of them.
        mean_length: Mean number of tokens per example, with special tokens.
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
        ['Text', 'Vocabulary', 'Examples']
    """

    store: TokenStore
    max_len: int
    num_unused: int
    unknown_rate: float
    num_examples: int
    mean_length: float
    examples: tuple[str, ...]

    def groups(self) -> dict[str, list[tuple[str, str]]]:
        """Return the measurements as text: by the title of a group, their names and values."""
        store, vocab_size = self.store, self.store.vocab_size
        return {
            "Text": [
                ("documents", f"{store.num_documents:,}"),
                ("sentences", f"{store.num_sentences:,}"),
                ("tokens", f"{store.num_tokens:,}"),
                ("mean tokens per sentence", f"{store.num_tokens / store.num_sentences:.1f}"),
            ],
            "Vocabulary": [
                ("tokens", f"{vocab_size:,}"),
                ("never used", f"{self.num_unused:,}, {self.num_unused / vocab_size:.1%}"),
                ("unknown in the text", f"{self.unknown_rate:.3%}"),
            ],
            "Examples": [
                ("number", f"{self.num_examples:,}"),
                ("mean tokens", f"{self.mean_length:.1f}"),
                ("allowed tokens", f"{self.max_len}"),
            ],
        }


def data_report(
    store: TokenStore,
    tokenizer: Tokenizer,
    *,
    max_len: int = 128,
    masking: Strategy | Masking = "token",
    objective: Objective = "nsp",
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
        num_separators=tokenizer.vocab.num_separators,
    )
    examples = make_examples(store, options, epoch=0)
    if not len(examples):
        raise ValueError(f"The text yields no example of two sentences: {store.description}.")
    vocab = tokenizer.vocab
    counts = np.zeros(len(vocab), np.int64)
    for first in range(0, store.num_tokens, _AT_ONCE):
        counts += np.bincount(store.tokens[first : first + _AT_ONCE], minlength=len(vocab))
    return DataReport(
        store=store,
        max_len=max_len,
        num_unused=int(np.sum(np.delete(counts, vocab.special_ids) == 0)),
        unknown_rate=float(counts[vocab.unk_id] / store.num_tokens),
        num_examples=len(examples) * every,
        mean_length=float(examples.lengths().mean()),
        examples=tuple(_masked_examples(store, examples, options, vocab, masking)),
    )


def _masked_examples(
    store: TokenStore, examples: Examples, options: ExampleOptions, vocab: Vocab, masking: Masking
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
