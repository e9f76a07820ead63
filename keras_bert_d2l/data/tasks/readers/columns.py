"""Find the columns of a table that contain the texts, the labels and the example ids.

Columns are given by name, or by number from 1. In JSON and in memory, a number is first looked up
as a name. Otherwise, columns with common names are used. Names match
regardless of case, and "review text", "review-text" and "reviewText" match "review_text".
"""

import dataclasses
import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from keras_bert_d2l.checks import shown, shown_names
from keras_bert_d2l.contract.registry import task_named
from keras_bert_d2l.contract.task import AnyTask
from keras_bert_d2l.data.tasks.readers.cells import as_string
from keras_bert_d2l.data.tasks.readers.tables import Table, is_json
from keras_bert_d2l.data.tasks.readers.text_file import TextFile

Column: TypeAlias = str | int
# Common names of columns of texts, the most common first.
USUAL_TEXTS = (
    "text sentence content review comment comment_text review_text review_body tweet message "
    "utterance phrase document article body question headline title"
)
_IDS = (
    "id idx index guid pairid pair_id qid uid example_id sent_id sentence_id sentence_idx "
    "sentence_number sentence_#"
)
# Common names of two text columns; #1_string is from the Microsoft paraphrase corpus.
_PAIRS = tuple(
    pair.split("+")
    for pair in (
        "premise+hypothesis sentence1+sentence2 question1+question2 sentence_a+sentence_b "
        "sent1+sent2 text_a+text_b text1+text2 text+text_b #1_string+#2_string question+sentence "
        "question+passage title+description title+content"
    ).split()
)
# The names of columns that contain one choice each, such as "ending0" and "answerA".
_CHOICE = re.compile(r"(ending|choice|option|opt|answer|candidate|sol)_?([0-9]+|[a-j])")
_LONGEST_NAME = 40  # maximum number of characters in a column name
_NAME = re.compile(r"[\w#.-]*")
NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)\s*")
_SHOWN = 30  # maximum number of characters of a cell in an error message
_NAMED = 8  # maximum number of common names in an error message
_SAMPLE = 1000  # rows used to distinguish texts from labels
_CAPITAL = re.compile(r"(?<=[a-z\d])(?=[A-Z])")


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """Options of `read_examples`, which documents them.

    `columns` has the columns that the caller chose, by role.
    """

    task: str
    columns: Mapping[str, Column]
    multi_label: bool = False
    separator: str = ","
    header: bool | None = None
    labeled: bool | None = None

    @property
    def given(self) -> list[Column]:
        """The chosen columns that are read."""
        ignored = "label" if self.labeled is False else ""
        return [column for role, column in self.columns.items() if role != ignored]

    def is_header(self, cells: Sequence[str]) -> bool:
        """Return whether the first row of a table contains column names."""
        if self.header is not None:
            return self.header
        names = {plain_name(cell) for cell in cells}
        given = {
            plain_name(part) for one in self.given for part in _parts(one) if _number(part) is None
        }
        if task_named(self.task).one_word_per_row:  # a common name may also be a word
            if given:
                return given <= names
            return all(names & set(_usual(self.task, role)) for role in ("text", "label"))
        if given:
            return True  # otherwise the named column could not exist
        if any(len(name) > _LONGEST_NAME for name in names):
            return False
        if not self.given and names & set(USUAL_TEXTS.split()) and all(map(_NAME.fullmatch, names)):
            return True
        roles = (_usual(self.task, role) for role in (*task_named(self.task).columns, "id"))
        known = set(itertools.chain(USUAL_TEXTS.split(), *_PAIRS, *roles))
        # A single match may be data: the label "question" before a question.
        return sum(plain_name(cell) in known for cell in cells) >= min(2, len(cells))


@dataclasses.dataclass(frozen=True)
class Columns:
    """Positions of the columns in a table, from 0; None if there is no such column.

    `flags` are columns of 1 and 0, one per label, that indicate whether a text has the label.
    `choices` is one column of lists, or one column per choice.
    """

    text: int
    text_b: int | None = None
    label: int | None = None
    id: int | None = None
    flags: tuple[int, ...] = ()
    negative: int | None = None
    choices: tuple[int, ...] = ()

    @property
    def labels(self) -> tuple[int, ...]:
        """The columns of labels."""
        return self.flags or (() if self.label is None else (self.label,))

    def places(self) -> dict[str, tuple[int, ...]]:
        """Return the columns by role."""
        roles = ("text", "text_b", "negative", "label", "id", "choices")
        places = {role: getattr(self, role) for role in roles} | {"label": self.labels}
        several = {role: x if isinstance(x, tuple) else (x,) for role, x in places.items()}
        return {role: found for role, found in several.items() if found not in ((), (None,))}

    def named(self, table: Table) -> dict[str, str]:
        """Return the column names by role."""
        return {role: ", ".join(map(table.name, x)) for role, x in self.places().items()}


def find_columns(file: TextFile, table: Table, options: ReadingOptions) -> Columns:
    """Find the columns of a task in a table.

    Raises:
        ValueError: A given or required column does not exist.
    """
    likely = _likely_columns(table, options) if table.columns is None else None
    return likely or _Finder(file, table, options).find()


def _likely_columns(table: Table, options: ReadingOptions) -> Columns | None:
    """Return the columns of a table without a header if there is only one likely choice."""
    if options.given:
        return None
    if not any(" " in cell.strip() for cell in table.first):
        return None  # the first row may be a header
    rows = [[as_string(cell) for cell in row.cells] for row in table.rows[:_SAMPLE]]
    columns = list(itertools.zip_longest(*rows, fillvalue=""))
    return task_named(options.task).columns_without_names(columns, options)


def columns_of_texts(
    columns: Sequence[Sequence[str]],
    options: ReadingOptions,
    are_labels: Callable[[Sequence[str]], bool],
) -> Columns | None:
    """Return the columns of a table without names if there is only one likely choice.

    One or two columns in which most cells contain a space are texts. At most one other column
    remains, which contains labels.

    Args:
        columns: The cells of each column.
        options: The options.
        are_labels: Whether the cells of a column look like labels.
    """
    texts: list[int] = []
    others: list[int] = []
    for place, cells in enumerate(columns):
        is_text = 2 * sum(" " in cell.strip() for cell in cells) > len(cells)
        (texts if is_text else others).append(place)
    if len(texts) not in (1, 2) or len(others) > 1:
        return None
    text_b = texts[1] if len(texts) == 2 else None
    if not others or options.labeled is False:
        return None if options.labeled else Columns(texts[0], text_b)
    is_label = are_labels(columns[others[0]])
    return Columns(texts[0], text_b, others[0]) if is_label else None


@dataclasses.dataclass(frozen=True)
class _Finder:
    """Finds the columns of a table by the given names or numbers, or by common names."""

    file: TextFile
    table: Table
    options: ReadingOptions

    @property
    def task(self) -> AnyTask:
        return task_named(self.options.task)

    def find(self) -> Columns:
        text, text_b = self._texts()
        choices = self._choices() if "choices" in self.task.columns else ()
        label: int | None = None
        flags: tuple[int, ...] = ()
        if self.options.labeled is not False:
            flags = self._several("label") if "multi_label" in self.task.options else ()
            can_do_without = "negative" in self.task.columns  # pairs may have no scores
            is_needed = self.options.labeled and not can_do_without
            find = self._needed if is_needed else self._one
            if len(flags) < 2:
                label, flags = find("label", besides=(text, text_b, *choices)), ()
        negative = self._one("negative")
        found = Columns(text, text_b, label, self._one("id"), flags, negative, choices)
        roles: dict[int, str] = {}
        for role, places in found.places().items():
            for place in places if role != "id" else ():
                if roles.setdefault(place, role) != role:
                    raise ValueError(
                        f"`{roles[place]}` and `{role}` must be different columns of "
                        f"{os.fspath(self.file.path)!r}. Received: "
                        f"{shown(self.table.name(place))} for both."
                    )
        return found

    def _texts(self) -> tuple[int, int | None]:
        options, names = self.options, self._plain_names()
        if self.task.finds_pairs and not options.columns.keys() & {"text", "text_b"}:
            for first, second in _PAIRS:
                if first in names and second in names:
                    return self._only("text", names, first), self._only("text_b", names, second)
        text = self._needed("text")
        if self.task.needs_text_b:
            return text, self._needed("text_b")
        return text, self._one("text_b", besides=(text,))

    def _choices(self) -> tuple[int, ...]:
        """Return the column of lists of choices, or the columns of the choices."""
        if given := self._several("choices"):
            return given
        found = [_CHOICE.fullmatch(name) for name in self._plain_names()]
        stems = Counter(match[1] for match in found if match)
        stem, number = max(stems.items(), key=lambda item: item[1], default=("", 0))
        if number < 2:
            return (self._needed("choices"),)
        numbers = {n: match[2] for n, match in enumerate(found) if match and match[1] == stem}
        return tuple(sorted(numbers, key=lambda n: (len(numbers[n]), numbers[n])))

    def _several(self, role: str) -> tuple[int, ...]:
        """Return the columns that are given for a role, separated by commas."""
        given = self.options.columns.get(role)
        is_one = isinstance(given, int) or given in (self.table.columns or ())
        parts = [given] if is_one and given is not None else _parts(given)
        return tuple(self._given(role, part) for part in parts)

    def _needed(self, role: str, besides: Sequence[int | None] = ()) -> int:
        found = self._one(role, besides)
        if found is not None:
            return found
        has_names = self.table.columns is not None
        if not has_names and len(self.table.first) == 1 and role == "text":
            return 0  # one text per line
        usual = _usual(self.options.task, role)
        why, how = "", ""
        if has_names:
            listed = ", ".join(usual[:_NAMED]) + (", ..." if len(usual) > _NAMED else "")
            why = f": none has a common name ({listed})"
            option = f"{_option(role)} (`{role}` in Python)"
            how = f" Rename one of them to {usual[0]!r}, or choose one with {option}."
        raise self._missing(role, why, how)

    def _missing(self, role: str, why: str, how: str = "") -> ValueError:
        name = os.fspath(self.file.path)
        exists = self._what_exists()
        return ValueError(f"`{role}` must name a column of {name!r}{why}. {exists}{how}")

    def _one(self, role: str, besides: Sequence[int | None] = ()) -> int | None:
        given = self.options.columns.get(role)
        if given is not None:
            return self._given(role, given)
        names = self._plain_names()
        usual = _usual(self.options.task, role)
        if role == "id" and self.table.has_words:
            usual = []  # the column "ID" of CoNLL-U contains word numbers
        places = (self._only(role, names, name) for name in usual if name in names)
        return next((place for place in places if place not in besides), None)

    def _given(self, role: str, column: Column) -> int:
        has_keys = is_json(self.file)  # as data in memory, whose columns may be named 0 and 1
        for names, name in (
            (self.table.columns or (), str(column)),
            (self._plain_names(), plain_name(str(column))),
        ):
            if name in names and (isinstance(column, str) or has_keys):
                return self._only(role, names, name)
        number = _number(column)
        if has_keys and any(map(str.isdecimal, self.table.columns or ())):
            number = None  # a number that is not a name would select a column of another number
        if number is not None and 1 <= number <= len(self.table.first):
            return number - 1
        raise self._missing(role, f". Received: {role}={shown(column)}")

    def _only(self, role: str, names: Sequence[str], name: str) -> int:
        """Return the position of the column with a name, which must be unique."""
        places = [place for place, one in enumerate(names, 1) if one == name]
        if len(places) > 1:
            raise ValueError(
                f"{os.fspath(self.file.path)!r} has {len(places)} columns named {shown(name)}, "
                f"numbers {shown_names(places)}. Rename all but one, or choose one by its "
                f"number, such as {_option(role)} {places[0]} ({role}={places[0]} in Python)."
            )
        return places[0] - 1

    def _plain_names(self) -> list[str]:
        return [plain_name(name) for name in self.table.columns or ()]

    def _what_exists(self) -> str:
        """Describe the columns of the table for an error message."""
        if self.table.columns is not None:
            return f"Its columns are {shown_names(self.table.columns)}."
        first = self.table.first
        cells = ", ".join(f"{number}: {cell[:_SHOWN]!r}" for number, cell in enumerate(first, 1))
        if len(first) == 1:
            return (
                f"Its first line is a single column, {cells}. Separate columns by tabs, in .csv "
                "files also by commas, semicolons or pipes, and in files of words also by spaces."
            )
        return (
            f"It has {len(first)} columns without names; the first row is {cells}. Add a first row "
            "with common names, or choose columns by their numbers, such as --text 2 --label 1 "
            "(text=2, label=1 in Python), or by their names if this row is a header."
        )


def _usual(task: str, role: str) -> list[str]:
    return (_IDS if role == "id" else task_named(task).columns.get(role, "")).split()


@functools.lru_cache  # records of JSON repeat the same names
def plain_name(name: str) -> str:
    """Normalize a column name for comparison."""
    return _CAPITAL.sub("_", name.strip()).lower().replace(" ", "_").replace("-", "_")


def _option(role: str) -> str:
    """Return the command line option that chooses a column."""
    return f"--{role.replace('_', '-')}"


def _parts(column: Column | None) -> list[str]:
    """Split a string of column names separated by commas."""
    return [] if column is None else [part.strip() for part in str(column).split(",")]


def _number(column: Column) -> int | None:
    """Return the number of a column that is given by number, or else None."""
    if isinstance(column, int):
        return column
    return int(column) if column.isdecimal() else None
