"""Split prose into sentences, and group sentences into documents of bounded length."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import sentencex

from keras_bert_d2l.text.words import single_spaced

LONG_ENOUGH = 100  # number of sentences after which a document of prose may end
_MAX_SENTENCES, _MAX_CHARACTERS = 1000, 1 << 18  # per document, to bound memory


def split_sentences(paragraph: str) -> list[str]:
    """Split English prose into sentences.

    Abbreviations, initials, decimal numbers and dotted names such as `tf.Tensor` do not end a
    sentence. Runs of white space, including line ends, become one space. Pieces without a letter
    or digit, such as a row of asterisks, are dropped.
    """
    # Normalize spaces first: the splitter panics at an initial followed by a no-break space.
    text = single_spaced(paragraph)
    sentences: list[str] = []
    for piece in sentencex.segment("en", text):
        if sentences and sentences[-1][-1] in ".!?":  # no space follows: the dot is part of a name
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return [s.strip() for s in sentences if any(map(str.isalnum, s))]


def gather_documents(
    paragraphs: Iterable[Sequence[str] | None], long_enough: int | None = None
) -> Iterator[list[str]]:
    """Yield documents of 1 to 1000 sentences and at most about 262,144 characters.

    Args:
        paragraphs: The sentences of each paragraph, and None where a document ends.
        long_enough: A document that has this many sentences ends with the current paragraph.
            None: a document ends only where `paragraphs` has None.
    """
    document: list[str] = []
    num_characters = 0
    for paragraph in itertools.chain(paragraphs, [None]):
        for sentence in paragraph or ():
            document.append(sentence)
            num_characters += len(sentence)
            if len(document) == _MAX_SENTENCES or num_characters > _MAX_CHARACTERS:
                yield document
                document, num_characters = [], 0
        is_end = paragraph is None or (long_enough is not None and len(document) >= long_enough)
        if document and is_end:
            yield document
            document, num_characters = [], 0
