"""A vocabulary and a corpus in, the vocabulary with more tokens out."""

from collections.abc import Iterable, Sequence

import numpy as np

from keras_bert_d2l.text.vocab.learning import (
    MAX_ALPHABET,
    MAX_WORD_CHARACTERS,
    MAX_WORDS,
    count_words,
    frequent_characters,
    frequent_pieces,
    most_common,
)
from keras_bert_d2l.text.vocab.vocab import Vocab


def extend_vocab(
    vocab: Vocab, corpus: Iterable[Sequence[str]], size: int, lowercase: bool = True
) -> Vocab:
    """Adds tokens to a vocabulary, learned from text that it does not fit.

    The tokens that are there keep their ids. The new ones are learned as `learn_vocab` does, from
    the words that the vocabulary cuts into several pieces or does not know: characters that are
    missing first, then pieces from the most frequent on. The same text gives the same tokens,
    byte for byte. A model needs as many more rows in its token embedding.

    Args:
        vocab: The `Vocab` to begin with.
        corpus: A `Corpus`, or any iterable of documents, each a list of sentences.
        size: Number of tokens of the result; it has fewer if the text has too few pieces that
            occur twice.
        lowercase: Whether `vocab` is of lowered words.

    Returns: a `Vocab`.

    Raises:
        ImportError: tensorflow-text is not installed or does not match TensorFlow.
        ValueError: `size` is smaller than the vocabulary, or a document is no list.
    """
    is_int = isinstance(size, int | np.integer) and not isinstance(size, bool)
    if not is_int or size < len(vocab):
        raise ValueError(
            f"`size` must be an integer of at least {len(vocab)}, the tokens that the vocabulary "
            f"has. Received: size={size!r}."
        )
    counts = count_words(corpus, vocab.special_tokens, lowercase)
    alphabet = frequent_characters(counts, MAX_ALPHABET)
    words = [
        (word, count)
        for word, count in most_common(counts, MAX_WORDS)
        if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word) and word not in vocab
    ]
    inner = {character for word, _ in words for character in word[1:]}
    characters = [*sorted(alphabet), *(f"##{character}" for character in sorted(inner))]
    new = [token for token in characters if token not in vocab]
    new += _new_pieces(words, vocab, int(size) - len(vocab) - len(new))
    return Vocab([*vocab.tokens, *new][:size])


def _new_pieces(words: Sequence[tuple[str, int]], vocab: Vocab, number: int) -> list[str]:
    """Returns the `number` most frequent pieces that the vocabulary lacks, or all there are."""
    wanted = number
    while True:
        pieces = frequent_pieces(words, wanted)
        new = [piece for piece in pieces if piece not in vocab]
        if len(new) >= number or len(pieces) < wanted:
            return new[: max(number, 0)]
        wanted += 2 * (number - len(new))
