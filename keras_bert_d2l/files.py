"""Write files and folders atomically (temporary file, fsync, rename), check them, and lock them.

Each folder that the package writes contains `SHA256SUMS`, which lists the SHA-256 of every other
file in the format of the `sha256sum` command. `verify_checksums` compares the files with it. The
model card is not listed, because people edit it.
"""

import contextlib
import errno
import glob
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from keras_bert_d2l.reading import has_file, read_small_text, sha256_of, visible_files
from keras_bert_d2l.types import PathLike

CHECKSUMS, CARD_FILE = "SHA256SUMS", "README.md"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)
_URL = re.compile(r"([a-z][a-z0-9+]+):/+(?=[^/])")  # `pathlib` turns s3://a into s3:/a


def user_cache() -> pathlib.Path:
    """Return the folder of this package in the user's cache folder."""
    parent = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(parent, "keras_bert_d2l")


def url(path: PathLike) -> str | None:
    """Return the URL of a path in an object store, or None for a local path."""
    text = os.fspath(path)
    scheme = _URL.match(text) if isinstance(text, str) else None
    if scheme is None:
        return None
    slashes = ":///" if scheme[1] in ("file", "local") else "://"
    return f"{scheme[1]}{slashes}{text[scheme.end() :]}"


def check_local(name: str, path: PathLike) -> None:
    """Raise a `ValueError` if a path is the URL of an object store."""
    if url(path) is not None:
        raise ValueError(
            f"`{name}` must be a local path. Received: {url(path)!r}. Write to a local path, and "
            "copy it with the object store's own tool, such as `aws s3 cp --recursive`."
        )


def make_folder(path: PathLike) -> None:
    """Create a folder and its parents, unless it exists.

    Raises:
        FileExistsError: The path is a file.
        PermissionError: The folder is not writable.
    """
    if os.path.isfile(path):
        raise FileExistsError(f"{os.fspath(path)!r} is a file. Choose a new or empty folder.")
    os.makedirs(path, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise PermissionError(f"{os.fspath(path)!r} is not writable. Choose a different folder.")


@contextlib.contextmanager
def replacing_file(path: PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary path, which replaces the file `path` if the block succeeds.

    Readers see the old file or the complete new one. Missing parent folders are created. A device
    or a named pipe, such as `/dev/stdout`, is not replaced: the content is written into it.
    """
    check_local("path", path)
    path = pathlib.Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "A file cannot replace the folder", os.fspath(path))
    if path.exists() and not path.is_file():  # before links are followed: a pipe has no real path
        with tempfile.TemporaryDirectory() as folder, disk_errors(path):
            temporary = pathlib.Path(folder, "content")
            yield temporary
            with open(temporary, "rb") as content, open(path, "wb") as device:
                shutil.copyfileobj(content, device)
        return
    path = pathlib.Path(os.path.realpath(path))
    with _workspace(path) as workspace:
        temporary = workspace / path.name
        yield temporary
        if path.is_file():
            shutil.copymode(path, temporary)
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)


def write_text(path: PathLike, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with replacing_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: PathLike, content: object, *, indent: int | None = 2, **options: Any) -> None:
    """Write a JSON file atomically, with the options of `json.dumps`.

    Raises:
        ValueError: A number is infinite or NaN, which JSON does not have.
    """
    write_text(path, json.dumps(content, indent=indent, allow_nan=False, **options) + "\n")


def write_checksums(folder: PathLike, names: Sequence[str] | None = None) -> None:
    """Write `SHA256SUMS`, with the SHA-256 of the named or all visible files below a folder."""
    folder = pathlib.Path(folder)
    if names is None:
        visible = (file.relative_to(folder).as_posix() for file in visible_files(folder))
        names = [name for name in visible if name not in (CHECKSUMS, CARD_FILE)]
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in names]
    write_text(folder / CHECKSUMS, "".join(lines))


def read_checksums(folder: PathLike) -> dict[str, str]:
    """Return the SHA-256 of each file that `SHA256SUMS` lists; empty without that file.

    Raises:
        ValueError: `SHA256SUMS` is damaged.
    """
    sums = pathlib.Path(folder, CHECKSUMS)
    found: dict[str, str] = {}
    if not has_file(sums):
        return found
    for number, line in enumerate(read_small_text(sums).splitlines()):
        digest, _, name = line.partition("  ")
        path = pathlib.PurePath(name)
        is_inside = not path.is_absolute() and ".." not in path.parts
        if len(digest) != 64 or not name or "\0" in name or not is_inside:
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
        FileNotFoundError: A listed file is a link that leads nowhere.
        ValueError: A listed file is missing, has changed or is not a regular file, or a line of
            `SHA256SUMS` is damaged.
    """
    for file in changed_files(folder):
        problem = "has changed since it was written" if has_file(file) else "is missing"
        raise ValueError(
            f"{os.fspath(file)!r} {problem}: it does not match {CHECKSUMS!r}. Restore the folder "
            f"from a copy. If the change was intended, delete {CHECKSUMS!r}."
        )


@contextlib.contextmanager
def replacing_folder(path: PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary folder, which replaces the folder `path` if the block succeeds.

    `SHA256SUMS` is added. If the process is killed, `recover` restores a complete folder, the old
    one or the new one.
    """
    check_local("path", path)
    path = pathlib.Path(path).resolve()
    if path == pathlib.Path.cwd():
        raise ValueError(
            f"`path` must not be the working directory {os.fspath(path)!r}, because the entire "
            "folder is replaced. Use a subfolder."
        )
    with _workspace(path) as workspace:
        new, old = _new_and_old(workspace, path)
        new.mkdir()
        yield new
        write_checksums(new)
        for entry in (*new.rglob("*"), new, workspace):
            _sync(entry)
        with contextlib.suppress(FileNotFoundError):  # there is no folder to replace
            os.replace(path, old)
        os.replace(new, path)
        _sync(path.parent)


def check_replaceable(path: PathLike, kind: str, replaceable: Collection[str]) -> None:
    """Raise an error if a folder has files that are not part of what replaces it.

    Args:
        path: The folder that is to be written.
        kind: What is written, for the message.
        replaceable: The names in the folder that may be replaced.

    Raises:
        FileExistsError: It contains another file, or is a file.
        ValueError: It is the URL of an object store.
    """
    check_local("path", path)
    folder, name = pathlib.Path(path), os.fspath(path)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"{name!r} is a file. Give the path of a folder to save to.")
    names = {entry.name for entry in folder.iterdir()}
    foreign = sorted(names.difference(replaceable))
    if foreign:
        raise FileExistsError(
            f"{name!r} contains {foreign[0]!r}, which is not part of a {kind}, and saving a {kind} "
            f"replaces the entire folder. Save it in a separate folder, such as "
            f"{os.path.join(name, 'model')!r}."
        )


@contextlib.contextmanager
def disk_errors(path: PathLike) -> Iterator[None]:
    """Turn errors about the disk into an `OSError` that names the file or folder being written.

    Python does not name the file if the disk is full. Libraries that write weights and graphs have
    errors of their own, whose messages contain that of the system.
    """
    try:
        yield
    except Exception as error:
        number, name = getattr(error, "errno", None), getattr(error, "filename", None)
        if not isinstance(error, OSError):
            number = next((one for one in DISK_ERRORS if os.strerror(one) in str(error)), None)
        is_other = name is not None and f".{os.path.basename(path)}." not in str(name)
        if number not in DISK_ERRORS or is_other:
            raise
        raise OSError(number, os.strerror(number), os.fspath(path)) from error


@contextlib.contextmanager
def _workspace(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new folder next to `path` for temporary files, and remove it afterwards.

    The folder is locked. The system releases the lock when the process ends, so a folder that can
    be locked belongs to a dead process. A process id would not show this, because ids repeat.
    """
    with disk_errors(path), contextlib.ExitStack() as stack:
        make_folder(path.parent)
        recover(path)
        while True:
            workspace = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
            stack.callback(_remove, workspace, path)  # a signal may arrive before it is locked
            workspace.mkdir()
            stack.enter_context(locked(workspace, wait=True))
            if workspace.exists():  # no other process has removed it before it was locked
                break
        stack.callback(_remove, workspace, path)  # while it is locked
        yield workspace


def recover(path: PathLike) -> None:
    """Remove the temporary files of processes that died while they wrote a file or a folder.

    If a process died between the two renames of `replacing_folder`, the new folder is first moved
    to `path`. Files of running processes remain. On systems that cannot lock folders, such as
    Windows and some network file systems, this function does nothing.
    """
    path = pathlib.Path(path)
    for workspace in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        with locked(workspace) as is_locked:
            if is_locked:
                _remove(workspace, path)


def _new_and_old(workspace: pathlib.Path, path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    return workspace / path.name, workspace / f"{path.name}.old"


def _remove(workspace: pathlib.Path, path: pathlib.Path) -> None:
    """Remove a workspace. If the replacement of a folder was interrupted, complete it first."""
    new, old = _new_and_old(workspace, path)
    if new.exists() and old.exists() and not path.exists():
        os.replace(new, path)
    shutil.rmtree(workspace, ignore_errors=True)


def _sync(path: pathlib.Path) -> None:
    """Wait until a file or a folder is on the disk."""
    is_windows = os.name == "nt"
    if is_windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: pathlib.Path, *, wait: bool = False) -> Iterator[bool | None]:
    """Yield whether this process could lock a file or folder. The lock ends with the block.

    The answer is False if another process has locked it or if it does not exist, and None if the
    system does not have such locks, as on Windows and on some network file systems.
    """
    access = os.O_RDONLY if path.is_dir() else os.O_RDWR  # NFS only locks files that are writable
    is_locked: bool | None = False
    with contextlib.ExitStack() as closing:
        try:
            import fcntl  # not available on Windows

            while not is_locked:  # a previous owner may just have removed or replaced the path
                descriptor = os.open(path, access)
                closing.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                is_locked = os.path.samestat(os.fstat(descriptor), path.stat())
        except (BlockingIOError, FileNotFoundError):
            pass
        except (ImportError, OSError):
            is_locked = None
        yield is_locked


@contextlib.contextmanager
def lock_file(path: pathlib.Path, busy: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock on a file, which the system releases when the process ends.

    Without locks in the system, this function only creates the file.

    Args:
        path: The file. It is created, with its folder.
        busy: Message of the error if another process holds the lock.
        wait: Whether to wait for the other process instead.

    Raises:
        BlockingIOError: Another process holds the lock, and `wait` is not set.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the previous owner removed the folder
            path.touch()
        with locked(path, wait=wait) as is_locked:
            if is_locked is not False:
                yield
                return
        if path.exists() and not wait:
            raise BlockingIOError(busy)
