"""Input and output of the commands: texts, models, readable lines, JSON lines and output files."""

import contextlib
import dataclasses
import json as json_format
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from keras_bert_d2l.checkpoints.location import is_remote
from keras_bert_d2l.cli.arguments import STDIN
from keras_bert_d2l.contract.task import AnyTask, embedder, tasks, tasks_with
from keras_bert_d2l.files import check_local
from keras_bert_d2l.progress import parts, stage, without_bar
from keras_bert_d2l.text.text_files import read_text
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:
    from keras_bert_d2l import Pretrained

PART = 512  # texts per chunk; results are printed after each chunk


def read_texts(texts: Sequence[str], file: Path | None) -> list[str]:
    """Return the texts given as arguments, in a file or on standard input.

    Raises:
        ValueError: There are no texts or two sources of texts, a text is empty, or the input is not
            UTF-8.
        OSError: The file cannot be read.
    """
    if bool(texts) == (file is not None):
        raise ValueError("Pass texts as arguments, with --file FILE, or - to read standard input.")
    are_arguments = file is None and list(texts) != [STDIN]
    if are_arguments and len(texts) == 1 and os.path.isfile(texts[0]):
        raise ValueError(f"{texts[0]!r} is a file. To read the texts in it, pass --file FILE.")
    place = "text" if are_arguments else f"line of {_name(file)}"
    found = [*texts] if are_arguments else [*_lines(file)]
    for number, text in enumerate(found, 1):
        if not text.strip():
            raise ValueError(f"Each {place} must contain text. Received: number {number} is empty.")
    if not found:
        raise ValueError(f"The input must contain text. Received: {_name(file)} is empty.")
    return found


def _lines(file: Path | None) -> Iterator[str]:
    rest = ""
    with regular_file(file) as path:
        for block in read_text(path):
            *lines, rest = (rest + block).split("\n")
            yield from (line.rstrip("\r") for line in lines)
    if rest:
        yield rest.rstrip("\r")


@contextlib.contextmanager
def regular_file(file: Path | None) -> Iterator[Path]:
    """Yield the path of a file or, for `None`, of a temporary copy of standard input."""
    if file is not None:
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "input.txt")
        with open(path, "wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        try:
            yield path
        except ValueError as error:
            raise ValueError(str(error).replace(repr(str(path)), _name(None))) from error


def print_answers(
    texts: Sequence[str],
    ask: Callable[[slice], Iterable[Any]],
    lines: Callable[[str, Any], str],
    fields: Callable[[Any], Mapping[str, Any]],
    *,
    json: bool,
) -> None:
    """Run a model on texts in chunks, and print the results of each chunk immediately.

    Args:
        texts: The texts.
        ask: Returns the results for a slice of the texts.
        lines: Returns the readable lines for a text and its result.
        fields: Returns the JSON fields of a result.
        json: Whether to print JSON.
    """
    for part in parts("Predicting", len(texts), PART):
        answers = list(ask(part))
        with without_bar():
            for text, answer in zip(texts[part], answers, strict=True):
                print(
                    as_json_line({"text": text, **fields(answer)}) if json else lines(text, answer)
                )


def as_json_line(record: Any, digits: int = 6) -> str:
    """Return a record as a JSON line, with numbers rounded to `digits` significant digits.

    The record may be or contain dataclasses. Infinite numbers and NaN become null.
    """
    exact = json_format.dumps(record, default=dataclasses.asdict)
    rounded = json_format.loads(
        exact,
        parse_float=lambda text: float(f"{float(text):.{digits}g}"),
        parse_constant=lambda text: None,  # JSON has no infinity
    )
    return json_format.dumps(rounded, ensure_ascii=False)


def _name(file: Path | None) -> str:
    return "standard input" if file is None else repr(str(file))


def check_output(
    name: str,
    out: Path | None,
    *,
    inputs: Iterable[str | PurePath | None] = (),
    suffixes: Sequence[str] = (),
) -> None:
    """Raise an error if a command cannot or must not write an output file.

    Devices and named pipes, such as `/dev/stdout`, are accepted.

    Args:
        name: The argument, for the message.
        out: The file. `None`, of an option that is not given, is accepted.
        inputs: The files that the command reads, which must not be replaced. Values that are not
            paths of files are ignored.
        suffixes: The possible ends of the name. Empty: any.

    Raises:
        ValueError: The path is a URL, a folder or an input, has another suffix, or is below a file
            or a folder that is not writable.
    """
    if out is None:
        return
    check_local(name, out)
    if out.is_dir():
        raise ValueError(
            f"`{name}` must be a file. Received: the folder {str(out)!r}. Add the name of a file."
        )
    if out.exists() and not out.is_file():
        return
    if suffixes and out.suffix not in suffixes:
        raise ValueError(f"`{name}` must end in {' or '.join(suffixes)}. Received: {str(out)!r}.")
    if out.exists():
        for path in inputs:
            if path is not None and os.path.exists(path) and os.path.samefile(path, out):
                raise ValueError(
                    f"`{name}` must not be an input, because it would be replaced. Received: "
                    f"{str(out)!r}. Choose a different path."
                )
    folder = next(parent for parent in Path(os.path.realpath(out)).parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"`{name}` must be in a folder that is writable. Received: {str(out)!r}.")


def stage_of_loading(title: str, checkpoint: PathLike) -> contextlib.AbstractContextManager[object]:
    """Show the stage of a command that loads a checkpoint. Downloads show their own progress."""
    is_download = isinstance(checkpoint, str) and is_remote(checkpoint)
    return contextlib.nullcontext() if is_download else stage(title)


def load(model: PathLike, *, heads: bool = True, as_embedder: bool | None = False) -> "Pretrained":
    """Load the checkpoint of `--model`.

    Args:
        model: The checkpoint.
        heads: Whether to report missing weights of heads, on stderr.
        as_embedder: Whether to return a `TextEmbedder`, for a plain BERT with the mean of the token
            vectors. `None` means if the folder defines how to pool texts, as folders of
            sentence-transformers do.
    """
    title = "Loading TensorFlow and the model"
    with stage_of_loading(title, model), contextlib.redirect_stdout(sys.stderr):
        from keras_bert_d2l.checkpoints import loading

        if as_embedder:
            return loading.load_task(embedder(), model, verbose=False)
        reported = None if heads else ()
        if as_embedder is None:
            return loading.load_as_defined(model, heads=reported)
        return loading.load_pretrained(model, heads=reported, verbose=False)


def load_task(model: PathLike, *, or_bert: bool = False) -> tuple[Any, AnyTask]:
    """Load a fine-tuned model and return it with its task.

    Args:
        model: The checkpoint.
        or_bert: Whether it may be a BERT without a task, which takes pairs as a classifier does.

    Raises:
        ValueError: The checkpoint does not contain a fine-tuned model.
    """
    loaded = load(model, heads=False, as_embedder=None).model
    known = tasks()
    task = known.get(getattr(loaded, "task", "classify" if or_bert else ""))
    if task is not None:
        return loaded, task
    raise ValueError(
        f"{os.fspath(model)!r} must contain a model for {', '.join(known)}. Received: a "
        f"{type(loaded).__name__}; fine-tune it with `keras-bert-d2l finetune` first."
    )


def check_taken(task: AnyTask, model: PathLike, **options: object) -> None:
    """Raise `ValueError` if an option of a command has a value but is not for the task."""
    for name, value in options.items():
        if value is not None and name not in task.options:
            flag = f"--{name.replace('_', '-')}"
            needed = " or a ".join(one.model.__name__ for one in tasks_with(name))
            raise ValueError(
                f"{flag} requires a {needed}. Received: {flag} {value} with {os.fspath(model)!r}, "
                f"a {task.model.__name__}."
            )
