"""A corpus in, the tokens of a WordPiece vocabulary out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from keras_bert_d2l.text._tensorflow_text import wordpiece_learner
from keras_bert_d2l.text.normalization import Normalization, split_words

_BATCH_CHARACTERS = 1 << 20  # normalised in one call
_MAX_COUNTED_WORDS = 1_000_000  # different ones while counting: beyond, the rarer half is dropped
MAX_WORDS = 100_000  # different ones to learn from: the most frequent
MAX_WORD_CHARACTERS = 50
MAX_ALPHABET = 1000
_LEAST_COUNT = 2  # what was seen once is no pattern
_NUM_ITERATIONS = 4  # of the learner: its own default
_PIECES_TOO_MANY = 0.1  # share by which the pieces may outnumber the size, before the cut


def learn_tokens(
    corpus: Iterable[Sequence[str]], size: int, special_tokens: Sequence[str], lowercase: bool
) -> list[str]:
    """Returns the tokens of a vocabulary learned from documents of sentences.

    The special tokens come first, then single characters, then longer pieces from the most
    frequent on. Deterministic; see `learn_vocab`.
    """
    counts = count_words(corpus, special_tokens, lowercase)
    if not counts:
        raise ValueError("A vocabulary needs text to learn from. Received: no word in `corpus`.")
    alphabet = frequent_characters(
        counts, min(MAX_ALPHABET, size // 3)
    )  # a character may be two tokens
    words = [
        (word, count)
        for word, count in most_common(counts, MAX_WORDS)
        if len(word) <= MAX_WORD_CHARACTERS and alphabet.issuperset(word)
    ]
    inner = {character for word, _ in words for character in word[1:]}
    tokens = [*special_tokens, *sorted(alphabet), *(f"##{c}" for c in sorted(inner))]
    return [*tokens, *frequent_pieces(words, size - len(tokens))][:size]


def count_words(
    corpus: Iterable[Sequence[str]], special_tokens: Sequence[str], lowercase: bool
) -> Counter[str]:
    """Returns how often each word of documents of sentences occurs, special tokens left out."""
    normalize = Normalization(special_tokens, lowercase)
    counts: Counter[bytes] = Counter()
    for sentences in batches(corpus):
        words = split_words(normalize(tf.constant(sentences)))
        counts.update(words.flat_values.numpy().tolist())
        if len(counts) > _MAX_COUNTED_WORDS:
            counts = Counter(dict(most_common(counts, _MAX_COUNTED_WORDS // 2)))
    for marker in normalize.markers:
        del counts[marker.encode()]
    return Counter({word.decode(): count for word, count in counts.items()})


def batches(corpus: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yields the sentences of documents, many at a time, or raises `ValueError`."""
    sentences: list[str] = []
    num_characters = 0
    for document in corpus:
        if isinstance(document, str):
            raise ValueError(
                "`corpus` must be an iterable of documents, each a list of sentences. Received: "
                f"the document {document!r:.80}; `Corpus.open(path)` reads files."
            )
        sentences += document
        num_characters += sum(map(len, document))
        if num_characters >= _BATCH_CHARACTERS:
            yield sentences
            sentences, num_characters = [], 0
    if sentences:
        yield sentences


def most_common(counts: Counter[Any], number: int) -> list[tuple[Any, int]]:
    """Like `Counter.most_common`, but equally frequent ones are in order, whatever came first."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:number]


def frequent_characters(counts: Counter[str], size: int) -> set[str]:
    """Returns the `size` most frequent characters of words, without those that occur once."""
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    return {c for c, count in most_common(characters, size) if count >= _LEAST_COUNT}


def frequent_pieces(words: Sequence[tuple[str, int]], number: int) -> list[str]:
    """Returns `number` pieces or a few more, from the most frequent on, or all that there are.

    The learner wants to know how often a piece must occur. What matters here is how many pieces
    there are, which is about inverse to it: so the least count is searched for.
    """
    if number <= 0 or not words:
        return []
    enough: list[str] | None = None
    low, high = _LEAST_COUNT, max(count for _, count in words)
    least_count = sum(count for _, count in words) // (8 * number)
    while True:
        least_count = max(low, min(least_count, high))
        pieces = _pieces_as_frequent(words, least_count)
        if len(pieces) >= number:
            enough, low = pieces, least_count + 1
        else:
            high = least_count - 1
        if low > high or number <= len(pieces) <= number * (1 + _PIECES_TOO_MANY):
            return enough or pieces
        least_count = round(least_count * len(pieces) / (number * (1 + _PIECES_TOO_MANY / 2)))


def _pieces_as_frequent(words: Sequence[tuple[str, int]], least_count: int) -> list[str]:
    learner = wordpiece_learner()
    parameters = learner.Params(
        upper_thresh=None,
        lower_thresh=None,
        num_iterations=_NUM_ITERATIONS,
        max_input_tokens=-1,
        max_token_length=MAX_WORD_CHARACTERS,
        max_unique_chars=MAX_ALPHABET,
        vocab_size=None,
        slack_ratio=None,
        include_joiner_token=True,
        joiner="##",
        reserved_tokens=[],
    )
    pieces = learner.learn_with_thresh(words, least_count, parameters)
    # It adds every character, also as a continuation; `##,` for instance is never one.
    return [piece for piece in pieces if len(piece.removeprefix("##")) > 1 and piece != "##"]
