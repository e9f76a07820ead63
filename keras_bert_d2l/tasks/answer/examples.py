"""Read questions, contexts and answers from SQuAD 1.1, SQuAD 2.0, MRQA or a table."""

import ast
import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from keras_bert_d2l.checks import shown, shown_names
from keras_bert_d2l.data.tasks.examples import TaskExamples, check_each, how_many
from keras_bert_d2l.data.tasks.readers.cells import (
    Unusable,
    as_flag,
    as_string,
    collect,
    listed,
    unusable_if,
    without_numpy,
    without_point,
)
from keras_bert_d2l.data.tasks.readers.columns import (
    Columns,
    ReadingOptions,
    find_columns,
    plain_name,
)
from keras_bert_d2l.data.tasks.readers.tables import Table, is_json, json_values, read_table
from keras_bert_d2l.data.tasks.readers.text_file import TextFile


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer, which is a span of a text.

    Attributes:
        text: The answer.
        start: Position of its first character in the text.

    Example:

        >>> import keras_bert_d2l as kb
        >>> answer = kb.Answer("crane", start=2)
        >>> "A crane flies."[answer.start : answer.end]
        'crane'
    """

    text: str
    start: int

    @property
    def end(self) -> int:
        """The position after its last character."""
        return self.start + len(self.text)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class QuestionExamples(TaskExamples):
    """Questions about contexts that may contain the answers.

    Args:
        questions: N questions.
        contexts: The text that each question is about.
        titles: The title of the article that each context is from, if known.
        answers: The correct answers to each question; empty if the context has none. None if
            they are unknown.
        **kwargs: The fields of `TaskExamples`.

    Raises:
        ValueError: An answer is not at its position in the context.

    Example:

        >>> import keras_bert_d2l as kb
        >>> examples = kb.QuestionExamples(
        ...     questions=["What flies?"],
        ...     contexts=["A crane flies."],
        ...     answers=[[kb.Answer("crane", start=2)]],
        ... )
        >>> examples.has_labels
        True
    """

    sequences: ClassVar[tuple[str, ...]] = ("questions", "contexts", "titles", "answers")

    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    titles: tuple[str | None, ...] | None = None
    answers: tuple[tuple[Answer, ...], ...] | None = None
    task: str = "answer"

    def split_keys(self) -> list[str]:
        """Return the article of each question, or else its context."""
        titles = self.titles or self.contexts
        return [title or text for title, text in zip(titles, self.contexts, strict=True)]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_each(self, "answers", _are_answers, "a tuple of `Answer`, empty for no answer")
        answers = zip(self.ids, self.contexts, self.answers or (), strict=False)
        placed = ((name, context, one) for name, context, found in answers for one in found)
        for name, context, answer in placed:
            if not stands_in(answer, context):
                raise ValueError(
                    f"An answer must be at its position in the context. Received: "
                    f"{shown(answer.text)} at character {answer.start} of example {shown(name)}, "
                    f"where the context has {shown(context[answer.start : answer.end])}."
                )


def _are_answers(items: object) -> bool:
    return isinstance(items, list | tuple) and all(isinstance(item, Answer) for item in items)


def stands_in(answer: Answer, context: str) -> bool:
    """Return whether the answer is at its position in the context."""
    return (
        bool(answer.text.strip())
        and answer.start >= 0
        and context.startswith(answer.text, answer.start)
    )


_Json: TypeAlias = Any  # a parsed JSON value

_Placed: TypeAlias = list[tuple[str, "_Question"]]  # with the location shown to the user

# Names of what says that a question has no answer, or has one.
_NO_ANSWER = "is_impossible impossible is_unanswerable unanswerable no_answer".split()
_HAS_ANSWER = "is_answerable answerable has_answer".split()
_FLAGS = {*_NO_ANSWER, *_HAS_ANSWER}
_MISSING = ("", "nan", "none", "null")
_STARTS = ("answer_start", "start", "answers.answer_start")
_TEXTS = {"text", "char_spans"}
_UNITS = {"utf-8": 1, "utf-16-le": 2}  # bytes of a unit in which positions may count


class _Question(NamedTuple):
    """A question as read from a file, with the field names of `QuestionExamples`."""

    ids: str
    questions: str
    contexts: str
    titles: str | None
    answers: tuple[Answer, ...] | None = None
    problem: str = ""


def question_examples(file: TextFile, options: ReadingOptions) -> QuestionExamples:
    """Read a SQuAD file, or a table with one question per row.

    Raises:
        ValueError: The file has a different format, or a column does not exist.
    """
    questions, columns, of_table = _read(file, options)
    has_answers = any(question.answers is not None for _, question in questions)

    corrected: list[str] = []

    def example(found: _Question) -> dict[str, object]:
        unusable_if(not found.questions.strip(), "empty question")
        unusable_if(not found.contexts.strip(), "empty context")
        unusable_if(bool(found.problem), found.problem)
        unusable_if(has_answers and found.answers is None, "no answers")
        if found.answers is None:
            return found._asdict()
        answers = tuple(_in_context(answer, found.contexts) for answer in found.answers)
        pairs = zip(found.answers, answers, strict=True)
        if any(before != answer and before.start >= 0 for before, answer in pairs):
            corrected.append(found.ids)
        return found._replace(answers=answers)._asdict()

    def notes() -> Iterator[str]:
        yield from of_table
        if corrected:
            yield (
                f"corrected the positions of the answers to {how_many(len(corrected), 'question')}"
                f", first {corrected[0]}: they count other units, such as bytes, or the text "
                "occurs elsewhere and only once"
            )

    return collect(QuestionExamples, file, questions, example, notes(), columns=columns)


def _in_context(answer: Answer, context: str) -> Answer:
    """Return the answer where its text is: at its position, or at the one that is meant.

    Raises:
        Unusable: The text is not there, and does not occur exactly once.
    """
    if stands_in(answer, context):
        return answer
    text, start, number = answer.text, answer.start, context.count(answer.text)
    if number == 1:
        return Answer(text, context.index(text))
    nowhere = "answer has no position, and does not occur exactly once in the context"
    unusable_if(start < 0, nowhere)
    unusable_if(not number, "answer does not occur in the context")
    for encoding, size in _UNITS.items():
        before = context.encode(encoding, "replace")[: start * size].decode(encoding, "ignore")
        if context.startswith(text, len(before)):
            return Answer(text, len(before))
    raise Unusable("answer is not at its position in the context, and occurs several times")


def _read(
    file: TextFile, options: ReadingOptions
) -> tuple[_Placed, dict[str, str], tuple[str, ...]]:
    """Return the questions of a file, and for a table its column names by role and its notes."""
    records: list[Mapping[str, _Json]] = []
    if is_json(file) and file.text.lstrip().startswith(("{", "[{")):
        records = [value for _, value in json_values(file) if isinstance(value, Mapping)]
        articles = records[0].get("data") if len(records) == 1 else None
        if any("qas" in record for record in records):  # MRQA, which may begin with a header
            articles = [{"paragraphs": [one for one in records if "header" not in one]}]
        if isinstance(articles, list) and any(
            isinstance(article, Mapping) and "paragraphs" in article for article in articles
        ):
            return list(_squad_questions(file, articles, options)), {}, ()
    try:
        table = read_table(file, options.is_header)
        columns = find_columns(file, table, options)
    except ValueError as error:
        if len(records) != 1 and not any("paragraphs" in record for record in records):
            raise
        raise ValueError(
            f"{os.fspath(file.path)!r} is not in SQuAD format, one object with a list 'data' of "
            "articles, each with 'paragraphs'. Received: an object with the keys "
            f"{shown_names(records[0])}. As a table of questions: {error}"
        ) from error
    return list(_table_questions(table, columns)), columns.named(table), table.notes


def _squad_questions(
    file: TextFile, articles: Sequence[_Json], options: ReadingOptions
) -> Iterator[tuple[str, _Question]]:
    number = itertools.count(1)
    for article in articles:
        for paragraph in _field(file, article, "paragraphs", list):
            context = as_string(_field(file, paragraph, "context"))
            for record in _field(file, paragraph, "qas", list):
                question = as_string(_field(file, record, "question"))
                name = as_string(record.get("id", record.get("qid", next(number))))
                title = as_string(article.get("title")) or None
                made = _Question(name, question, context, title)
                if options.labeled is not False:
                    found = record.get("detected_answers", record.get("answers"))
                    made = _answered(made, found, record)
                yield f"question {name}", made


def _table_questions(table: Table, columns: Columns) -> Iterator[tuple[str, _Question]]:
    places = {plain_name(name): place for place, name in enumerate(table.columns or ())}
    started = next((places[name] for name in _STARTS if name in places), None)
    label = columns.label
    cells = [row.text(label).strip() for row in table.rows]
    are_lists = [cell[:1] in ("", "[", "{") or listed(cell) is not None for cell in cells]
    has_lists = 2 * sum(are_lists) > len(cells)
    roles = (columns.id, columns.text, columns.text_b, places.get("title"))
    for row in table.rows:
        name, question, context, title = map(row.text, roles)
        made = _Question(name or str(row.line), question, context, title or None)
        if label is not None and label < len(row.cells):
            found = _from_cell(row.cells[label], row.text(started), has_lists)
            made = _answered(made, found, {name: row.cell(x) for name, x in places.items()})
        yield f"line {row.line:,}", made


def _answered(made: _Question, found: _Json, record: Mapping[str, _Json]) -> _Question:
    """Return a question with its answers, of which a field of the record may say that none exist.

    A field that contradicts the answers is a problem, so no answer is deleted without a word.
    """
    answers = _answers(found, made.contexts)
    for key, value in record.items():
        name, text = plain_name(key), as_string(value).strip()
        if name not in _FLAGS or text.lower() in _MISSING:
            continue
        flag = as_flag(text)
        if flag is None:
            return made._replace(problem=f"{name} is neither true nor false")
        has_none = flag == (name in _NO_ANSWER)
        if has_none and answers:
            return made._replace(problem=f"an answer, although {name} says that there is none")
        answers = () if has_none else answers or None
    return made._replace(answers=answers)


def _from_cell(cell: object, start: str, has_lists: bool) -> _Json:
    """Parse the answers in a cell: JSON, a Python literal, or the text of one answer.

    Args:
        cell: The cell.
        start: The position of the answer, or the list of positions, if there is a column for it.
        has_lists: Whether the texts of the column are lists or objects, and not answers.
    """
    if start.strip() and not as_string(cell).strip():
        return []  # as some data sets write that there is no answer
    items = listed(cell, has_lists) if has_lists or isinstance(cell, list) else None
    if items is not None:
        are_texts = all(isinstance(item, str) for item in items)
        starts = listed(start) if are_texts else None
        return items if starts is None else {"text": items, "answer_start": starts}
    if not isinstance(cell, str) or not cell.strip():
        return cell
    if cell.lstrip().startswith(("{", "[{")):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(cell)
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(without_numpy(cell))
    starts = listed(start)
    return [{"text": cell, "answer_start": starts[0] if starts else start}]


def _answers(found: _Json, context: str) -> tuple[Answer, ...] | None:
    """Parse answers given as a list, as in SQuAD, or as an object of lists, as in tables.

    Answers with an empty text say that there is none.
    """
    if isinstance(found, Mapping) and "text" in found:
        found = {name: found.get(name) for name in ("text", "answer_start")}
        columns = [value if isinstance(value, list) else [value] for value in found.values()]
        rows = itertools.zip_longest(*columns)
        found = [dict(zip(found, cells, strict=True)) for cells in rows]
    if not isinstance(found, list):
        return None
    items = [{"text": item} if isinstance(item, str) else item for item in found]
    if any(not isinstance(item, dict) or _TEXTS.isdisjoint(item) for item in items):
        return None
    answers = (_answer(item, context) for item in items)
    return tuple(answer for answer in answers if answer.text.strip())


def _answer(item: Mapping[str, _Json], context: str) -> Answer:
    """Return an answer with its given position, or -1."""
    text = as_string(item.get("text"))
    given = item.get("answer_start", item.get("start"))
    match item.get("char_spans"):
        case [[int(first), int(last)], *_]:  # MRQA; the end is inclusive
            inside = context[first : last + 1]
            is_same = "".join(inside.split()).lower() == "".join(text.split()).lower()
            return Answer(inside if is_same or not text else text, first)
    if type(given) is int:
        return Answer(text, given)
    start = without_point(as_string(given).strip())
    return Answer(text, int(start) if start.removeprefix("-").isdecimal() else -1)


def _field(file: TextFile, record: _Json, key: str, kind: type = object) -> _Json:
    """Return a field of an object in a SQuAD file, or raise `ValueError`."""
    if (
        isinstance(record, Mapping)
        and isinstance(record.get(key, file if kind is list else None), kind)
        and key in record
    ):
        return record[key]
    a = "a list " if kind is list else ""
    raise ValueError(
        f"{os.fspath(file.path)!r}: SQuAD needs {a}{key!r} here. Received: {shown(record)}."
    )
