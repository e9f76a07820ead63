"""Write files and folders atomically (temporary file, fsync, rename) and check them on reading.

Each folder that the package writes contains `SHA256SUMS`, which lists the SHA-256 of every other
file in the format of the `sha256sum` command. `verify_checksums` compares the files with it.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from keras_bert_d2l.types import PathLike

CHECKSUMS = "SHA256SUMS"


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


def write_checksums(folder: PathLike) -> None:
    """Write `SHA256SUMS`, with the SHA-256 of every other file below a folder."""
    folder = pathlib.Path(folder)
    names = sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and file != folder / CHECKSUMS
    )
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in names]
    write_text(folder / CHECKSUMS, "".join(lines))


def read_checksums(folder: PathLike) -> dict[str, str]:
    """Return the SHA-256 of each file that `SHA256SUMS` lists; empty without that file.

    Raises:
        ValueError: A line of `SHA256SUMS` is damaged.
    """
    sums = pathlib.Path(folder, CHECKSUMS)
    found: dict[str, str] = {}
    if not sums.is_file():
        return found
    for number, line in enumerate(sums.read_text(encoding="utf-8", errors="replace").splitlines()):
        digest, separator, name = line.partition("  ")
        if len(digest) != 64 or not separator or not name or ".." in pathlib.Path(name).parts:
            raise ValueError(
                f"Line {number + 1} of {os.fspath(sums)!r} is damaged: {line!r:.80}. Restore the "
                f"folder from a copy, or write it again."
            )
        found[name] = digest
    return found


def changed_files(folder: PathLike) -> Iterator[pathlib.Path]:
    """Yield the files that `SHA256SUMS` lists and that are missing or have changed.

    Raises:
        ValueError: A line of `SHA256SUMS` is damaged.
    """
    for name, digest in read_checksums(folder).items():
        file = pathlib.Path(folder, name)
        if not file.is_file() or sha256_of(file) != digest:
            yield file


def verify_checksums(folder: PathLike) -> None:
    """Compare the files of a folder with its `SHA256SUMS`.

    A folder without that file passes, and so do files that it does not list.

    Raises:
        ValueError: A listed file is missing or has changed, or a line of `SHA256SUMS` is damaged.
    """
    for file in changed_files(folder):
        problem = "has changed since it was written" if file.is_file() else "is missing"
        raise ValueError(
            f"{os.fspath(file)!r} {problem}: it does not match {CHECKSUMS!r}. Restore the folder "
            f"from a copy. If the change was intended, delete {CHECKSUMS!r}."
        )


def check_file(path: PathLike) -> pathlib.Path:
    """Return the path of a regular file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is a folder, a named pipe or a device.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "a named pipe or a device; save its content first"
        raise ValueError(f"{os.fspath(path)!r} must be a file. Received: {kind}.")
    return path


def sha256_of(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing_folder(path: PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary folder, which replaces the folder `path` if the block succeeds.

    An existing folder is first moved aside and removed last, so a complete copy always exists.
    `SHA256SUMS` is added.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    )
    try:
        yield temporary
        write_checksums(temporary)
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
