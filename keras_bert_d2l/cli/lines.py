"""What the commands that ask a model read and write: texts in, lines for people or JSON out."""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from keras_bert_d2l.data.tasks.examples import how_many

_STDIN = "-"
_PART = 512  # texts that are asked about at once: what is answered is written while others wait

Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT", help="Texts; **-** for the lines of standard input.", show_default=False
    ),
]
PairedTexts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="Two texts, or more pairs of them; **-** for standard input, a pair on a line, with a "
        "tab between.",
        show_default=False,
    ),
]
File = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Take the lines of this file, UTF-8.  [default: TEXT]"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON, an object on a line.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Texts that pass through the model at once.")]


def read_texts(texts: list[str] | None, file: pathlib.Path | None) -> list[str]:
    """Returns the texts that a command is given, as arguments, in a file or on standard input.

    Raises:
        ValueError: They are given in none or in two ways, one is empty, or they are not UTF-8.
        OSError: The file cannot be read.
    """
    texts = texts or []
    if bool(texts) == (file is not None):
        raise ValueError("Give texts as arguments, by --file FILE, or - to read standard input.")
    if file is None and texts != [_STDIN]:
        found, place = texts, "text"
    else:
        found, place = _lines(file), f"line of {_name(file)}"
    for number, text in enumerate(found, 1):
        if not text.strip():
            raise ValueError(f"Every {place} must hold a text. Received: number {number} is empty.")
    return found


def read_pairs(
    texts: list[str] | None, file: pathlib.Path | None, hint: str = ""
) -> tuple[list[str], list[str]]:
    """Returns the first and the second texts of the pairs that a command is given.

    Args:
        texts: The arguments.
        file: The file.
        hint: What an error says of a text without a partner.

    Raises:
        ValueError: As of `read_texts`, or a text has no partner.
        OSError: The file cannot be read.
    """
    found = read_texts(texts, file)
    if file is None and texts != [_STDIN]:
        if len(found) % 2:
            raise ValueError(
                f"Each text needs a partner. Received: {how_many(len(found), 'text')}.{hint}"
            )
        return found[::2], found[1::2]
    pairs = [line.split("\t") for line in found]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(text.strip() for text in pair):
            raise ValueError(
                "Every line must hold two texts with a tab between. Received: line "
                f"{number}, {found[number - 1]!r:.80}."
            )
    return [first for first, _ in pairs], [second for _, second in pairs]


def in_parts(num_texts: int, *, to_stdout: bool = True) -> Iterator[slice]:
    """Yields parts of the texts, to be answered one after the other.

    A bar on stderr tells how far it is, where that is a terminal and would not run through the
    answers.
    """
    console = Console(stderr=True)
    is_shown = console.is_terminal and num_texts > _PART
    is_shown = is_shown and not (to_stdout and sys.stdout.isatty())
    with Progress(console=console, disable=not is_shown, redirect_stdout=False) as bar:
        task = bar.add_task("Asking", total=num_texts)
        for start in range(0, num_texts, _PART):
            yield slice(start, start + _PART)
            bar.update(task, advance=min(_PART, num_texts - start))


def echo_json(record: dict[str, Any], digits: int = 6) -> None:
    """Writes one line of JSON."""
    typer.echo(as_json_line(record, digits))


def as_json_line(record: dict[str, Any], digits: int = 6) -> str:
    """Returns a record as JSON, its numbers with as many digits as a score has for sure."""
    return json.dumps(_rounded(record, digits), ensure_ascii=False)


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one, digits) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def read_file(file: pathlib.Path | None) -> str:
    """Returns the text of a file, or of standard input for `None`.

    Raises:
        ValueError: It is empty or not UTF-8.
        OSError: The file cannot be read.
    """
    data = sys.stdin.buffer.read() if file is None else file.read_bytes()
    name = _name(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} must be UTF-8. Received: byte {error.start} is 0x{data[error.start]:02x}; "
            "convert it, for instance with `iconv -f LATIN1 -t UTF-8`."
        ) from error
    if not text.strip():
        raise ValueError(f"There must be a text. Received: nothing, {name} is empty.")
    return text


def _lines(file: pathlib.Path | None) -> list[str]:
    lines = read_file(file).removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def _name(file: pathlib.Path | None) -> str:
    return "standard input" if file is None else repr(str(file))
