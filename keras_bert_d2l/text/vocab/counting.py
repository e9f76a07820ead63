"""Count the words of a corpus in bounded memory."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import tensorflow as tf

from keras_bert_d2l.checks import shown
from keras_bert_d2l.text.normalization import Normalization, split_words

_BATCH_CHARACTERS = 1 << 20  # number of characters per normalization call
_MAX_COUNTED_WORDS = 1_000_000

Word = TypeVar("Word", bound=Hashable)


def count_words(
    corpus: Iterable[Sequence[str]], special_tokens: Sequence[str], lowercase: bool
) -> Counter[str]:
    """Count the words of a corpus, without the special tokens.

    Memory is bounded: whenever there are more than a million different words, only the 500,000
    most frequent are kept.
    """
    normalize = Normalization(special_tokens, lowercase)
    counts: Counter[bytes] = Counter()
    for sentences in batches(corpus):
        words = split_words(normalize(tf.constant(sentences)))
        counts.update(words.flat_values.numpy().tolist())
        counts = without_rare(counts, _MAX_COUNTED_WORDS)
    for marker in normalize.markers.values():
        del counts[marker.encode()]
    return Counter({word.decode(): count for word, count in counts.items()})


def batches(corpus: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the sentences of a corpus in lists of about a million characters.

    Raises:
        ValueError: If the corpus is not iterable, or a document is not a list of strings.
    """
    sentences: list[str] = []
    num_characters = 0
    if isinstance(corpus, str | Mapping) or not isinstance(corpus, Iterable):
        raise _not_documents(shown(corpus))
    for document in corpus:
        if not isinstance(document, list | tuple) or not all(isinstance(x, str) for x in document):
            raise _not_documents(f"the document {shown(document)}")
        sentences += document
        num_characters += sum(map(len, document))
        if num_characters >= _BATCH_CHARACTERS:
            yield sentences
            sentences, num_characters = [], 0
    if sentences:
        yield sentences


def _not_documents(received: str) -> ValueError:
    return ValueError(
        "`corpus` must be an iterable of documents, each a list of sentences. Received: "
        f"{received}. To read files, use `Corpus.open(path)`."
    )


def most_common(counts: Counter[Word], number: int) -> list[tuple[Word, int]]:
    """Return the `number` most common items with their counts, ties in alphabetical order.

    Unlike `Counter.most_common`, the result does not depend on the order of counting.
    """
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:number]


def without_rare(counts: Counter[Word], limit: int) -> Counter[Word]:
    """Return the counts, reduced to the `limit // 2` most common if there are more than `limit`."""
    return Counter(dict(most_common(counts, limit // 2))) if len(counts) > limit else counts
