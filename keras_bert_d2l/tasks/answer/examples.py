"""Read questions, contexts and answers from SQuAD 1.1, SQuAD 2.0, MRQA or a table."""

import ast
import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.examples import TaskExamples, check_each, is_string
from keras_bert_d2l.data.tasks.readers.cells import (
    Unusable,
    as_string,
    cell_string,
    collect,
    listed,
    without_point,
)
from keras_bert_d2l.data.tasks.readers.columns import Columns, ReadingOptions, find_columns
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
        for name in ("questions", "contexts"):
            check_each(self, name, is_string, "a string")
        check_each(self, "answers", _are_answers, "a tuple of `Answer`, empty for no answer")
        for name, context, answers in zip(
            self.ids, self.contexts, self.answers or (), strict=False
        ):
            for answer in answers:
                if not stands_in(answer, context):
                    raise ValueError(
                        f"An answer must be at its position in the context. Received: "
                        f"{shown(answer.text)} at character {answer.start} of example {name!r}, "
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

_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)  # a NumPy array as text


class _Question(NamedTuple):
    """A question as read from a file, with the field names of `QuestionExamples`."""

    ids: str
    questions: str
    contexts: str
    titles: str | None
    answers: tuple[Answer, ...] | None


def question_examples(file: TextFile, options: ReadingOptions) -> QuestionExamples:
    """Read a SQuAD file, or a table with one question per row.

    Raises:
        ValueError: The file has a different format, or a column does not exist.
    """
    questions, columns = _read(file, options)
    has_answers = any(question.answers is not None for _, question in questions)

    def example(found: _Question) -> dict[str, object]:
        answers = found.answers or ()
        if not found.questions.strip():
            raise Unusable("empty question")
        if not found.contexts.strip():
            raise Unusable("empty context")
        if has_answers and found.answers is None:
            raise Unusable("no answers")
        if any(answer.start < 0 for answer in answers):
            raise Unusable("answer has no position, and does not occur exactly once in the context")
        if not all(stands_in(answer, found.contexts) for answer in answers):
            raise Unusable("answer is not at its position in the context")
        return found._asdict()

    return collect(
        QuestionExamples,
        file,
        questions,
        example,
        columns=columns,
    )


def _read(file: TextFile, options: ReadingOptions) -> tuple[_Placed, dict[str, str]]:
    """Return the questions of a file, and for a table its column names by role."""
    records: list[Mapping[str, _Json]] = []
    if is_json(file) and file.text.lstrip().startswith(("{", "[{")):
        records = [value for _, value in json_values(file) if isinstance(value, Mapping)]
        articles = records[0].get("data") if len(records) == 1 else None
        if isinstance(articles, list) and any(
            isinstance(article, Mapping) and "paragraphs" in article for article in articles
        ):
            return list(_squad_questions(file, articles, options)), {}
        if any("qas" in record for record in records):  # MRQA, which may begin with a header
            article = {"paragraphs": [record for record in records if "header" not in record]}
            return list(_squad_questions(file, [article], options)), {}
    try:
        table = read_table(file, options.is_header)
        columns = find_columns(file, table, options)
    except ValueError as error:
        if len(records) != 1 and not any("paragraphs" in record for record in records):
            raise
        raise ValueError(
            f"{os.fspath(file.path)!r} is not in SQuAD format, one object with a list 'data' of "
            "articles, each with 'paragraphs'. Received: an object with the keys "
            f"{', '.join(map(repr, records[0]))}. As a table of questions: {error}"
        ) from error
    return list(_table_questions(table, columns)), columns.named(table)


def _squad_questions(
    file: TextFile, articles: Sequence[_Json], options: ReadingOptions
) -> Iterator[tuple[str, _Question]]:
    number = 0
    for article in articles:
        for paragraph in _list(file, article, "paragraphs", "article"):
            context = as_string(_key(file, paragraph, "context", "paragraph"))
            for record in _list(file, paragraph, "qas", "paragraph"):
                number += 1
                question = as_string(_key(file, record, "question", "question"))
                name = as_string(record.get("id", record.get("qid", number)))
                answers = None
                if options.labeled is not False:
                    found = record.get("detected_answers", record.get("answers"))
                    answers = () if record.get("is_impossible") else _answers(found, context)
                title = as_string(article.get("title")) or None
                yield f"question {name}", _Question(name, question, context, title, answers)


def _table_questions(table: Table, columns: Columns) -> Iterator[tuple[str, _Question]]:
    places = {name: place for place, name in enumerate(table.columns or ())}
    for row in table.rows:
        context, answers = cell_string(row.cells, columns.text_b), None
        if columns.label is not None and columns.label < len(row.cells):
            start = cell_string(row.cells, places.get("answer_start"))
            answers = _answers(_from_cell(row.cells[columns.label], start), context)
        name = cell_string(row.cells, columns.id) or str(row.line)
        question = cell_string(row.cells, columns.text)
        title = cell_string(row.cells, places.get("title")) or None
        yield f"line {row.line:,}", _Question(name, question, context, title, answers)


def _from_cell(cell: object, start: str) -> _Json:
    """Parse the answers in a cell: JSON, a Python literal, or the text of one answer."""
    if not isinstance(cell, str) or not cell.strip():
        return cell
    if (items := listed(cell)) is not None:
        return items
    if cell.lstrip().startswith(("{", "[{")):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(cell)
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(_ARRAY.sub(r"\1", cell))
    return [{"text": cell, "answer_start": start}]


def _answers(found: _Json, context: str) -> tuple[Answer, ...] | None:
    """Parse answers given as a list, as in SQuAD, or as an object of lists, as in tables."""
    if isinstance(found, Mapping):
        texts, starts = (_several(found.get(name)) for name in ("text", "answer_start"))
        found = [
            {"text": text, "answer_start": start}
            for text, start in itertools.zip_longest(texts, starts)
        ]
    if not isinstance(found, list) or not all(isinstance(item, Mapping | str) for item in found):
        return None
    items = (item if isinstance(item, Mapping) else {"text": item} for item in found)
    return tuple(_answer(item, context) for item in items)


def _several(value: _Json) -> list[_Json]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _answer(item: Mapping[str, _Json], context: str) -> Answer:
    """Return an answer with its given position, that of its only occurrence, or -1."""
    text = as_string(item.get("text"))
    start = without_point(as_string(item.get("answer_start", item.get("start"))).strip())
    match item.get("char_spans"):
        case [[int(first), int(last)], *_]:  # MRQA; the end is inclusive
            return Answer(context[first : last + 1], first)
    if start.removeprefix("-").isdecimal():
        return Answer(text, int(start))
    return Answer(text, context.find(text) if context.count(text) == 1 else -1)


def _list(file: TextFile, record: _Json, key: str, kind: str) -> list[_Json]:
    found = _key(file, record, key, kind)
    if isinstance(found, list):
        return found
    raise ValueError(
        f"{os.fspath(file.path)!r}: {key!r} of every {kind} in SQuAD format must be a list. "
        f"Received: {json.dumps(found)[:60]}."
    )


def _key(file: TextFile, record: _Json, key: str, kind: str) -> _Json:
    if isinstance(record, Mapping) and key in record:
        return record[key]
    keys = f"the keys {', '.join(record)}" if isinstance(record, Mapping) else repr(record)[:60]
    raise ValueError(
        f"{os.fspath(file.path)!r}: every {kind} in SQuAD format must have {key!r}. Received: "
        f"{keys}."
    )
