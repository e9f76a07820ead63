"""A file in, questions about texts and their answers out: SQuAD 1.1 and 2.0, and tables."""

import ast
import contextlib
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_bert_d2l.data.tasks.examples import Answer, QuestionExamples, stands_in
from keras_bert_d2l.data.tasks.readers.columns import Columns, Wanted
from keras_bert_d2l.data.tasks.readers.files import (
    CUT,
    Dropped,
    Table,
    TextFile,
    as_string,
    cell_string,
    is_cut,
    json_values,
    listed,
    read_table,
    without_point,
)

_ARRAY = re.compile(r"array\((\[.*?\])(?:, dtype=\w+)?\)", re.DOTALL)  # of NumPy, as text


@dataclasses.dataclass(frozen=True)
class _Question:
    """A question of a file.

    Attributes:
        id: What the file calls it.
        place: Where it stands in the file, in words.
        question: The question.
        context: The text that it is about.
        title: The article of the text, or nothing.
        answers: The answers, none where the text holds none; None: not told.
    """

    id: str
    place: str
    question: str
    context: str
    title: str
    answers: tuple[Answer, ...] | None


def question_examples(file: TextFile, wanted: Wanted) -> QuestionExamples:
    """Reads questions: a SQuAD file, or a table with a question in each row.

    Raises:
        ValueError: The file is not what it should be, or a column is not there.
    """
    questions, columns = _read_questions(file, wanted)
    has_answers = any(question.answers is not None for question in questions)
    has_titles = any(question.title for question in questions)
    dropped = Dropped()
    kept = []
    for question in questions:
        reason = None
        if not question.question.strip():
            reason = "empty question"
        elif not question.context.strip():
            reason = "empty context"
        elif is_cut(question.id, question.question, question.context, question.title):
            reason = CUT
        elif has_answers and question.answers is None:
            reason = "no answers"
        elif any(answer.start < 0 for answer in question.answers or ()):
            reason = "answer does not say where it stands, and stands nowhere or more than once"
        elif not all(stands_in(answer, question.context) for answer in question.answers or ()):
            reason = "answer does not stand at its place in the context"
        if reason is None:
            kept.append(question)
        else:
            dropped.add(reason, question.place)
    return QuestionExamples(
        ids=tuple(question.id for question in kept),
        questions=tuple(question.question for question in kept),
        contexts=tuple(question.context for question in kept),
        titles=tuple(question.title for question in kept) if has_titles else None,
        answers=tuple(question.answers or () for question in kept) if has_answers else None,
        columns=columns,
        source=os.fspath(file.path),
        sha256=file.sha256,
        **dropped.fields(),
    )


def _read_questions(file: TextFile, wanted: Wanted) -> tuple[list[_Question], dict[str, str]]:
    """The questions of a file, and which columns of a table they are."""
    if file.text.lstrip().startswith("{") and file.suffix not in (".jsonl", ".ndjson"):
        values = json_values(file)
        articles = values[0][1].get("data") if len(values) == 1 else None
        if isinstance(articles, list) and any(map(_is_article, articles)):
            return list(_squad_questions(file, articles, wanted)), {}
    elif file.text.lstrip().startswith("{"):
        paragraphs = [value for _, value in json_values(file) if isinstance(value, Mapping)]
        if any("qas" in value for value in paragraphs):  # MRQA's, of which one may be a header
            article = {"paragraphs": [value for value in paragraphs if "header" not in value]}
            return list(_squad_questions(file, [article], wanted)), {}
    table = read_table(file, wanted.is_header)
    columns = wanted.find(file, table)
    return list(_table_questions(table, columns)), columns.named(table)


def _is_article(value: Any) -> bool:
    return isinstance(value, Mapping) and "paragraphs" in value


def _squad_questions(
    file: TextFile, articles: Sequence[Any], wanted: Wanted
) -> Iterator[_Question]:
    number = 0
    for article in articles:
        for paragraph in _key(file, article, "paragraphs", "article"):
            context = as_string(_key(file, paragraph, "context", "paragraph"))
            for record in _key(file, paragraph, "qas", "paragraph"):
                number += 1
                question = as_string(_key(file, record, "question", "question"))
                name = as_string(record.get("id", record.get("qid", number)))
                answers = None
                if wanted.labeled is not False:
                    found = record.get("detected_answers", record.get("answers"))
                    answers = () if record.get("is_impossible") else _answers(found, context)
                yield _Question(
                    id=name,
                    place=f"question {name}",
                    question=question,
                    context=context,
                    title=as_string(article.get("title")),
                    answers=answers,
                )


def _table_questions(table: Table, columns: Columns) -> Iterator[_Question]:
    names = table.columns or ()
    of_title = names.index("title") if "title" in names else None
    of_start = names.index("answer_start") if "answer_start" in names else None
    for line, row in zip(table.lines, table.rows, strict=True):
        answers = None
        if columns.label is not None and columns.label < len(row):
            found = _from_cell(row[columns.label], cell_string(row, of_start))
            answers = _answers(found, cell_string(row, columns.text_b))
        yield _Question(
            id=cell_string(row, columns.id) or str(line),
            place=f"line {line:,}",
            question=cell_string(row, columns.text),
            context=cell_string(row, columns.text_b),
            title=cell_string(row, of_title),
            answers=answers,
        )


def _from_cell(found: Any, start: str) -> Any:
    """The answers of a table's cell: what JSON or Python make a text of, or one answer as text."""
    if not isinstance(found, str) or not found.strip():
        return found
    if (items := listed(found)) is not None:
        return items
    if found.lstrip().startswith(("{", "[{")):
        for read, text in ((json.loads, found), (ast.literal_eval, _ARRAY.sub(r"\1", found))):
            with contextlib.suppress(ValueError, SyntaxError):
                return read(text)
    return [{"text": found, "answer_start": start}]


def _answers(found: Any, context: str) -> tuple[Answer, ...] | None:
    """The answers as SQuAD's file has them, a list; or as tables have them, lists by name."""
    if isinstance(found, Mapping):
        texts, starts = found.get("text") or (), found.get("answer_start") or ()
        if isinstance(texts, str):
            texts, starts = [texts], [found.get("answer_start")]
        found = [
            {"text": text, "answer_start": start}
            for text, start in itertools.zip_longest(texts, starts)
        ]
    if not isinstance(found, list) or not all(isinstance(item, Mapping | str) for item in found):
        return None
    return tuple(
        _answer(item if isinstance(item, Mapping) else {"text": item}, context) for item in found
    )


def _answer(item: Mapping[str, Any], context: str) -> Answer:
    """An answer where it says that it stands, or the only place where it does."""
    text = as_string(item.get("text"))
    start = _whole_number(item.get("answer_start", item.get("start")))
    if item.get("char_spans"):  # of MRQA, with the last character
        start, last = item["char_spans"][0]
        text = context[start : last + 1]
    if start is not None:
        return Answer(text, start)
    return Answer(text, context.find(text) if context.count(text) == 1 else -1)


def _whole_number(value: Any) -> int | None:
    """A number or its text, 2, 2.0 or "2.0", as an integer; None of anything else."""
    text = without_point(as_string(value).strip())
    return int(text) if text.removeprefix("-").isdecimal() else None


def _key(file: TextFile, record: Any, key: str, kind: str) -> Any:
    if isinstance(record, Mapping) and key in record:
        return record[key]
    keys = f"the keys {', '.join(record)}" if isinstance(record, Mapping) else repr(record)[:60]
    raise ValueError(
        f"{str(file.path)!r}: every {kind} of SQuAD's format must have {key!r}. Received: {keys}."
    )
