"""The rules of C4 (Raffel et al. 2020, section 2.2), applied to sentences in place of lines.

Not applied: the list of obscene words, which is not part of this package; the language, for which
there is `languages.py`; and the comparison of spans of three sentences, for which there are the
near-duplicates of `data/store`.
"""

import re
from collections.abc import Sequence

_ENDS = (".", "!", "?", '"', "\u201d")  # terminal punctuation: also a closing quotation mark
_LEAST_WORDS, _LEAST_SENTENCES = 3, 5  # in a sentence; in a document
_OF_WEB_PAGES = re.compile(
    r"javascript|terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies"
)
_CITATION = re.compile(r"\[(?:\d+|edit|citation needed)\]", re.IGNORECASE)


def clean(document: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """Return the sentences to keep, and the reason to discard the document, or None."""
    text = "\n".join(document)
    lowercase = text.lower()
    if "lorem ipsum" in lowercase:
        return document, "C4: lorem ipsum"
    if "{" in text:
        return document, "C4: curly bracket"
    if "[" in text and (shorter := _CITATION.sub("", text)) != text:
        document = shorter.split("\n")
    sentences = [
        sentence
        for sentence in document
        if sentence.rstrip().endswith(_ENDS) and len(sentence.split(None, 2)) >= _LEAST_WORDS
    ]
    if _OF_WEB_PAGES.search(lowercase):
        sentences = [text for text in sentences if not _OF_WEB_PAGES.search(text.lower())]
    return sentences, "C4: few sentences" if len(sentences) < _LEAST_SENTENCES else None
