"""Read the input of `predict`: a file or standard input with examples of a task."""

import dataclasses
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert_d2l.cli.input_output import STDIN
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, read_file
from keras_bert_d2l.tasks.task import AnyTask
from keras_bert_d2l.text.text_files import bare_suffix

_LINES = (".txt", ".text")  # extensions of files with one text per line
_BEGINS_JSON = re.compile(r'(?:\[\s*)?\{\s*"')  # plain text may also start with a bracket


def read_input(
    task: AnyTask,
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


def _ending(content: bytes, *, is_table: bool) -> str:
    """Return the file name extension that matches the content of standard input."""
    text = content.decode("utf-8-sig", errors="replace").lstrip()
    if _BEGINS_JSON.match(text):
        return ".json"
    if is_table:
        return ".tsv" if "\t" in text.partition("\n")[0] else ".csv"
    return ".txt"


def _read_file(
    task: AnyTask,
    path: Path,
    columns: Mapping[str, Any],
    context: Path | None,
    labels: Sequence[str],
) -> TaskExamples:
    is_lines = context is not None or bare_suffix(path) in _LINES
    file = read_file(path) if is_lines else None
    if file is None or (context is None and (columns or task.is_table(file, labels))):
        return read_examples(task.name, path, **columns, labeled=False)
    return _line_examples(task, file, context)


def _line_examples(task: AnyTask, file: TextFile, context: Path | None) -> TaskExamples:
    """Return one example per line of a file, with the line number as its id."""
    lines = file.lines()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise ValueError(f"{str(file.path)!r} contains no text.")
    empty = sorted(set(range(filled[0], filled[-1])) - set(filled))
    texts = tuple(lines[number - 1] for number in filled)
    about = None if context is None else read_file(context).text
    return dataclasses.replace(
        task.from_lines(texts, about),
        ids=tuple(map(str, filled)),
        dropped={"empty line": len(empty)} if empty else {},
        first_dropped={"empty line": f"line {empty[0]:,}"} if empty else {},
    )
