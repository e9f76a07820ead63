"""A text file, decompressed and decoded, or data in memory as a file of JSON lines.

Data frames and data sets of Hugging Face are recognized by their methods, so neither pandas nor
datasets is imported.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias, cast
from uuid import UUID

from keras_bert_d2l.checks import check_that, shown
from keras_bert_d2l.reading import sha256_of
from keras_bert_d2l.text.text_files import bare_suffix, read_text


@dataclasses.dataclass(frozen=True)
class TextFile:
    """The text of a file.

    Attributes:
        path: Path of the file.
        text: The complete text.
        sha256: Checksum of the bytes on disk.
        quotes: Whether quotes enclose the cells of a table; None: detected.
    """

    path: pathlib.Path
    text: str
    sha256: str
    quotes: bool | None = None

    @property
    def suffix(self) -> str:
        """The file extension in lower case, without `.gz` or `.xz`, such as `".csv"`."""
        return bare_suffix(self.path)

    def lines(self) -> list[str]:
        """Return the lines without line breaks."""
        # `splitlines` would also split at a dozen characters that may occur within a text.
        lines = [line.removesuffix("\r") for line in self.text.split("\n")]
        return lines if lines[-1] else lines[:-1]

    def error(self, line: int, message: str) -> ValueError:
        """Return the exception to raise for a line, counted from 1."""
        return ValueError(f"{os.fspath(self.path)!r}, line {line:,}: {message}")


def read_file(path: pathlib.Path) -> TextFile:
    """Read a UTF-8 text file, decompressing `.gz` and `.xz`.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is not UTF-8, is binary, or is damaged.
    """
    return TextFile(path, "".join(read_text(path)), sha256_of(path))


InMemory: TypeAlias = Iterable[object]
"""A data frame, a `Dataset` of Hugging Face, a list or a dictionary of lists."""

_MISSING = ("NAType", "NaTType")  # of pandas; other missing values are None and NaN
# Types whose `str` is the usual text of a value.
_WRITTEN = (Decimal, date, time, timedelta, UUID, pathlib.PurePath)


def memory_file(data: InMemory, argument: str = "data") -> TextFile:
    """Return the rows of a data set in memory as a file with one JSON object per line.

    Args:
        data: The data set.
        argument: The argument that it was passed as, for messages.

    Raises:
        ValueError: `data` is not a data set, its columns have different lengths, or a value has a
            type that is neither text, a number, a list nor a dictionary.
    """
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):  # in a DataFrame, it may be a column
        features = {}
    # The names of the classes in a column of datasets, or in its lists.
    names = {
        column: getattr(getattr(feature, "feature", feature), "names", None)
        for column, feature in features.items()
    }
    encode = json.JSONEncoder(default=_plain).encode
    lines: list[str] = []
    for row in _rows(data, argument):
        cells = {str(name): _named(value, names.get(name)) for name, value in row.items()}
        lines.append(f"{encode(cells)}\n")
    text = "".join(lines)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return TextFile(pathlib.Path(f"the {type(data).__name__}"), text, sha256)


def _rows(data: InMemory, argument: str) -> Iterable[Mapping[str, object]]:
    """Return the rows of a data set as objects, whatever library it is from."""
    if hasattr(data, "columns"):  # polars, pyarrow and pandas
        for method, arguments in (("to_dicts", ()), ("to_pylist", ()), ("to_dict", ("records",))):
            if hasattr(data, method):
                return cast(Iterable[Mapping[str, object]], getattr(data, method)(*arguments))
    values = _without_arrays(data)
    if isinstance(values, Mapping):
        for name, cells in values.items():
            is_list = isinstance(cells, Iterable) and not isinstance(cells, str | Mapping)
            check_that(is_list, f"{argument}[{shown(name)}]", "a list", cells)
        columns = {name: list(cells) for name, cells in values.items()}
        lengths = {name: len(cells) for name, cells in columns.items()}
        are_equal = len(set(lengths.values())) <= 1
        check_that(are_equal, argument, "columns of equal lengths", lengths)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    has_rows = isinstance(values, list | tuple) or hasattr(values, "features")
    rows: list[Any] = [*map(with_text, cast(Iterable[object], values))] if has_rows else [None]
    if all(isinstance(row, Mapping) for row in rows):
        return rows
    lists = "a list of dictionaries or of texts, or a dictionary of lists, one per column"
    are_texts = all(isinstance(row, str | bytes) for row in rows)
    check_that(are_texts, argument, f"a path, a DataFrame, a Dataset, {lists}", data)
    return [{"text": text} for text in rows]


def with_text(row: object) -> Any:
    """Return a text and its fields, as spaCy writes them, as an object, and other rows as is."""
    match row:
        case [str(text), dict(fields)]:
            return {"text": text, **fields}
    return row


def _named(value: object, names: Sequence[str] | None) -> object:
    """Replace the number of a class with its name; negative numbers mean that it is unknown."""
    value = _without_arrays(value)
    if names is None or value is None:
        return value
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if isinstance(value, int) and value >= 0 else None


def _without_arrays(value: object) -> object:
    """Convert arrays, tensors, series and their scalars to Python lists and values."""
    if hasattr(value, "numpy") and not hasattr(value, "tolist"):  # a tensor of TensorFlow
        value = value.numpy()
    for name in ("tolist", "to_list", "to_pylist"):  # of NumPy and pandas, polars and pyarrow
        if hasattr(value, name):
            return getattr(value, name)()
    return value


def _plain(value: object) -> object:
    """Convert a value that JSON does not have."""
    if type(value).__name__ in _MISSING:
        return None
    plain = _without_arrays(value)
    if plain is not value:
        return plain
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, _WRITTEN):
        return str(value)
    raise ValueError(
        "`data` must have texts (bytes as UTF-8), numbers, lists or dictionaries. Received: "
        f"{shown(value)} ({type(value).__name__}). Convert it first, or remove its column."
    )
