"""`Selection`: the options that select documents, and `Selector`, which applies them to text."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from keras_bert_d2l.checks import check_bool, check_choice, check_share, check_type
from keras_bert_d2l.text.selection.c4 import clean
from keras_bert_d2l.text.selection.gopher import broken_rules
from keras_bert_d2l.text.selection.languages import LanguageFilter

QUALITY = ("c4", "gopher")
LEAST_SIMILARITY = 0.7  # of near-duplicates; see `data/store/sketches.py`


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """Which documents of a corpus become part of a token store; see `build_store`."""

    deduplicate: bool = False
    near_duplicates: float | None = None
    language: str | None = None
    quality: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_bool("deduplicate", self.deduplicate)
        if self.near_duplicates is not None:
            check_share("near_duplicates", self.near_duplicates, ends=True)
            if self.near_duplicates < LEAST_SIMILARITY:
                raise ValueError(
                    f"`near_duplicates` must be at least {LEAST_SIMILARITY}, because less similar "
                    f"documents are rarely found. Received: {self.near_duplicates}."
                )
            object.__setattr__(self, "near_duplicates", float(self.near_duplicates))
        if self.language is not None:
            check_type("language", self.language, str, "Use an ISO 639-1 code such as 'en'.")
        if isinstance(self.quality, str) or not isinstance(self.quality, Iterable):
            raise ValueError(
                f"`quality` must be a list of {', '.join(map(repr, QUALITY))}. Received: "
                f"{self.quality!r:.80}."
            )
        given = tuple(self.quality)
        for rules in given:
            check_choice("quality", rules, QUALITY)
        object.__setattr__(self, "quality", tuple(name for name in QUALITY if name in given))


class Selector:
    """Selects documents by language and quality, and counts the others by reason.

    Args:
        selection: The options.

    Attributes:
        discarded: The number of documents that were discarded for each reason.
    """

    def __init__(self, selection: Selection) -> None:
        self._quality = selection.quality
        language = selection.language
        self._language = None if language is None else LanguageFilter(language)
        self.discarded: collections.Counter[str] = collections.Counter()

    def __call__(self, documents: list[Sequence[str]]) -> list[Sequence[str]]:
        """Return the documents to use. The rules of C4 also remove sentences."""
        if self._language is not None:
            language = self._language
            documents = self._without(documents, [language.objection(text) for text in documents])
        if "c4" in self._quality:
            cleaned = [clean(document) for document in documents]
            documents = self._without([text for text, _ in cleaned], [why for _, why in cleaned])
        if "gopher" in self._quality:
            documents = self._without(documents, broken_rules(documents))
        return documents

    def _without(
        self, documents: list[Sequence[str]], reasons: Sequence[str | None]
    ) -> list[Sequence[str]]:
        self.discarded.update(reason for reason in reasons if reason is not None)
        return [
            document for document, reason in zip(documents, reasons, strict=True) if reason is None
        ]
