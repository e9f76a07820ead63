"""Writing files whole or not at all, by a temporary file, fsync and rename; reading JSON."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any


def _sync_folder(path: pathlib.Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary path; what is written there replaces `path` when the block ends well.

    A reader sees the old file or the new one, never a part. The parent folder is created.
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


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a UTF-8 text file, whole or not at all."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary folder; it replaces the folder `path` when the block ends well.

    Where `path` exists it is moved aside first and removed last, so that at no moment the only
    whole copy is gone.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    )
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp's folders are for their owner alone
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


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a JSON file that holds an object.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is no JSON, or holds something else.
    """
    try:
        fields = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{os.fspath(path)!r} is not a JSON file: {error}.") from error
    if not isinstance(fields, dict):
        raise ValueError(f"{os.fspath(path)!r} must hold a JSON object. Received: {fields!r:.80}.")
    return fields
