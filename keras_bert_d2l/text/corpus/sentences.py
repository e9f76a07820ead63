"""Paragraphs of prose in, sentences and documents of bounded length out."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import sentencex

LONG_ENOUGH = 100  # sentences after which prose may be cut: a text of many pages has no other end
_MAX_SENTENCES, _MAX_CHARACTERS = 1000, 1 << 18  # of a document, which is held in memory whole


def split_sentences(paragraph: str) -> list[str]:
    """Splits English prose into sentences.

    The end of a sentence is told apart from abbreviations, initials, decimal numbers and dotted
    names such as `tf.Tensor`. White space, line ends included, becomes single spaces; pieces
    without a letter or digit, such as a row of asterisks, are left out.
    """
    # Before the splitter, not after it: it panics at an initial followed by a no-break space.
    text = " ".join(paragraph.split())
    sentences: list[str] = []
    for piece in sentencex.segment("en", text):
        if sentences and sentences[-1][-1] in ".!?":  # nothing between: the dot of a dotted name
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return [s.strip() for s in sentences if any(map(str.isalnum, s))]


def gather_documents(
    paragraphs: Iterable[Sequence[str] | None], long_enough: int | None = None
) -> Iterator[list[str]]:
    """Gathers paragraphs into documents.

    Args:
        paragraphs: Sentences of each paragraph; None where a document ends.
        long_enough: Number of sentences from which on a document ends with its paragraph; None:
            it goes on.

    Yields: documents of 1 to 1000 sentences; one that is longer, or longer than 262,144
        characters, is cut.
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
