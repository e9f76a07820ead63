"""Find the columns of a table that contain the texts, the labels and the example ids.

Columns are given by name, or by number from 1 if no column has this number as its name. Otherwise,
columns with common names are used. Names match regardless of case, and "review text", "review-text"
and "reviewText" match "review_text".
"""

import dataclasses
import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from keras_bert_d2l.checks import shown, shown_names
from keras_bert_d2l.contract.task import AnyTask, task_named
from keras_bert_d2l.data.tasks.readers.cells import NumberFormat, is_flag
from keras_bert_d2l.data.tasks.readers.tables import Table
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
_NAME = re.compile(r"[\w#.-]*")
_SHOWN = 30  # maximum number of characters of a cell in an error message
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
    label_names: tuple[str, ...] = ()

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
        task = task_named(self.task)
        if given:
            return not task.one_word_per_row or given <= names
        if task.one_word_per_row:  # a common name may also be a word
            return all(names & set(_usual(self.task, role)) for role in ("text", "label"))
        has_usual_text = not self.given and not names.isdisjoint(USUAL_TEXTS.split())
        if has_usual_text and all(map(_NAME.fullmatch, names)):
            return True
        roles = (_usual(self.task, role) for role in (*task.columns, "id"))
        known = set(itertools.chain(USUAL_TEXTS.split(), *_PAIRS, *roles))
        # A single match may be data: the label "question" before a question.
        return sum(name in known for name in names) >= min(2, len(cells))


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
        single = {role: getattr(self, role) for role in ("text", "text_b", "negative", "id")}
        places = {role: (place,) for role, place in single.items() if place is not None}
        several = {"label": self.labels, "choices": self.choices}
        return places | {role: found for role, found in several.items() if found}

    def named(self, table: Table) -> dict[str, str]:
        """Return the column names by role."""
        return {role: ", ".join(map(table.name, x)) for role, x in self.places().items()}


def with_likely_columns(table: Table, options: ReadingOptions) -> ReadingOptions:
    """Choose the columns of texts without a header if only one choice is likely.

    Columns whose cells mostly contain spaces are texts. One or two of them need exactly one other
    column, the labels: repeated values, or numbers if the labels are scores. If labels are ignored,
    a single column of texts may have any other columns.
    """
    if options.given or table.columns is not None:
        return options
    if not any(" " in cell.strip() for cell in table.first):
        return options  # the first row may be a header
    width = max(len(row.cells) for row in table.rows)
    cells = {place + 1: [row.text(place) for row in table.rows] for place in range(width)}
    texts = [place for place, column in cells.items() if _are_texts(column)]
    others = [place for place in cells if place not in texts]
    found: dict[str, Column] = dict(zip(("text", "text_b"), texts, strict=False))
    has_scores = task_named(options.task).has_scores
    if options.labeled is False and len(texts) == 1:
        return dataclasses.replace(options, columns=found)
    if len(texts) in (1, 2) and len(others) == 1 and _are_labels(cells[others[0]], has_scores):
        return dataclasses.replace(options, columns=found | {"label": others[0]})
    return options


def _are_texts(cells: Sequence[str]) -> bool:
    return 2 * sum(" " in cell.strip() for cell in cells) > len(cells)


def _are_labels(cells: Sequence[str], has_scores: bool) -> bool:
    if has_scores:
        numbers = map(NumberFormat.of(cells).value, cells)
        return 2 * sum(number is not None for number in numbers) > len(cells)
    # Unlike example ids, labels are repeated. So is the first, unless it is in a header.
    return 2 * len(set(cells)) <= len(cells) and cells[0] in cells[1:]


def find_columns(file: TextFile, table: Table, options: ReadingOptions) -> Columns:
    """Find the columns of a task in a table.

    Raises:
        ValueError: A given or required column does not exist.
    """
    found = _Finder(file, table, options).find()
    roles: dict[int, str] = {}
    for role, places in found.places().items():
        for place in places if role != "id" else ():
            if roles.setdefault(place, role) != role:
                raise ValueError(
                    f"`{roles[place]}` and `{role}` must be different columns of "
                    f"{os.fspath(file.path)!r}. Received: {shown(table.name(place))} for both."
                )
    return found


class _Finder:
    """Finds the columns of a table by the given names or numbers, or by common names."""

    def __init__(self, file: TextFile, table: Table, options: ReadingOptions) -> None:
        self._file, self._table, self._options = file, table, options
        self._task: AnyTask = task_named(options.task)
        self._names = table.columns or ()
        self._plain_names = [plain_name(name) for name in self._names]

    def find(self) -> Columns:
        text, text_b = self._texts()
        choices = self._choices() if "choices" in self._task.columns else ()
        label: int | None = None
        flags: tuple[int, ...] = ()
        if self._options.labeled is not False:
            others = (text, text_b, self._one("id"))
            if "multi_label" in self._task.options:
                flags = self._several("label") or self._flags(others)
            can_do_without = "negative" in self._task.columns  # pairs may have no scores
            is_needed = self._options.labeled and not can_do_without
            find = self._needed if is_needed else self._one
            if len(flags) < 2:
                label, flags = find("label", besides=(text, text_b, *choices)), ()
        return Columns(text, text_b, label, self._one("id"), flags, self._one("negative"), choices)

    def _texts(self) -> tuple[int, int | None]:
        if self._task.finds_pairs and not self._options.columns.keys() & {"text", "text_b"}:
            for names in _PAIRS:
                first, second = map(self._place_of, names)
                if first is not None and second is not None:
                    return first, second
        text = self._needed("text")
        if self._task.needs_text_b:
            return text, self._needed("text_b")
        return text, self._one("text_b", besides=(text,))

    def _choices(self) -> tuple[int, ...]:
        """Return the column of lists of choices, or the columns of the choices."""
        if given := self._several("choices"):
            return given
        found = [_CHOICE.fullmatch(name) for name in self._plain_names]
        stems = Counter(match[1] for match in found if match)
        stem, number = max(stems.items(), key=lambda item: item[1], default=("", 0))
        if number < 2:
            return (self._needed("choices"),)
        numbers = {n: match[2] for n, match in enumerate(found) if match and match[1] == stem}
        return tuple(sorted(numbers, key=lambda n: (len(numbers[n]), numbers[n])))

    def _several(self, role: str) -> tuple[int, ...]:
        """Return the columns that are given for a role, separated by commas."""
        given = self._options.columns.get(role)
        if isinstance(given, int) or (given is not None and self._place_of(given) is not None):
            return (self._given(role, given),)
        return tuple(self._given(role, part) for part in _parts(given))

    def _flags(self, besides: Sequence[int | None]) -> tuple[int, ...]:
        """Return the columns of 1 and 0, if no other column has labels."""
        if "label" in self._options.columns or self._one("label", besides) is not None:
            return ()
        # pandas names a column of row numbers "Unnamed: 0".
        named = [n for n, name in enumerate(self._plain_names) if name and name[:7] != "unnamed"]
        return tuple(place for place in named if place not in besides and self._has_flags(place))

    def _has_flags(self, place: int) -> bool:
        cells = {row.text(place).strip() for row in self._table.rows} - {""}
        return bool(cells) and all(map(is_flag, cells - {"-1"}))  # -1: unknown

    def _needed(self, role: str, besides: Sequence[int | None] = ()) -> int:
        found = self._one(role, besides)
        if found is not None:
            return found
        if self._table.columns is None and len(self._table.first) == 1 and role == "text":
            return 0  # one text per line
        usual = shown_names(_usual(self._options.task, role))
        raise self._missing(role, f"none with a common name ({usual})")

    def _one(self, role: str, besides: Sequence[int | None] = ()) -> int | None:
        given = self._options.columns.get(role)
        if given is not None:
            return self._given(role, given)
        # The column "ID" of CoNLL-U contains word numbers.
        has_ids = role != "id" or not self._table.has_words
        places = map(self._place_of, _usual(self._options.task, role) if has_ids else ())
        return next((x for x in places if x is not None and x not in besides), None)

    def _given(self, role: str, column: Column) -> int:
        place = self._place_of(column)
        if place is not None:
            return place
        number = None if any(map(str.isdecimal, self._names)) else _number(column)
        if number is not None and 1 <= number <= len(self._table.first):
            return number - 1
        raise self._missing(role, f"{role}={shown(column)}")

    def _place_of(self, column: Column) -> int | None:
        """Return the position of the column with a name, which must be unique."""
        for names, name in (
            (self._names, str(column)),
            (self._plain_names, plain_name(str(column))),
        ):
            places = [place for place, one in enumerate(names) if one == name]
            if len(places) > 1:
                raise ValueError(
                    f"A column of {os.fspath(self._file.path)!r} must be unambiguous. Received: "
                    f"{len(places)} columns named {shown(name)}, numbers "
                    f"{shown_names(place + 1 for place in places)}. Rename all but one, or choose "
                    "one by its number."
                )
            if places:
                return places[0]
        return None

    def _missing(self, role: str, received: str) -> ValueError:
        if self._table.columns is not None:
            exists = f"Its columns are {shown_names(self._names)}."
        else:
            cells = enumerate(self._table.first, 1)
            first = ", ".join(f"{number}: {cell[:_SHOWN]!r}" for number, cell in cells)
            exists = f"Its columns have no names; the first row is {first}."
        return ValueError(
            f"`{role}` must name a column of {os.fspath(self._file.path)!r}. Received: {received}. "
            f"{exists} Choose one by its name, or by its number from 1, with "
            f"--{role.replace('_', '-')} (`{role}` in Python)."
        )


def _usual(task: str, role: str) -> list[str]:
    return (_IDS if role == "id" else task_named(task).columns.get(role, "")).split()


@functools.lru_cache  # records of JSON repeat the same names
def plain_name(name: str) -> str:
    """Normalize a column name for comparison."""
    return _CAPITAL.sub("_", name.strip()).lower().replace(" ", "_").replace("-", "_")


def _parts(column: Column | None) -> list[str]:
    """Split a string of column names separated by commas."""
    return [] if column is None else [part.strip() for part in str(column).split(",")]


def _number(column: Column) -> int | None:
    """Return the number of a column that is given by number, or else None."""
    if isinstance(column, int):
        return column
    return int(column) if column.isdecimal() else None
