"""A corpus and a tokenizer in, how well the vocabulary fits the text out."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.learning import batches, most_common

_NUM_EXAMPLES = 10
_MAX_COUNTED = 100_000  # different unknown words while counting: beyond, the rarer half is dropped


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How a vocabulary covers a text.

    Attributes:
        num_words: Words and punctuation marks; special tokens written in the text are none.
        num_pieces: Tokens that they were cut into.
        num_unknown: Words that became the unknown token.
        most_frequent_unknown: The unknown words that occur most often, and how often.
    """

    num_words: int
    num_pieces: int
    num_unknown: int
    most_frequent_unknown: tuple[tuple[str, int], ...]

    @property
    def unknown_rate(self) -> float:
        """Share of words that are unknown."""
        return self.num_unknown / self.num_words

    @property
    def pieces_per_word(self) -> float:
        """Tokens of a word on average; 1 is the least."""
        return self.num_pieces / self.num_words

    def __str__(self) -> str:
        text = (
            f"{self.num_words:,} words, {self.pieces_per_word:.3f} pieces per word, "
            f"{self.unknown_rate:.3%} unknown"
        )
        if not self.most_frequent_unknown:
            return text
        return f"{text}: " + ", ".join(f"{w} ({n:,})" for w, n in self.most_frequent_unknown)


def measure_coverage(corpus: Iterable[Sequence[str]], tokenizer: Tokenizer) -> Coverage:
    """Counts pieces and unknown words of a text, best of one that was not learned from.

    Args:
        corpus: A `Corpus`, or any iterable of documents, each a list of sentences; streamed.
        tokenizer: Has the vocabulary.

    Returns: a `Coverage`.

    Raises:
        ValueError: The corpus has no word, or a document is no list.
    """
    vocab = tokenizer.vocab
    written = set() if tokenizer.split_special_tokens else set(vocab.special_tokens)
    is_suffix = np.array([token.startswith("##") for token in vocab.tokens])
    num_words = num_pieces = num_unknown = 0
    unknown: Counter[str] = Counter()
    for sentences in batches(corpus):
        pieces = tokenizer.with_offsets(sentences)
        ids = pieces["tokens"].flat_values.numpy()
        is_special = np.isin(ids, vocab.special_ids)
        rows = pieces["tokens"].value_rowids().numpy()[is_special]
        starts = pieces["starts"].flat_values.numpy()[is_special]
        ends = pieces["ends"].flat_values.numpy()[is_special]
        words = [sentences[r][s:e] for r, s, e in zip(rows, starts, ends, strict=True)]
        num_written = sum(word in written for word in words)
        words = [word for word in words if word not in written]
        num_pieces += len(ids) - num_written
        num_words += int(np.sum(~is_suffix[ids])) - num_written
        num_unknown += len(words)
        unknown.update(words)
        if len(unknown) > _MAX_COUNTED:
            unknown = Counter(dict(most_common(unknown, _MAX_COUNTED // 2)))
    if not num_words:
        raise ValueError("Coverage is measured on text. Received: no word in `corpus`.")
    return Coverage(num_words, num_pieces, num_unknown, tuple(most_common(unknown, _NUM_EXAMPLES)))
