"""Names of columns in, the columns of a task out: as the caller names them, or as usual.

Names are compared without regard to case, and " ", "-" and the capital of "reviewText" are as good
as "_". A number counts columns from 1 on.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Sequence

from keras_bert_d2l.data.tasks.readers.files import Table, TextFile, as_string

Column = str | int
_TEXTS = tuple(
    "text sentence content review comment comment_text review_text review_body tweet message "
    "utterance phrase document article body question headline title".split()
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
    ("#1_string", "#2_string"),  # of the Microsoft paraphrase corpus
    ("question", "sentence"),
    ("question", "passage"),
    ("title", "description"),
    ("title", "content"),
)
_LABELS = {
    "classify": tuple(
        "label gold_label labels class class_index category sentiment emotion emotions quality "
        "is_duplicate entailment_judgment entailment_label polarity intent topic target "
        "coarse_label label_coarse answer stars star_rating rating overall score".split()
    ),
    "regress": tuple(
        "score similarity similarity_score relatedness_score label rating stars star_rating "
        "overall target gold value labels".split()
    ),
    "tag": tuple("tags ner_tags pos_tags upos labels label ner tag pos chunk_tags".split()),
    "answer": ("answers", "answer", "answer_text", "text"),
}
_WORDS = ("words", "tokens", "word", "token", "sentence", "form")
_QUESTIONS, _CONTEXTS = ("question",), ("context", "passage", "paragraph", "text", "document")
_IDS = tuple(
    "id idx index guid pairid pair_id qid uid example_id sent_id sentence_id sentence_#".split()
)
_LONGEST_NAME = 40  # characters, of what may be a header
_NAME = re.compile(r"[\w#.-]*")
_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)\s*")
_SHOWN = 30  # characters of a cell in an error
_NAMED = 8  # usual names
_LOOKED_AT = 1000  # rows, to tell texts from labels
_CAPITAL = re.compile(r"(?<=[a-z\d])(?=[A-Z])")


@dataclasses.dataclass(frozen=True)
class Columns:
    """Positions of the columns of a task in a table, from 0 on; None: there is none.

    `flags` are columns that say of one label each, with 1 or 0, whether a text has it.
    """

    text: int
    text_b: int | None
    label: int | None
    id: int | None
    flags: tuple[int, ...] = ()

    @property
    def has_labels(self) -> bool:
        """Whether there are columns of labels."""
        return self.label is not None or bool(self.flags)

    def named(self, table: Table) -> dict[str, str]:
        """What the columns are called in the table, by what they are for."""
        single = {"text": self.text, "text_b": self.text_b, "label": self.label, "id": self.id}
        names = {role: table.name(place) for role, place in single.items() if place is not None}
        return names | ({"label": ", ".join(map(table.name, self.flags))} if self.flags else {})


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The columns that the caller names; None: the usual ones.

    `labeled` is as that of `read_examples`.
    """

    task: str
    text: Column | None = None
    text_b: Column | None = None
    label: Column | None = None
    id: Column | None = None
    labeled: bool | None = None
    header: bool | None = None

    @property
    def given(self) -> list[Column]:
        """What is named."""
        named = (self.text, self.text_b, None if self.labeled is False else self.label, self.id)
        return [column for column in named if column is not None]

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether the first row of a file holds the names of its columns."""
        if self.header is not None:
            return self.header
        names = [_plain(cell) for cell in cells]
        named = [part for one in self.given for part in _parts(one) if as_number(part) is None]
        if self.task == "tag":  # any word may be the name of a column
            if named:
                return {_plain(name) for name in named} <= set(names)
            return all(set(names) & set(usual) for usual in (_WORDS, _LABELS["tag"]))
        if named:
            return True  # or else there is no such column
        if any(len(name) > _LONGEST_NAME for name in names):
            return False
        usual = {*_TEXTS, *_IDS, *_LABELS[self.task], *(name for pair in _PAIRS for name in pair)}
        if self.task == "answer":
            usual |= {*_QUESTIONS, *_CONTEXTS}
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
        if guessed := self._guess(table):
            return guessed
        finder = _Finder(file, table)
        text, text_b = self._texts(finder)
        label: int | None = None
        flags: tuple[int, ...] = ()
        if self.labeled is not False:
            usual = _LABELS[self.task] if finder.has_names else ()
            find = finder.needed if self.labeled else finder.one
            if self.task == "classify":
                flags = finder.several(self.label)
            if not flags:
                label = find("label", self.label, usual, besides=(text, text_b))
        return Columns(text, text_b, label, finder.one("id", self.id, _IDS), flags)

    def _guess(self, table: Table) -> Columns | None:
        """The columns of a table without names, where only one choice is likely.

        Most cells of a text hold a space; beside one or two texts stands one column of labels.
        """
        if table.columns is not None or self.given or self.task not in ("classify", "regress"):
            return None
        rows = [[as_string(cell) for cell in row] for row in table.rows[:_LOOKED_AT]]
        columns = list(itertools.zip_longest(*rows, fillvalue=""))
        texts = [
            place
            for place, cells in enumerate(columns)
            if 2 * sum(" " in cell.strip() for cell in cells) > len(rows)
        ]
        others = [place for place in range(len(columns)) if place not in texts]
        # Without a space the first row may be one of names.
        is_data = any(" " in cell.strip() for cell in table.first)
        if len(texts) not in (1, 2) or len(others) > 1 or not is_data:
            return None
        label = others[0] if others and self.labeled is not False else None
        if self.labeled if label is None else not self._may_be_labels(columns[label]):
            return None
        return Columns(texts[0], texts[1] if len(texts) == 2 else None, label, None)

    def _may_be_labels(self, cells: Sequence[str]) -> bool:
        """Whether cells are numbers, or names that come again, which those of examples do not."""
        if self.task == "regress":
            return all(map(_NUMBER.fullmatch, cells))
        return 2 * len(set(cells)) <= len(cells)

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
        self.names = [_plain(name) for name in table.columns or ()]

    def needed(
        self,
        role: str,
        given: Column | None,
        usual: Sequence[str],
        besides: Sequence[int | None] = (),
    ) -> int:
        found = self.one(role, given, usual, besides)
        if found is not None:
            return found
        if not self.has_names and len(self.table.first) == 1 and role == "text":
            return 0  # a text in each line
        listed = ", ".join(usual[:_NAMED]) + (" and the like" if len(usual) > _NAMED else "")
        why = f": none has a usual name ({listed})" if self.has_names else ""
        raise ValueError(
            f"`{role}` must name a column of {os.fspath(self.file.path)!r}{why}. "
            f"{self._what_exists()}"
            + (f" Name one of them with {_option(role)}." if self.has_names else "")
        )

    def several(self, given: Column | None) -> tuple[int, ...]:
        """The columns whose names or numbers stand in one text with commas between."""
        parts = _parts(given)
        if len(parts) < 2 or given in (self.table.columns or ()):
            return ()
        places = (self.one("label", part, ()) for part in parts)
        return tuple(place for place in places if place is not None)

    def one(
        self,
        role: str,
        given: Column | None,
        usual: Sequence[str],
        besides: Sequence[int | None] = (),
    ) -> int | None:
        if given is None:
            places = (self._only(role, self.names, name) for name in usual if name in self.names)
            return next((place for place in places if place not in besides), None)
        if self.has_names:
            names = self.table.columns or ()
            if given in names:
                return self._only(role, names, str(given))
            if isinstance(given, str) and _plain(given) in self.names:
                return self._only(role, self.names, _plain(given))
        number = as_number(given)
        if number is not None and 1 <= number <= len(self.table.first):
            return number - 1
        raise ValueError(
            f"`{role}` must name a column of {os.fspath(self.file.path)!r}. Received: "
            f"{role}={given!r}. {self._what_exists()}"
        )

    def _only(self, role: str, names: Sequence[str], name: str) -> int:
        """The place of a name, which no other column may have."""
        places = [place for place, one in enumerate(names, 1) if one == name]
        if len(places) > 1:
            raise ValueError(
                f"{os.fspath(self.file.path)!r} has {len(places)} columns named {name!r}, numbers "
                f"{', '.join(map(str, places))}: say by its number which is meant, such as "
                f"{_option(role)} {places[0]} (in Python {role}={places[0]})."
            )
        return places[0] - 1

    def _what_exists(self) -> str:
        if self.has_names:
            return f"Its columns are {', '.join(map(repr, self.table.columns or ()))}."
        if len(self.table.first) == 1:
            separators = "commas, semicolons, bars or tabs"
            if self.file.suffix != ".csv":
                separators = "tabs, or commas, semicolons or bars if its name ends in .csv,"
            return (
                f"Its first line is one column, {self.table.first[0]!r:.{_SHOWN}}: {separators} "
                "separate columns."
            )
        cells = ", ".join(
            f"{number}: {cell[:_SHOWN]!r}" for number, cell in enumerate(self.table.first, 1)
        )
        return (
            f"Its first line has no names of columns but {cells}. Name columns by their numbers, "
            "such as --text 2 --label 1 (in Python text=2, label=1); or, if these are names, by "
            "them."
        )


def _plain(name: str) -> str:
    """A name as names are compared."""
    return _CAPITAL.sub("_", name.strip()).lower().replace(" ", "_").replace("-", "_")


def _option(role: str) -> str:
    """The option of the commands that names a column."""
    return f"--{role.replace('_', '-')}"


def _parts(column: Column | None) -> list[str]:
    """The columns that one text names."""
    return [] if column is None else [part.strip() for part in str(column).split(",")]


def as_number(column: Column) -> int | None:
    """Returns the number that a column is named by, or None."""
    if isinstance(column, int):
        return column
    return int(column) if column.isdecimal() else None
