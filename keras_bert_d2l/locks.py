"""Locks on files and folders, which the system releases when their process ends."""

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # of some network file systems


@contextlib.contextmanager
def locked(folder: pathlib.Path, *, wait: bool = False) -> Iterator[bool]:
    """Yield whether this process could lock a folder. The lock ends with the block."""
    with contextlib.ExitStack() as closing:
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            closing.callback(os.close, descriptor)
            is_locked = _lock(descriptor, wait=wait)
        except OSError:  # another process has locked it, or the system cannot open folders
            is_locked = False
        yield is_locked


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file or folder, and return whether the system has such locks.

    Raises:
        BlockingIOError: Another process has locked it, and `wait` is not set.
    """
    import fcntl  # not available on Windows, where no caller gets here

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True


@contextlib.contextmanager
def lock_file(path: pathlib.Path, busy: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock on a file, which the system releases when the process ends.

    On Windows and on file systems without locks, this function does nothing.

    Args:
        path: The file. It is created, with its folder.
        busy: Message of the error if another process holds the lock.
        wait: Whether to wait for the other process instead.

    Raises:
        BlockingIOError: Another process holds the lock, and `wait` is not set.
    """
    if os.name == "nt":
        yield
        return
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = open(path, "ab")  # noqa: SIM115
        except FileNotFoundError:  # the previous owner of the lock has just removed the folder
            continue
        with lock:
            try:
                _lock(lock.fileno(), wait=wait)
            except BlockingIOError as error:
                raise BlockingIOError(busy) from error
            if path.exists() and is_at(lock.fileno(), path):
                yield
                return


def is_at(descriptor: int, path: pathlib.Path) -> bool:
    """Return whether `path` leads to the open file or folder."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:  # it is being replaced at this moment
        return False
