"""Coverage: how well a vocabulary fits a text."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.normalization import CORPUS_UNKNOWN
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab_learning import batches, most_common, without_rare

_NUM_EXAMPLES = 10
_MAX_COUNTED = 100_000  # different unknown words in memory


@dataclasses.dataclass(frozen=True)
class Coverage:
    """How well a vocabulary covers a text: the result of `measure_coverage`.

    Attributes:
        num_words: Number of words and punctuation marks, without special tokens in the text.
        num_pieces: Number of tokens that they were split into.
        num_unknown: Number of words that became the unknown token.
        most_frequent_unknown: The most frequent unknown words with their counts.

    Example:
        >>> import keras_bert_d2l as kb
        >>> coverage = kb.Coverage(4, 5, 1, (("dog", 1),))
        >>> coverage.unknown_rate, coverage.pieces_per_word
        (0.25, 1.25)
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
        """Average number of tokens per word, at least 1."""
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
    """Count the pieces and the unknown words of a text.

    For a fair result, use text that the vocabulary was not learned from.

    Args:
        corpus: A `Corpus`, or any iterable of documents, each a list of sentences. It is streamed.
        tokenizer: The `Tokenizer` whose vocabulary to measure.

    Returns:
        A `Coverage`.

    Raises:
        ValueError: If the corpus has no words, or a document is not a list.

    Example:
        >>> import keras_bert_d2l as kb
        >>> vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s"])
        >>> print(kb.measure_coverage([["The cats", "the dog"]], kb.Tokenizer(vocab)))
        4 words, 1.250 pieces per word, 25.000% unknown: dog (1)
    """
    vocab = tokenizer.vocab
    own = tokenizer.options.get("special_tokens", ())
    written = {CORPUS_UNKNOWN, *own}  # how the corpus writes an unknown word, in any vocabulary
    if not tokenizer.options["split_special_tokens"]:
        written |= {*vocab.special_tokens}
    special_ids = [*vocab.special_ids, *vocab[list(own)]]
    is_suffix = np.array([token.startswith("##") for token in vocab.tokens])
    num_words = num_pieces = num_unknown = 0
    unknown: Counter[str] = Counter()
    for sentences in batches(corpus):
        pieces = tokenizer.with_offsets(sentences)
        ids = pieces["tokens"].flat_values.numpy()
        special = _texts_of(pieces, np.isin(ids, special_ids), sentences)
        words = [word for word in special if word not in written]
        num_written = len(special) - len(words)
        num_pieces += len(ids) - num_written
        num_words += int(np.sum(~is_suffix[ids])) - num_written
        num_unknown += len(words)
        unknown.update(words)
        unknown = without_rare(unknown, _MAX_COUNTED)
    if not num_words:
        raise ValueError("`corpus` must contain words to measure coverage on. Received: no words.")
    return Coverage(num_words, num_pieces, num_unknown, tuple(most_common(unknown, _NUM_EXAMPLES)))


def _texts_of(
    pieces: dict[str, tf.RaggedTensor], chosen: np.ndarray, sentences: Sequence[str]
) -> list[str]:
    """Return the original text of each chosen piece."""
    rows = pieces["tokens"].value_rowids()
    places = (rows, pieces["starts"].flat_values, pieces["ends"].flat_values)
    return [
        sentences[row][start:end]
        for row, start, end in zip(*(place.numpy()[chosen] for place in places), strict=True)
    ]
