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
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.readers.cells import as_string
from keras_bert_d2l.data.tasks.readers.tables import Table, is_json
from keras_bert_d2l.data.tasks.readers.text_file import TextFile

Column: TypeAlias = str | int
_TEXTS = (
    "text sentence content review comment comment_text review_text review_body tweet message "
    "utterance phrase document article body question headline title"
)
# Common column names by task and role, the most common first.
_USUAL = {
    ("classify", "text"): _TEXTS,
    ("classify", "label"): "label gold_label labels class class_index category sentiment emotion "
    "emotions quality is_duplicate entailment_judgment entailment_label polarity intent topic "
    "target coarse_label label_coarse answer stars star_rating rating overall score",
    ("regress", "text"): _TEXTS,
    ("regress", "label"): "score similarity similarity_score relatedness_score label rating stars "
    "star_rating overall target gold value labels",
    ("tag", "text"): "words tokens word token sentence form",
    ("tag", "label"): "tags ner_tags pos_tags upos labels label ner tag pos chunk_tags",
    ("embed", "text"): "anchor query question",
    ("embed", "text_b"): "positive passage answer document context response",
    ("embed", "negative"): "negative hard_negative",
    ("embed", "label"): "score similarity similarity_score relatedness_score label gold",
    ("choose", "text"): "sent1 article context ctx premise passage text question question_stem "
    "goal sentence prompt",
    ("choose", "text_b"): "sent2 question",
    ("choose", "choices"): "choices options endings candidates answers",
    ("choose", "label"): "label answer answer_key gold correct target",
    ("answer", "text"): "question",
    ("answer", "text_b"): "context passage paragraph text document",
    ("answer", "label"): "answers answer answer_text text",
}
_IDS = "id idx index guid pairid pair_id qid uid example_id sent_id sentence_id sentence_#"
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
_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)\s*")
_SHOWN = 30  # maximum number of characters of a cell in an error message
_NAMED = 8  # maximum number of common names in an error message
_SAMPLE = 1000  # rows used to distinguish texts from labels
_CAPITAL = re.compile(r"(?<=[a-z\d])(?=[A-Z])")


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """Options of `read_examples`, which documents them."""

    task: str
    text: Column | None = None
    text_b: Column | None = None
    negative: Column | None = None
    label: Column | None = None
    id: Column | None = None
    multi_label: bool = False
    separator: str = ","
    header: bool | None = None
    labeled: bool | None = None
    choices: Column | None = None

    @property
    def given(self) -> list[Column]:
        """The columns that the caller chose."""
        label = None if self.labeled is False else self.label
        columns = (self.text, self.text_b, self.negative, self.choices, label, self.id)
        return [column for column in columns if column is not None]

    def is_header(self, cells: Sequence[str]) -> bool:
        """Return whether the first row of a table contains column names."""
        if self.header is not None:
            return self.header
        names = {_plain(cell) for cell in cells}
        given = {
            _plain(part) for one in self.given for part in _parts(one) if _number(part) is None
        }
        if self.task == "tag":  # a common name may also be a word of the first sentence
            if given:
                return given <= names
            return all(names & set(_usual("tag", role)) for role in ("text", "label"))
        if given:
            return True  # otherwise the named column could not exist
        if any(len(name) > _LONGEST_NAME for name in names):
            return False
        if not self.given and names & set(_TEXTS.split()) and all(map(_NAME.fullmatch, names)):
            return True
        names_of = functools.partial(_usual, self.task)
        roles = map(names_of, ("text", "text_b", "negative", "choices", "label", "id"))
        known = set(itertools.chain(_TEXTS.split(), *_PAIRS, *roles))
        # A single match may be data: the label "question" before a question.
        return sum(_plain(cell) in known for cell in cells) >= min(2, len(cells))


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
    def texts(self) -> list[int]:
        """The columns of texts."""
        texts = (self.text, self.text_b, self.negative)
        return [place for place in texts if place is not None]

    def named(self, table: Table) -> dict[str, str]:
        """Return the column names by role."""
        roles = ("text", "text_b", "negative", "label", "id")
        single = {role: getattr(self, role) for role in roles}
        names = {role: table.name(place) for role, place in single.items() if place is not None}
        several = {"label": self.flags, "choices": self.choices}
        joined = {role: ", ".join(map(table.name, x)) for role, x in several.items() if x}
        return names | joined


def find_columns(file: TextFile, table: Table, options: ReadingOptions) -> Columns:
    """Find the columns of a task in a table.

    Raises:
        ValueError: A given or required column does not exist.
    """
    likely = _likely_columns(table, options) if table.columns is None else None
    return likely or _Finder(file, table, options).find()


def _likely_columns(table: Table, options: ReadingOptions) -> Columns | None:
    """Return the columns of a table without a header if there is only one likely choice.

    One or two columns in which most cells contain a space are texts. At most one other column
    remains, which contains labels.
    """
    if options.given or options.task not in ("classify", "regress", "embed"):
        return None
    rows = [[as_string(cell) for cell in row.cells] for row in table.rows[:_SAMPLE]]
    columns = list(itertools.zip_longest(*rows, fillvalue=""))
    texts: list[int] = []
    others: list[int] = []
    for place, cells in enumerate(columns):
        is_text = 2 * sum(" " in cell.strip() for cell in cells) > len(rows)
        (texts if is_text else others).append(place)
    # A first row in which no cell contains a space may be a header.
    may_be_header = not any(" " in cell.strip() for cell in table.first)
    if options.task == "embed":
        return _columns_of_pairs(columns, may_be_header=may_be_header)
    if len(texts) not in (1, 2) or len(others) > 1 or may_be_header:
        return None
    text_b = texts[1] if len(texts) == 2 else None
    if not others or options.labeled is False:
        return None if options.labeled else Columns(texts[0], text_b)
    labels = columns[others[0]]
    if options.task == "regress":
        are_labels = all(map(_NUMBER.fullmatch, labels))
    else:  # labels are repeated, example ids are not
        are_labels = 2 * len(set(labels)) <= len(labels)
    return Columns(texts[0], text_b, others[0]) if are_labels else None


def _columns_of_pairs(columns: Sequence[Sequence[str]], *, may_be_header: bool) -> Columns | None:
    """Return the columns of pairs by their order: the texts, and then a score or a negative."""
    if len(columns) not in (2, 3) or may_be_header:
        return None
    if len(columns) == 2:
        return Columns(0, 1)
    is_score = all(map(_NUMBER.fullmatch, columns[2]))
    return Columns(0, 1, label=2) if is_score else Columns(0, 1, negative=2)


@dataclasses.dataclass(frozen=True)
class _Finder:
    """Finds the columns of a table by the given names or numbers, or by common names."""

    file: TextFile
    table: Table
    options: ReadingOptions

    def find(self) -> Columns:
        text, text_b = self._texts()
        choices = self._choices() if self.options.task == "choose" else ()
        label = None
        flags = self._flags() if self.options.labeled is not False else ()
        if self.options.labeled is not False and not flags:
            is_needed = self.options.labeled and self.options.task != "embed"
            find = self._needed if is_needed else self._one
            label = find("label", besides=(text, text_b, *choices))
        negative = self._one("negative")
        self._check_different(
            {"text": text, "text_b": text_b, "negative": negative, "label": label},
            {"choices": choices, "label": flags},
        )
        return Columns(text, text_b, label, self._one("id"), flags, negative, choices)

    def _check_different(
        self, single: Mapping[str, int | None], several: Mapping[str, Sequence[int]]
    ) -> None:
        """Raise `ValueError` if a column has two roles."""
        places = [(role, place) for role, place in single.items() if place is not None]
        places += [(role, place) for role, found in several.items() for place in found]
        roles: dict[int, str] = {}
        for role, place in places:
            if roles.setdefault(place, role) != role:
                raise ValueError(
                    f"`{roles[place]}` and `{role}` must be different columns of "
                    f"{os.fspath(self.file.path)!r}. Received: {self.table.name(place)!r} for both."
                )

    def _texts(self) -> tuple[int, int | None]:
        options, names = self.options, self._plain_names()
        if options.task == "answer":
            return self._needed("text"), self._needed("text_b")
        if options.task == "choose":
            text = self._needed("text")
            return text, self._one("text_b", besides=(text,))
        if options.task != "tag" and options.text is None and options.text_b is None:
            for first, second in _PAIRS:
                if first in names and second in names:
                    return self._only("text", names, first), self._only("text_b", names, second)
        find = self._needed if options.task == "embed" else self._one
        return self._needed("text"), find("text_b")

    def _choices(self) -> tuple[int, ...]:
        """Return the column of lists of choices, or the columns of the choices."""
        given = self.options.choices
        if given is not None:
            parts = [given] if given in (self.table.columns or ()) else _parts(given)
            return tuple(self._given("choices", part) for part in parts)
        found = [_CHOICE.fullmatch(name) for name in self._plain_names()]
        stems = Counter(match[1] for match in found if match)
        stem, number = max(stems.items(), key=lambda item: item[1], default=("", 0))
        if number < 2:
            return (self._needed("choices"),)
        numbers = {n: match[2] for n, match in enumerate(found) if match and match[1] == stem}
        return tuple(sorted(numbers, key=lambda n: (len(numbers[n]), numbers[n])))

    def _flags(self) -> tuple[int, ...]:
        """Return the label columns if several are given, separated by commas."""
        given = self.options.label
        if self.options.task != "classify" or given in (self.table.columns or ()):
            return ()
        parts = _parts(given)
        return tuple(self._given("label", part) for part in parts) if len(parts) > 1 else ()

    def _needed(self, role: str, besides: Sequence[int | None] = ()) -> int:
        found = self._one(role, besides)
        if found is not None:
            return found
        has_names = self.table.columns is not None
        if not has_names and len(self.table.first) == 1 and role == "text":
            return 0  # one text per line
        usual = _usual(self.options.task, role)
        listed = ", ".join(usual[:_NAMED]) + (", ..." if len(usual) > _NAMED else "")
        why = f": none has a common name ({listed})" if has_names else ""
        raise ValueError(
            f"`{role}` must name a column of {os.fspath(self.file.path)!r}{why}. "
            f"{self._what_exists()}"
            + (
                f" Rename one of them to {usual[0]!r}, or choose one with {_option(role)} "
                f"(`{role}` in Python)."
                if has_names
                else ""
            )
        )

    def _one(self, role: str, besides: Sequence[int | None] = ()) -> int | None:
        given = getattr(self.options, role)
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
            (self._plain_names(), _plain(str(column))),
        ):
            if name in names and (isinstance(column, str) or has_keys):
                return self._only(role, names, name)
        number = _number(column)
        if has_keys and any(map(str.isdecimal, self.table.columns or ())):
            number = None  # a number that is not a name would select a column of another number
        if number is not None and 1 <= number <= len(self.table.first):
            return number - 1
        raise ValueError(
            f"`{role}` must name a column of {os.fspath(self.file.path)!r}. Received: "
            f"{role}={column!r}. {self._what_exists()}"
        )

    def _only(self, role: str, names: Sequence[str], name: str) -> int:
        """Return the position of the column with a name, which must be unique."""
        places = [place for place, one in enumerate(names, 1) if one == name]
        if len(places) > 1:
            raise ValueError(
                f"{os.fspath(self.file.path)!r} has {len(places)} columns named {name!r}, numbers "
                f"{', '.join(map(str, places))}. Rename all but one, or choose one by its "
                f"number, such as {_option(role)} {places[0]} ({role}={places[0]} in Python)."
            )
        return places[0] - 1

    def _plain_names(self) -> list[str]:
        return [_plain(name) for name in self.table.columns or ()]

    def _what_exists(self) -> str:
        """Describe the columns of the table for an error message."""
        if self.table.columns is not None:
            return f"Its columns are {', '.join(map(repr, self.table.columns))}."
        first = self.table.first
        if len(first) == 1:
            separators = "commas, semicolons, pipes or tabs"
            if self.table.has_words:
                separators = "tabs or spaces"
            elif self.file.suffix != ".csv":
                separators = "tabs (or commas, semicolons or pipes if the name ends in .csv)"
            return (
                f"Its first line is a single column, {shown(first[0])}. Columns must be "
                f"separated by {separators}."
            )
        such_as = "--text 2 --label 1 (text=2, label=1 in Python)"
        if self.options.labeled is False:
            such_as = "--text 2 (text=2 in Python)"
        cells = ", ".join(f"{number}: {cell[:_SHOWN]!r}" for number, cell in enumerate(first, 1))
        return (
            f"It has {len(first)} columns without names; the first row is {cells}. Add a first row "
            f"with common names, or choose columns by their numbers, such as {such_as}, or by "
            "their names if this row is a header."
        )


def _usual(task: str, role: str) -> list[str]:
    return (_IDS if role == "id" else _USUAL.get((task, role), "")).split()


def _plain(name: str) -> str:
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
