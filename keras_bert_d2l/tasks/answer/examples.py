"""Read questions, contexts and answers from SQuAD 1.1, SQuAD 2.0, MRQA or a table."""

import ast
import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.tasks.examples import TaskExamples, check_each
from keras_bert_d2l.data.tasks.readers.cells import (
    are_lists,
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

# Fields that say that a question has no answer if they have this value.
_NO_ANSWER = {"is_impossible": True, "has_answer": False, "answerable": False}
_STARTS = ("answer_start", "start", "answers.answer_start")
_TEXTS = {"text", "char_spans"}


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
    articles = _articles(file)
    columns: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    if articles is None:
        table = read_table(file, options.is_header)
        found = find_columns(file, table, options)
        columns, notes = found.named(table), table.notes
        questions = list(_table_questions(table, found))
    else:
        try:
            questions = list(_squad_questions(articles, options))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{os.fspath(file.path)!r} must be in SQuAD format: a list 'data' of articles with "
                "'paragraphs', each with a 'context' and 'qas', each with a 'question'. Received: "
                f"something else ({type(error).__name__}: {error})."
            ) from error
    has_answers = any(question.answers is not None for _, question in questions)

    def example(found: _Question) -> dict[str, object]:
        unusable_if(not found.questions.strip(), "empty question")
        unusable_if(not found.contexts.strip(), "empty context")
        unusable_if(bool(found.problem), found.problem)
        unusable_if(has_answers and found.answers is None, "no answers")
        if found.answers is not None:
            answers = tuple(_in_context(answer, found.contexts) for answer in found.answers)
            found = found._replace(answers=answers)
        return found._asdict()

    return collect(QuestionExamples, file, questions, example, notes, columns=columns)


def _in_context(answer: Answer, context: str) -> Answer:
    """Return the answer at its position, or else where its text occurs, if it occurs once.

    Raises:
        Unusable: The text is not there, or occurs several times.
    """
    if stands_in(answer, context):
        return answer
    number = context.count(answer.text)
    unusable_if(not number, "answer does not occur in the context")
    unusable_if(
        number > 1, "answer is not at its position in the context, and occurs several times"
    )
    return Answer(answer.text, context.index(answer.text))


def _articles(file: TextFile) -> list[_Json] | None:
    """Return the articles of a file in SQuAD's or MRQA's format; None if it is a table."""
    if not is_json(file) or not file.text.lstrip().startswith(("{", "[{")):
        return None
    records = [value for _, value in json_values(file) if isinstance(value, Mapping)]
    if any("qas" in record for record in records):  # MRQA, which may begin with a header
        return [{"paragraphs": [one for one in records if "header" not in one]}]
    articles = records[0].get("data") if len(records) == 1 else None
    if not isinstance(articles, list):
        return None
    are_articles = any(isinstance(one, Mapping) and "paragraphs" in one for one in articles)
    return articles if are_articles else None


def _squad_questions(
    articles: Sequence[_Json], options: ReadingOptions
) -> Iterator[tuple[str, _Question]]:
    number = itertools.count(1)
    for article in articles:
        for paragraph in article["paragraphs"]:
            for record in paragraph["qas"]:
                name = as_string(record.get("id", record.get("qid", next(number))))
                title = as_string(article.get("title")) or None
                texts = (as_string(record["question"]), as_string(paragraph["context"]))
                made = _Question(name, *texts, title)
                if options.labeled is not False:
                    found = record.get("detected_answers", record.get("answers"))
                    made = _answered(made, found, record)
                yield f"question {name}", made


def _table_questions(table: Table, columns: Columns) -> Iterator[tuple[str, _Question]]:
    places = {plain_name(name): place for place, name in enumerate(table.columns or ())}
    started = next((places[name] for name in _STARTS if name in places), None)
    label = columns.label
    has_lists = are_lists(row.cell(label) for row in table.rows)
    roles = (columns.id, columns.text, columns.text_b, places.get("title"))
    for row in table.rows:
        name, question, context, title = map(row.text, roles)
        made = _Question(name or str(row.line), question, context, title or None)
        if label is not None and label < len(row.cells):
            found = _from_cell(row.cells[label], row.text(started), has_lists)
            fields = {field: row.cell(place) for field, place in places.items()}
            made = _answered(made, found, fields)
        yield f"line {row.line:,}", made


def _answered(made: _Question, found: _Json, record: Mapping[str, _Json]) -> _Question:
    """Return a question with its answers, of which a field of the record may say that none exist.

    A field that contradicts the answers is a problem, so no answer is deleted without a word.
    """
    answers = _answers(found, made.contexts)
    for name, value in _NO_ANSWER.items():
        flag = as_flag(record.get(name))
        if flag == value and answers:
            return made._replace(problem=f"an answer, although {name} says that there is none")
        if flag is not None:
            answers = () if flag == value else answers or None
    return made._replace(answers=answers)


def _from_cell(cell: object, start: str, has_lists: bool) -> _Json:
    """Parse the answers in a cell: JSON, a Python literal, or the text of one answer.

    Args:
        cell: The cell.
        start: The position of the answer, or the list of positions, if there is a column for it.
        has_lists: Whether the texts of the column are lists, and not answers.
    """
    if start.strip() and not as_string(cell).strip():
        return []  # as some data sets write that there is no answer
    if isinstance(cell, str) and cell.lstrip().startswith(("{", "[{")):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(cell)
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return ast.literal_eval(without_numpy(cell))
    items = listed(cell, has_lists) if has_lists else None
    if items is not None and not all(isinstance(item, str) for item in items):
        return items
    if items is None and (not isinstance(cell, str) or not cell.strip()):
        return cell
    return {"text": cell if items is None else items, "answer_start": listed(start) or start}


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
    match item.get("char_spans"):
        case [[int(first), int(last)], *_]:  # MRQA; the end is inclusive
            inside = context[first : last + 1]
            is_same = "".join(inside.split()).lower() == "".join(text.split()).lower()
            return Answer(inside if is_same or not text else text, first)
    start = without_point(as_string(item.get("answer_start", item.get("start"))).strip())
    return Answer(text, int(start) if start.isdecimal() else -1)
