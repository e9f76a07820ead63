"""Read the input of `predict`: a file or standard input with examples of a task."""

import dataclasses
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from keras_bert_d2l.cli.input_output import STDIN
from keras_bert_d2l.data.tasks.examples import (
    QuestionExamples,
    TaskExamples,
    TextExamples,
    how_many,
)
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.conll import DOCUMENTS, is_conllu
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, read_file
from keras_bert_d2l.text.corpus.reading import bare_suffix

_LINES = (".txt", ".text")  # extensions of files with one text per line
_BEGINS_JSON = re.compile(r'(?:\[\s*)?\{\s*"')  # plain text may also start with a bracket


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(TaskExamples):
    """Texts to tag that are not yet split into words, unlike `WordExamples`."""

    sequences: ClassVar[tuple[str, ...]] = ("texts",)
    tasks: ClassVar[tuple[str, ...]] = ("tag",)

    texts: tuple[str, ...]
    task: str = "tag"


def read_input(
    task: str,
    source: str,
    columns: Mapping[str, Any],
    context: Path | None,
    labels: Sequence[str],
) -> TaskExamples:
    """Read the examples from a file or from standard input.

    Args:
        task: Task of the model.
        source: Path of the file, or `STDIN`.
        columns: The column arguments, as in `read_examples`.
        context: File with the text that all questions are about.
        labels: Labels of the model, used to recognize a file of words and tags.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: The input contains no text or does not fit the task.
    """
    if source != STDIN:
        return _read_file(task, Path(source), columns, context, labels)
    content = sys.stdin.buffer.read()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"stdin{_ending(content, is_table=bool(columns))}")
        path.write_bytes(content)
        try:
            return _read_file(task, path, columns, context, labels)
        except ValueError as error:
            raise ValueError(str(error).replace(repr(str(path)), "standard input")) from error


def remarks(examples: TaskExamples, columns: Mapping[str, Any]) -> Iterator[str]:
    """Yield messages about how the input was read: ambiguous formats and dropped examples."""
    if isinstance(examples, Lines):
        yield (
            f"read as {how_many(len(examples), 'text')}, one per line; if it has words in columns, "
            "specify their column, as in --text 1"
        )
    is_pair = isinstance(examples, TextExamples) and examples.texts_b is not None
    first, second = (examples.columns.get(name, "") for name in ("text", "text_b"))
    if is_pair and "text" not in columns and first.isdecimal():  # the table has no column names
        yield (
            f"read as pairs of texts, columns {first} and {second}; if one contains labels, "
            f"specify the column of the texts, as in --text {first}"
        )
    yield from examples.dropped_in_words()


def _ending(content: bytes, *, is_table: bool) -> str:
    """Return the file name extension that matches the content of standard input."""
    text = content.decode("utf-8-sig", errors="replace").lstrip()
    if _BEGINS_JSON.match(text):
        return ".json"
    if is_table:
        return ".tsv" if "\t" in text.partition("\n")[0] else ".csv"
    return ".txt"


def _read_file(
    task: str,
    path: Path,
    columns: Mapping[str, Any],
    context: Path | None,
    labels: Sequence[str],
) -> TaskExamples:
    is_lines = context is not None or bare_suffix(path) in _LINES
    file = read_file(path) if is_lines else None
    if file is None or (context is None and (columns or _is_table(file, labels, task))):
        return read_examples(task, path, **columns, labeled=False)
    return _line_examples(task, file, context)


def _line_examples(task: str, file: TextFile, context: Path | None) -> TaskExamples:
    """Return one example per line of a file, with the line number as its id."""
    lines = file.lines()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise ValueError(f"{str(file.path)!r} contains no text.")
    empty = sorted(set(range(filled[0], filled[-1])) - set(filled))
    texts = tuple(lines[number - 1] for number in filled)
    fields: dict[str, Any] = {"ids": tuple(map(str, filled))}
    if empty:
        fields["dropped"] = {"empty line": len(empty)}
        fields["first_dropped"] = {"empty line": f"line {empty[0]:,}"}
    if task == "tag":
        return Lines(texts=texts, **fields)
    if task == "answer":
        if context is None:
            raise ValueError(
                "Questions need a text that contains the answers. Specify its file with "
                "--context, or provide questions with contexts as JSONL, TSV or SQuAD JSON."
            )
        about = read_file(context).text
        return QuestionExamples(questions=texts, contexts=(about,) * len(texts), **fields)
    if task == "choose":
        raise ValueError(
            "Multiple choice needs a text and its choices in each row. Received: one text per "
            "line. Provide them as JSONL, CSV or TSV."
        )
    return TextExamples(task=task, texts=texts, **fields)


def _is_table(file: TextFile, labels: Sequence[str], task: str) -> bool:
    """Return whether a file of lines is a table, that is, all lines have the same number of tabs.

    For tagging, these files are tables as well: CoNLL-U, files with CoNLL's document markers, and
    files in which most lines have the same number of words and end with a tag of the model.
    """
    lines = [line for line in file.lines() if line.strip()]
    if task == "tag":
        if is_conllu(file) or any(line.startswith(DOCUMENTS) for line in lines):
            return True
        lines = [line for line in lines if not line.startswith("#")]  # comments
    tabs = {line.count("\t") for line in lines}
    if len(tabs) == 1 and tabs != {0}:
        return True
    # Tags such as the Penn Treebank's "." do not count, because ordinary texts also end with them.
    tags = {label for label in labels if any(map(str.isalnum, label))}
    rows = [line.split() for line in lines] if task == "tag" else []
    tagged = Counter(len(row) for row in rows if len(row) > 1 and row[-1] in tags)
    return 2 * max(tagged.values(), default=0) > len(lines)
