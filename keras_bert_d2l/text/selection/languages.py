"""Identify the language of documents with py3langid, whose model is part of its package."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_bert_d2l.checks import check_choice

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_CHARACTERS = 300  # that are examined, from the beginning of a document


class LanguageFilter:
    """Recognizes documents in one language.

    Args:
        language: Its ISO 639-1 code.

    Raises:
        ImportError: py3langid is not installed.
        ValueError: py3langid does not know the language.
    """

    def __init__(self, language: str) -> None:
        self._identifier = _identifier()
        self._language = language
        check_choice("language", language, sorted(self._identifier.labels))

    def objection(self, document: Sequence[str]) -> str | None:
        """Return None if the document is in the language, else the reason to discard it."""
        found, _ = self._identifier.classify(" ".join(document)[:_CHARACTERS])
        return None if found == self._language else f"language: {found}"


@functools.cache
def _identifier() -> "LanguageIdentifier":
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise ImportError(
            '`language` needs py3langid. Install it with: pip install "keras-bert-d2l[language]".'
        ) from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    # The scores are sums in single precision either way, but converting on each call is slow.
    identifier.nb_ptc = identifier.nb_ptc.astype(np.float32)
    return identifier
