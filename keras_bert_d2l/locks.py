"""Locks on files and folders, which the system releases when their process ends."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


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
