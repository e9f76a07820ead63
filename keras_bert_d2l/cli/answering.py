"""What a task's model says of many texts: a file or standard input in, JSON lines out."""

import contextlib
import dataclasses
import pathlib
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, ClassVar

import typer
from rich.console import Console
from rich.progress import track

from keras_bert_d2l.cli.lines import as_json_line
from keras_bert_d2l.data.tasks.examples import (
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    how_many,
)
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.readers.conll import DOCUMENTS, is_conllu
from keras_bert_d2l.data.tasks.readers.text_file import TextFile, read_file
from keras_bert_d2l.files import replacing_file
from keras_bert_d2l.inference.tasks.answers import answer, fitting_questions
from keras_bert_d2l.inference.tasks.labels import classify, regress, tag
from keras_bert_d2l.text.corpus.reading import bare_suffix

_AT_ONCE = 1024  # examples, after which what was found is written
_LINES = (".txt", ".text")  # endings of files of texts, one a line
_STDIN = "standard input"
_BEGINS_JSON = re.compile(r'(?:\[\s*)?\{\s*"')  # not every text in brackets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(TaskExamples):
    """Texts that are to be split into words, which examples of tags are not."""

    sequences: ClassVar[tuple[str, ...]] = ("texts",)
    tasks: ClassVar[tuple[str, ...]] = ("tag",)

    texts: tuple[str, ...]
    task: str = "tag"


def write_answers(
    model: Any,
    task: str,
    source: str,
    out: pathlib.Path | None,
    *,
    columns: Mapping[str, Any],
    context: pathlib.Path | None,
    options: Mapping[str, Any],
) -> None:
    """Asks a model for every text of a file, and writes a JSON object a line.

    What is in doubt of how the file was read, and what of it was dropped, is said on stderr.

    Args:
        model: The model, with its tokenizer.
        task: Its task.
        source: The file; `"-"`: standard input.
        out: The file to write, whole or not at all; `None`: standard output.
        columns: The names of the columns, as for `read_examples`.
        context: A file with the text that all questions are about.
        options: Those of `classify`, `regress`, `tag` or `answer`.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is not of the task, or has no text.
    """
    examples = _read(task, source, columns, context, getattr(model, "labels", ()))
    for remark in _how_read(examples, columns):
        typer.echo(f"{_STDIN if source == '-' else source}: {remark}", err=True)
    console = Console(stderr=True)
    with _writable(out) as file:
        for start in track(
            range(0, len(examples.ids), _AT_ONCE),
            description="Asking",
            console=console,
            disable=not console.is_terminal or out is None,
            transient=True,
        ):
            chosen = range(start, min(start + _AT_ONCE, len(examples.ids)))
            for line in _lines_of(model, examples, chosen, options):
                file.write(as_json_line(line) + "\n")
    if out is not None:
        typer.echo(f"{how_many(len(examples.ids), 'answer')} in {out}")


def _read(
    task: str,
    source: str,
    columns: Mapping[str, Any],
    context: pathlib.Path | None,
    labels: Sequence[str],
) -> TaskExamples:
    if source != "-":
        return _read_file(task, pathlib.Path(source), columns, context, labels)
    content = sys.stdin.buffer.read()
    is_table = any(column is not None for column in columns.values())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, f"stdin{_ending(content, is_table)}")
        path.write_bytes(content)
        try:
            return _read_file(task, path, columns, context, labels)
        except ValueError as error:
            raise ValueError(str(error).replace(repr(str(path)), _STDIN)) from error


def _ending(content: bytes, is_table: bool) -> str:
    """What the name of a file would end in that holds what came on standard input."""
    text = content.decode("utf-8-sig", errors="replace").lstrip()
    if _BEGINS_JSON.match(text):
        return ".json"
    if is_table:
        return ".tsv" if "\t" in text.partition("\n")[0] else ".csv"
    return ".txt"


def _read_file(
    task: str,
    path: pathlib.Path,
    columns: Mapping[str, Any],
    context: pathlib.Path | None,
    labels: Sequence[str],
) -> TaskExamples:
    if not path.exists():
        raise FileNotFoundError(f"No file {str(path)!r}.")
    is_lines = context is not None or bare_suffix(path) in _LINES
    file = read_file(path) if is_lines else None
    if file is None or (context is None and _is_table(file, columns, labels, task)):
        return read_examples(task, path, **columns, labeled=False)
    return _line_examples(task, file, context)


def _line_examples(task: str, file: TextFile, context: pathlib.Path | None) -> TaskExamples:
    """A text in each line of a file, named by the line's number; of questions one."""
    lines = file.lines()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise ValueError(f"{str(file.path)!r} has no text.")
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
                "Questions are about a text: name its file with --context, or give a file of "
                "questions with their contexts, as JSONL, TSV or SQuAD's JSON."
            )
        about = read_file(context).text
        return QuestionExamples(questions=texts, contexts=(about,) * len(texts), **fields)
    return TextExamples(task=task, texts=texts, **fields)


def _is_table(file: TextFile, columns: Mapping[str, Any], labels: Sequence[str], task: str) -> bool:
    """Whether a file of lines is a table: columns are named, or each line has the same tabs.

    Of tags also: it is CoNLL-U, or begins documents as CoNLL's files do, or most of its lines have
    equally many words and a tag of the model as their last.
    """
    if any(column is not None for column in columns.values()):
        return True
    lines = [line for line in file.lines() if line.strip()]
    if task == "tag":
        if is_conllu(file) or any(line.startswith(DOCUMENTS) for line in lines):
            return True
        lines = [line for line in lines if not line.startswith("#")]  # comments
    tabs = {line.count("\t") for line in lines}
    if len(tabs) == 1 and tabs != {0}:
        return True
    # Not "." and the like, which are tags of the Penn Treebank: texts end with them as well.
    tags = {label for label in labels if any(map(str.isalnum, label))}
    rows = [line.split() for line in lines] if task == "tag" else []
    tagged = Counter(len(row) for row in rows if len(row) > 1 and row[-1] in tags)
    return 2 * max(tagged.values(), default=0) > len(lines)


def _how_read(examples: TaskExamples, columns: Mapping[str, Any]) -> Iterator[str]:
    """Yields what there is to say of how a file was read: what is in doubt, and what is lost."""
    if isinstance(examples, Lines):
        yield (
            f"read as {how_many(len(examples), 'text')}, one a line; if it has words in columns, "
            "say which holds them, as --text 1"
        )
    is_pair = isinstance(examples, TextExamples) and examples.texts_b is not None
    first, second = (examples.columns.get(name, "") for name in ("text", "text_b"))
    if is_pair and columns["text"] is None and first.isdecimal():  # there are no names of columns
        yield (
            f"read as pairs of texts, columns {first} and {second}; if one holds labels, say which "
            f"holds the texts, as --text {first}"
        )
    yield from examples.dropped_in_words()


def _lines_of(
    model: Any, examples: TaskExamples, chosen: range, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields what is written of some of the examples."""
    some = slice(chosen.start, chosen.stop)
    ids = examples.ids[some]
    if isinstance(examples, Lines | WordExamples):
        name = "text" if isinstance(examples, Lines) else "words"
        texts: Any = examples.texts if isinstance(examples, Lines) else examples.words
        for one, text, tags in zip(
            ids, texts[some], tag(model, texts[some], **options), strict=True
        ):
            yield {"id": one, name: text, "tags": [_known(found) for found in tags]}
    elif isinstance(examples, QuestionExamples):
        yield from _answered(model, examples.subset(chosen), options)
    elif isinstance(examples, TextExamples):
        sides = {"text": examples.texts[some]}
        if examples.texts_b is not None:
            sides["text_b"] = examples.texts_b[some]
        ask = regress if examples.task == "regress" else classify
        found = ask(model, *sides.values(), **options)
        for one, *texts, said in zip(ids, *sides.values(), found, strict=True):
            yield {"id": one, **dict(zip(sides, texts, strict=True)), **_said(model, said)}


def _answered(
    model: Any, examples: QuestionExamples, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yields the answers to questions; of one that is too long for a row, that there is none."""
    fits = fitting_questions(model, examples.questions, options["max_len"])
    if not fits.all():
        too_long = how_many(int((~fits).sum()), "question")
        typer.echo(
            f"Too long for a row, and answered by null: {too_long}, first "
            f"{examples.ids[int(fits.argmin())]!r}.",
            err=True,
        )
    read = examples.subset(fits.nonzero()[0])
    answers = iter(answer(model, read.questions, read.contexts, **options) if len(read) else ())
    for one, question, is_read in zip(examples.ids, examples.questions, fits, strict=True):
        said: dict[str, Any] = {"answer": None}
        if is_read:
            [best] = next(answers)
            place = {"score": best.score, "start": best.start, "end": best.end}
            said = {"answer": best.text, **place}
        yield {"id": one, "question": question, **said}


def _said(model: Any, found: Any) -> dict[str, Any]:
    """What is written of a classification or a score."""
    if not hasattr(found, "label"):
        return {"score": found.score} if len(found.scores) == 1 else {"scores": found.scores}
    if model.multi_label:
        return {"labels": list(found.labels), "scores": found.scores}
    return {"label": found.label, "score": found.score, "scores": found.scores}


def _known(found: Any) -> dict[str, Any]:
    return {name: x for name, x in dataclasses.asdict(found).items() if x is not None}


@contextlib.contextmanager
def _writable(out: pathlib.Path | None) -> Iterator[IO[str]]:
    if out is None:
        yield sys.stdout
        return
    with replacing_file(out) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file
