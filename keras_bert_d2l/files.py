"""Write files and folders atomically (temporary file, fsync, rename), and read JSON."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from keras_bert_d2l.types import PathLike


def _sync_folder(path: pathlib.Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing_file(path: PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary path, which replaces the file `path` if the block succeeds.

    Readers see the old file or the complete new one. Missing parent folders are created.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: PathLike, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing_folder(path: PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary folder, which replaces the folder `path` if the block succeeds.

    An existing folder is first moved aside and removed last, so a complete copy always exists.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    )
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp creates folders that only their owner can read
        for file in temporary.rglob("*"):
            if file.is_file():
                with open(file, "rb+") as opened:
                    os.fsync(opened.fileno())
        old = path.with_name(f".{path.name}.{os.getpid()}.old")
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        _sync_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_json_object(path: PathLike) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is not JSON, or contains something other than an object.
    """
    try:
        fields = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a JSON file: {error}.") from error
    if not isinstance(fields, dict):
        raise ValueError(
            f"{os.fspath(path)!r} must contain a JSON object. Received: {fields!r:.80}."
        )
    return fields
