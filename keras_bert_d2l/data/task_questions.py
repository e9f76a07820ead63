"""A file in, questions about texts and their answers out: SQuAD 1.1 and 2.0, and JSON."""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_bert_d2l.data.task_columns import Wanted
from keras_bert_d2l.data.task_examples import Answer, QuestionExamples, stands_in
from keras_bert_d2l.data.task_files import (
    Dropped,
    TextFile,
    as_string,
    cell_string,
    json_values,
    read_table,
)


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
    questions = list(_read_questions(file, wanted))
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
        elif has_answers and question.answers is None:
            reason = "no answers"
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
        source=os.fspath(file.path),
        sha256=file.sha256,
        **dropped.fields(),
    )


def _read_questions(file: TextFile, wanted: Wanted) -> Iterator[_Question]:
    if file.text.lstrip().startswith("{") and file.suffix not in (".jsonl", ".ndjson"):
        values = json_values(file)
        articles = values[0][1].get("data") if len(values) == 1 else None
        if isinstance(articles, list) and any(map(_is_article, articles)):
            return _squad_questions(file, articles, wanted.labelled)
    return _table_questions(file, wanted)


def _is_article(value: Any) -> bool:
    return isinstance(value, Mapping) and "paragraphs" in value


def _squad_questions(
    file: TextFile, articles: Sequence[Any], labelled: bool
) -> Iterator[_Question]:
    number = 0
    for article in articles:
        for paragraph in _key(file, article, "paragraphs", "article"):
            context = as_string(_key(file, paragraph, "context", "paragraph"))
            for record in _key(file, paragraph, "qas", "paragraph"):
                number += 1
                name = as_string(record.get("id", number))
                answers = None
                if labelled:
                    answers = _answers(record.get("answers"), record.get("is_impossible"))
                yield _Question(
                    id=name,
                    place=f"question {name}",
                    question=as_string(_key(file, record, "question", "question")),
                    context=context,
                    title=as_string(article.get("title")),
                    answers=answers,
                )


def _table_questions(file: TextFile, wanted: Wanted) -> Iterator[_Question]:
    table = read_table(file, wanted.is_header)
    columns = wanted.find(file, table)
    names = table.columns or ()
    of_title = names.index("title") if "title" in names else None
    for line, row in zip(table.lines, table.rows, strict=True):
        yield _Question(
            id=cell_string(row, columns.id) or str(line),
            place=f"line {line:,}",
            question=cell_string(row, columns.text),
            context=cell_string(row, columns.text_b),
            title=cell_string(row, of_title),
            answers=None if columns.label is None else _answers(row[columns.label]),
        )


def _answers(found: Any, is_impossible: Any = False) -> tuple[Answer, ...] | None:
    """The answers as SQuAD's file has them, a list; or as tables have them, lists by name."""
    if is_impossible:
        return ()
    if isinstance(found, Mapping):
        texts, starts = found.get("text", ()), found.get("answer_start", ())
        if isinstance(texts, str):
            texts, starts = [texts], [starts]
        found = [
            {"text": text, "answer_start": start}
            for text, start in zip(texts, starts, strict=False)
        ]
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        return None
    answers = (
        Answer(str(item.get("text", "")), item.get("answer_start", item.get("start", -1)))
        for item in found
    )
    # An answer that says not where it stands, stands nowhere.
    return tuple(
        answer if isinstance(answer.start, int) else Answer(answer.text, -1) for answer in answers
    )


def _key(file: TextFile, record: Any, key: str, kind: str) -> Any:
    if isinstance(record, Mapping) and key in record:
        return record[key]
    keys = f"the keys {', '.join(record)}" if isinstance(record, Mapping) else repr(record)[:60]
    raise ValueError(
        f"{str(file.path)!r}: every {kind} of SQuAD's format must have {key!r}. Received: {keys}."
    )
