"""The examples that `predict` reads: texts, the lines or rows of a file, and standard input."""

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from keras_bert_d2l.cli.arguments import STDIN
from keras_bert_d2l.cli.input_output import regular_file
from keras_bert_d2l.contract.task import AnyTask
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, read_file
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.text.text_files import bare_suffix

_LINES = (".txt", ".text")  # extensions of files with one text per line
_FILES = {*_LINES, *".tsv .csv .json .jsonl .ndjson .conll .conllu .iob .bio".split()}
_BEGINS_JSON = re.compile(r'(?:\[\s*)?\{\s*"')  # plain text may also start with a bracket


def source_of(inputs: Sequence[str]) -> str | None:
    """Return the file or standard input from which to read, or `None` if the inputs are texts."""
    files = [one for one in inputs if one == STDIN or _is_file(one)]
    if files and len(inputs) > 1:
        raise ValueError(
            f"INPUT must be one file, or texts. Received: the file {files[0]!r}, and "
            f"{len(inputs) - 1} more. Pass one file per call."
        )
    return files[0] if files else None


def _is_file(text: str) -> bool:
    """Return whether a text is a path: of a file that exists, or with the name of a data file."""
    return os.path.exists(text) or (
        bare_suffix(PurePath(text)) in _FILES and not re.search(r"\s", text)
    )


def examples_of_texts(
    task: AnyTask, texts: tuple[str, ...], context: str | None, *, pairs: bool
) -> TaskExamples:
    """Return the examples of texts on the command line, numbered from 1."""
    if not pairs:
        examples: Any = task.from_arguments(texts, context)
    elif len(texts) % 2:
        raise ValueError(f"--pairs needs an even number of texts. Received: {len(texts)}.")
    else:
        examples = TextExamples(task=task.name, texts=texts[::2], texts_b=texts[1::2])
    numbers = range(1, len(examples) + 1)
    return dataclasses.replace(examples, ids=tuple(map(str, numbers)))


def _ending(content: bytes, *, is_table: bool) -> str:
    """Return the file name extension that matches the content of standard input."""
    text = content.decode("utf-8-sig", errors="replace").lstrip()
    if _BEGINS_JSON.match(text):
        return ".json"
    if is_table:
        return ".tsv" if "\t" in "".join(text.splitlines()[:1]) else ".csv"
    return ".txt"


def examples_of_source(
    task: AnyTask,
    source: str,
    columns: Mapping[str, Any],
    context: str | None,
    labels: Sequence[str],
) -> TaskExamples:
    """Read a file or standard input.

    Args:
        task: The task of the model.
        source: The path, or `STDIN`.
        columns: The columns that the command names.
        context: The text that all questions are about, if each line is one of them.
        labels: Labels of the model, by which tables of words are recognized.
    """
    ending = functools.partial(_ending, is_table=bool(columns))
    with regular_file(None if source == STDIN else Path(source), ending) as path:
        is_lines = context is not None or bare_suffix(path) in _LINES
        file = read_file(path) if is_lines else None
        if file is None or (context is None and (columns or task.is_table(file, labels))):
            return read_examples(task.name, path, **columns, labeled=False)
        return _line_examples(task, file, context)


def _line_examples(task: AnyTask, file: TextFile, context: str | None) -> TaskExamples:
    """Return one example per line of a file, with the line number as its id."""
    lines = file.lines()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise ValueError(f"{str(file.path)!r} contains no text.")
    empty = sorted(set(range(filled[0], filled[-1])) - set(filled))
    texts = tuple(lines[number - 1] for number in filled)
    return dataclasses.replace(
        task.from_lines(texts, context),
        ids=tuple(map(str, filled)),
        dropped={"empty line": len(empty)} if empty else {},
        first_dropped={"empty line": f"line {empty[0]:,}"} if empty else {},
    )
