"""Read files that may be damaged, missing or much too large."""

import contextlib
import hashlib
import json
import os
import pathlib
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

from keras_bert_d2l.types import PathLike

# Largest files that are read as a whole, in bytes. A configuration of 50,000 labels has 5 MB, a
# SHA256SUMS of 100,000 files 10 MB, a vocab.txt of a million tokens 10 MB,
# and a tokenizer.json of 260,000 tokens with merges 33 MB.
MOST_BYTES, MOST_VOCAB_BYTES = 2**24, 2**26
_RESTORE = "Restore it from a copy."

_Errors = tuple[type[Exception], ...]
# What Python's libraries raise when they read damaged files.
DAMAGE: _Errors = (
    *(ValueError, EOFError, RuntimeError, OSError, OverflowError, LookupError, struct.error),
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, tokenize.TokenError),
)


@contextlib.contextmanager
def errors_naming(
    path: PathLike, problem: str = "", remedy: str = "", errors: _Errors = (ValueError,)
) -> Iterator[None]:
    """Begin the message of an error with the path of a file, and make it a `ValueError`.

    Args:
        path: The path of the file.
        problem: What follows the path directly, so it begins with a space.
        remedy: Sentences at the end. A period ends the message of the error before them.
        errors: The classes of errors.
    """
    try:
        yield
    except errors as error:
        reason = str(error)
        if remedy:
            what = f"it lacks a part ({reason})" if isinstance(error, LookupError) else reason
            reason = f"{what[:250].removesuffix('.')}. {remedy}"
        raise ValueError(f"{os.fspath(path)!r}{problem}: {reason}") from error


def check_file(path: PathLike) -> pathlib.Path:
    """Return the path of a regular file.

    Raises:
        FileNotFoundError: There is no such file, or it is a link that leads nowhere.
        ValueError: It is a folder, a named pipe or a device.
    """
    path = pathlib.Path(path)
    if not path.exists():
        link = ": it is a link that leads nowhere" if path.is_symlink() else ""
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}{link}.")
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a named pipe or a device; save its content first"
        raise ValueError(f"{os.fspath(path)!r} must be a file. Received: {kind}.")
    return path


def has_file(path: PathLike) -> bool:
    """Return whether there is a regular file at a path; `False` only if no entry has this name.

    Raises:
        FileNotFoundError: It is a link that leads nowhere.
        ValueError: It is a folder, a named pipe or a device.
    """
    return os.path.lexists(path) and bool(check_file(path))


def visible_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files below a folder, sorted, without hidden files and hidden folders."""
    return sorted(
        path
        for path in folder.rglob("*")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )


def check_size(path: PathLike, most_bytes: int) -> None:
    """Raise a `ValueError` if a file is too large to be read as a whole."""
    size = os.stat(path).st_size
    if size > most_bytes:
        raise ValueError(
            f"{os.fspath(path)!r} is larger than {most_bytes:,} bytes: it has {size:,}. Check that "
            f"it is the right file. {_RESTORE}"
        )


def read_small_text(path: PathLike, most_bytes: int = MOST_BYTES) -> str:
    """Read a UTF-8 text file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a regular file, is too large, or is not UTF-8.
    """
    file = check_file(path)
    check_size(file, most_bytes)
    with errors_naming(path, " is damaged: it is not UTF-8 text", _RESTORE, (UnicodeDecodeError,)):
        return file.read_text(encoding="utf-8")


def sha256_of(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: PathLike, most_bytes: int = MOST_BYTES) -> object:
    """Read a JSON file.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is too large or not JSON.
    """
    text = read_small_text(path, most_bytes)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a JSON file: {error}.") from error


# PyYAML raises them for deep nesting and for values that do not fit their tags, as in `!!bool 7`.
_OTHER_YAML_ERRORS = (RecursionError, ValueError, LookupError, AttributeError)
_MOST_YAML_BYTES = 2**20  # PyYAML reads 100 KB per second


def read_yaml(path: PathLike) -> object:
    """Read a YAML file of plain values.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is too large or not YAML.
    """
    import yaml  # imported here because `--help` does not need it

    text = read_small_text(path, _MOST_YAML_BYTES)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, *_OTHER_YAML_ERRORS) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{os.fspath(path)!r} is not a YAML file: {reason}.") from error


def read_json_object(path: PathLike, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is too large, is not JSON, or contains something other than an object.
    """
    fields = read_json(path, most_bytes)
    if not isinstance(fields, dict):
        raise ValueError(
            f"{os.fspath(path)!r} must contain a JSON object. Received: {fields!r:.80}."
        )
    return fields


def readable_fields(path: PathLike, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if there is none that can be read."""
    try:
        return read_json_object(path, most_bytes)
    except (OSError, ValueError):
        return {}
