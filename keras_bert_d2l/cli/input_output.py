"""Input and output of the commands: texts, readable lines and JSON lines."""

import contextlib
import dataclasses
import json as json_format
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_bert_d2l.checks import shown
from keras_bert_d2l.progress import parts, without_bar

STDIN = "<standard input>"  # replaces the argument "-"
PART = 512  # texts per chunk; results are printed after each chunk
_OTHER_FORMATS = {  # by their first bytes
    b"\x1f\x8b": "a gzip file; unpack it with `gunzip -c`",
    b"PK\x03\x04": "a ZIP archive; unpack it with `unzip -p`",
    b"\xfd7zXZ": "an xz file; unpack it with `xz -dc`",
    b"\xff\xfe": "UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`",
}


def read_texts(texts: Sequence[str], file: pathlib.Path | None) -> list[str]:
    """Return the texts given as arguments, in a file or on standard input.

    Raises:
        ValueError: There are no texts or two sources of texts, a text is empty, or the input is not
            UTF-8.
        OSError: The file cannot be read.
    """
    return list(iterate_texts(texts, file))


def iterate_texts(texts: Sequence[str], file: pathlib.Path | None) -> Iterator[str]:
    """Yield the texts as `read_texts` returns them, reading one line at a time."""
    if bool(texts) == (file is not None):
        raise ValueError("Pass texts as arguments, with --file FILE, or - to read standard input.")
    are_arguments = _are_arguments(texts, file)
    place = "text" if are_arguments else f"line of {_name(file)}"
    number = 0
    for number, text in enumerate(texts if are_arguments else _lines(file), 1):
        if not text.strip():
            raise ValueError(f"Each {place} must contain text. Received: number {number} is empty.")
        yield text
    if not number:
        raise ValueError(f"The input must contain text. Received: {_name(file)} is empty.")


def _lines(file: pathlib.Path | None) -> Iterator[str]:
    with contextlib.nullcontext(sys.stdin.buffer) if file is None else open(file, "rb") as data:
        for number, line in enumerate(data, 1):
            text = _decoded(line, f"Line {number} of {_name(file)}")
            yield (text.removeprefix("\ufeff") if number == 1 else text).rstrip("\r\n")


def read_pairs(
    texts: Sequence[str], file: pathlib.Path | None, hint: str = ""
) -> tuple[list[str], list[str]]:
    """Read text pairs from alternating arguments or tab-separated lines.

    Args:
        texts: The arguments.
        file: The file.
        hint: Appended to the error message if the number of texts is odd.

    Returns: the first texts and the second texts.

    Raises:
        ValueError: As in `read_texts`, or a text has no partner.
        OSError: The file cannot be read.
    """
    found = read_texts(texts, file)
    if _are_arguments(texts, file):
        if len(found) % 2:
            from keras_bert_d2l.data.tasks.examples import how_many

            raise ValueError(
                f"The number of texts must be even. Received: {how_many(len(found), 'text')}.{hint}"
            )
        return found[::2], found[1::2]
    pairs = [line.split("\t") for line in found]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(text.strip() for text in pair):
            raise ValueError(
                "Every line must contain two texts separated by a tab. Received: line "
                f"{number}, {shown(found[number - 1])}."
            )
    return [first for first, _ in pairs], [second for _, second in pairs]


def read_file(file: pathlib.Path) -> str:
    """Return the text of a file.

    Raises:
        ValueError: The text is empty or not UTF-8.
        OSError: The file cannot be read.
    """
    name = _name(file)
    text = _decoded(file.read_bytes(), name).removeprefix("\ufeff")
    if not text.strip():
        raise ValueError(f"The input must contain text. Received: {name} is empty.")
    return text


def _decoded(data: bytes, name: str) -> str:
    for start, found in _OTHER_FORMATS.items():
        if data.startswith(start):
            raise ValueError(f"{name} must be UTF-8 text. Received: {found}.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} must be UTF-8. Received: byte {error.start} is 0x{data[error.start]:02x}; "
            "convert it, for example with `iconv -f LATIN1 -t UTF-8`."
        ) from error


def print_answers(
    texts: Mapping[str, Sequence[str]],
    ask: Callable[[slice], Iterable[Any]],
    lines: Callable[..., str],
    name: str | None = None,
    *,
    json: bool,
) -> None:
    """Run a model on the texts in chunks, and print the results of each chunk immediately.

    Args:
        texts: The texts. Maps the name of a JSON field to one text per example.
        ask: Returns the results for a slice of the examples.
        lines: Returns the readable lines for the texts of an example and its result.
        name: JSON field of the result. `None`: the result is a dataclass with its own fields.
        json: Whether to print JSON.
    """
    for part in parts("Predicting", len(next(iter(texts.values()))), PART):
        sides = (side[part] for side in texts.values())
        examples = list(zip(*sides, ask(part), strict=True))
        with without_bar():
            for *example, answer in examples:
                if json:
                    fields = dataclasses.asdict(answer) if name is None else {name: answer}
                    print(as_json_line({**dict(zip(texts, example, strict=True)), **fields}))
                else:
                    print(lines(*example, answer))


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


def _are_arguments(texts: Sequence[str], file: pathlib.Path | None) -> bool:
    return file is None and list(texts) != [STDIN]


def _name(file: pathlib.Path | None) -> str:
    return "standard input" if file is None else repr(str(file))
