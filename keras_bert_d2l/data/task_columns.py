"""Names of columns in, the columns of a task out: as the caller names them, or as usual.

Names are compared without regard to case. A number counts columns from 1 on.
"""

import dataclasses
import os
import re
from collections.abc import Sequence

from keras_bert_d2l.data.task_files import Table, TextFile

Column = str | int
_TEXTS = tuple(
    "text sentence content review comment comment_text tweet message utterance document body "
    "question title".split()
)
_PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("sentence_a", "sentence_b"),
    ("sent1", "sent2"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("text", "text_b"),
    ("#1 string", "#2 string"),  # of the Microsoft paraphrase corpus
    ("question", "sentence"),
    ("question", "passage"),
)
_LABELS = {
    "classify": tuple(
        "label gold_label labels class category sentiment quality is_duplicate entailment_judgment "
        "polarity intent topic target coarse_label answer stars rating score".split()
    ),
    "regress": tuple(
        "score similarity similarity_score relatedness_score label rating stars target gold "
        "value labels".split()
    ),
    "tag": tuple("tags ner_tags pos_tags upos labels label ner pos tag chunk_tags".split()),
    "answer": ("answers", "answer"),
}
_WORDS = ("words", "tokens", "word", "token", "sentence", "form")
_QUESTIONS, _CONTEXTS = ("question",), ("context", "passage", "paragraph", "text", "document")
_IDS = tuple("id idx index guid pairid pair_id qid uid example_id sent_id sentence_id".split())
_LONGEST_NAME = 40  # characters, of what may be a header
_NAME = re.compile(r"[\w#.-]*")
_SHOWN = 30


@dataclasses.dataclass(frozen=True)
class Columns:
    """Positions of the columns of a task in a table, from 0 on; None: there is none."""

    text: int
    text_b: int | None
    label: int | None
    id: int | None


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The columns that the caller names; None: the usual ones."""

    task: str
    text: Column | None = None
    text_b: Column | None = None
    label: Column | None = None
    id: Column | None = None
    labelled: bool = True
    header: bool | None = None

    @property
    def given(self) -> list[Column]:
        """What is named."""
        named = (self.text, self.text_b, self.label if self.labelled else None, self.id)
        return [column for column in named if column is not None]

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether the first row of a file holds the names of its columns."""
        if self.header is not None:
            return self.header
        names = [cell.strip().lower() for cell in cells]
        if any(as_number(column) is None for column in self.given):
            return True  # or else there is no such column
        if any(len(name) > _LONGEST_NAME for name in names):
            return False
        usual = {*_TEXTS, *_IDS, *_LABELS[self.task], *(name for pair in _PAIRS for name in pair)}
        num_usual = sum(name in usual for name in names)
        if not self.given and set(names) & set(_TEXTS) and all(map(_NAME.fullmatch, names)):
            return True
        # One alone may as well be data: the label "question" before what is asked.
        return num_usual >= min(2, len(names))

    def find(self, file: TextFile, table: Table) -> Columns:
        """Finds the columns in a table.

        Raises:
            ValueError: A column that is named or needed is not there.
        """
        finder = _Finder(file, table)
        text, text_b = self._texts(finder)
        label = None
        if self.labelled:
            usual = _LABELS[self.task] if finder.has_names else ()
            label = finder.one("label", self.label, usual, besides=(text, text_b))
        return Columns(text, text_b, label, finder.one("id", self.id, _IDS))

    def _texts(self, finder: "_Finder") -> tuple[int, int | None]:
        if self.task == "tag":
            return finder.needed("text", self.text, _WORDS), None
        if self.task == "answer":
            return (
                finder.needed("text", self.text, _QUESTIONS),
                finder.needed("text_b", self.text_b, _CONTEXTS),
            )
        if self.text is None and self.text_b is None:
            for pair in _PAIRS:
                first, second = (finder.one("text", None, (name,)) for name in pair)
                if first is not None and second is not None:
                    return first, second
        text = finder.needed("text", self.text, _TEXTS)
        return text, finder.one("text_b", self.text_b, ())


class _Finder:
    """Finds single columns of a table."""

    def __init__(self, file: TextFile, table: Table) -> None:
        self.file = file
        self.table = table
        self.has_names = table.columns is not None
        self.names = [name.lower() for name in table.columns or ()]

    def needed(self, role: str, given: Column | None, usual: Sequence[str]) -> int:
        found = self.one(role, given, usual)
        if found is not None:
            return found
        if not self.has_names and len(self.table.first) == 1:
            return 0  # a text in each line
        raise ValueError(
            f"`{role}` must name a column of {os.fspath(self.file.path)!r}: none has a usual name "
            f"({', '.join(usual)}). {self._what_exists()}"
        )

    def one(
        self,
        role: str,
        given: Column | None,
        usual: Sequence[str],
        besides: Sequence[int | None] = (),
    ) -> int | None:
        if given is None:
            places = (self.names.index(name) for name in usual if name in self.names)
            return next((place for place in places if place not in besides), None)
        if self.has_names:
            names = self.table.columns or ()
            if given in names:
                return names.index(str(given))
            if isinstance(given, str) and given.lower() in self.names:
                return self.names.index(given.lower())
        number = as_number(given)
        if number is not None and 1 <= number <= len(self.table.first):
            return number - 1
        raise ValueError(
            f"`{role}` must name a column of {os.fspath(self.file.path)!r}. Received: "
            f"{role}={given!r}. {self._what_exists()}"
        )

    def _what_exists(self) -> str:
        if self.has_names:
            return f"Its columns are {', '.join(map(repr, self.table.columns or ()))}."
        cells = ", ".join(
            f"{number}: {cell[:_SHOWN]!r}" for number, cell in enumerate(self.table.first, 1)
        )
        return (
            f"Its first line has no names of columns but {cells}. Name columns by their numbers, "
            "from 1 on; or, if these are names, by them."
        )


def as_number(column: Column) -> int | None:
    """Returns the number that a column is named by, or None."""
    if isinstance(column, int):
        return column
    return int(column) if column.isdecimal() else None
