"""Files in object stores, such as `s3://`, `gs://` and `hf://`, through fsspec.

A folder in an object store is read by copying it into the local cache, and written by copying a
local folder. Object stores cannot rename folders, so `publish` keeps to an order: `SHA256SUMS` is
deleted first and written last, and a version that replaces another is first written completely next
to it, below `.FOLDER.new`. At every moment, one of the two is complete, and `mirrored` reads that
one. There are no locks in object stores: two programs must not write the same folder.
"""

import glob
import hashlib
import itertools
import json
import os
import pathlib
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from keras_bert_d2l.files import (
    CARD_FILE,
    CHECKSUMS,
    check_not_working_directory,
    disk_errors,
    replacing_folder,
    url,
    user_cache,
    verify_checksums,
    write_checksums,
    write_text,
)
from keras_bert_d2l.locks import lock_file
from keras_bert_d2l.reading import check_file, sha256_of
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_KEYS = ("config.json", "manifest.json", CHECKSUMS)  # the last files that are written, in order
# How to provide credentials for each kind of URL.
_LOGINS = {
    "s3": ": set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`",
    "gs": ": run `gcloud auth application-default login`",
    "hf": ": run `hf auth login`",
}
_ATTEMPTS = 5
_BLOCK_BYTES = 1 << 22  # per request, when a file is read in parts


def file_system(address: str) -> tuple["AbstractFileSystem", str]:
    """Return the file system of a URL, and the path in it.

    Errors of its methods name the URL and are built-in ones, such as `FileNotFoundError`.

    Raises:
        ImportError: fsspec, or its package for this kind of URL, is not installed.
        OSError: The object store cannot be accessed.
        ValueError: There is no such kind of URL.
    """
    with _explained(address):
        import fsspec

        is_local = address.startswith(("file:", "local:"))
        fs, path = fsspec.url_to_fs(address, **({"auto_mkdir": True} if is_local else {}))
        fs.invalidate_cache()
    return cast("AbstractFileSystem", _Explained(fs, address)), path.rstrip("/")


class _Explained:
    """A file system whose methods raise built-in errors that name a URL."""

    def __init__(self, fs: "AbstractFileSystem", address: str) -> None:
        self._fs = fs
        self._address = address

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._fs, name)
        return _explained(self._address)(value) if callable(value) else value


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Turn any error into a built-in one that names a URL, the reason, and possible fixes.

    The libraries of object stores have errors of their own, and most do not name the URL.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"Reading {address!r} needs fsspec and its package for this kind of URL ({error}). "
            'Install them with: pip install "keras-bert-d2l[remote]".'
        ) from error
    except Exception as error:
        kinds = (kind for kind in type(error).__mro__ if issubclass(kind, OSError | ValueError))
        kind = next((kind for kind in kinds if kind.__module__ == "builtins"), OSError)
        reason = str(getattr(error, "strerror", None) or error).strip().rstrip(".")
        login = _LOGINS.get(address.partition(":")[0], "")
        raise kind(
            f"Could not access {address!r}: {reason or 'no reason given'} "
            f"({type(error).__name__}). Check the URL, the network and your credentials{login}."
        ) from error


def open_file(path: PathLike) -> BinaryIO:
    """Open a local or remote file for reading bytes."""
    address = url(path)
    if address is None:
        return open(check_file(path), "rb")
    fs, name = file_system(address)
    return cast(BinaryIO, fs.open(name, "rb", block_size=_BLOCK_BYTES))


def size_of(path: PathLike) -> int:
    """Return the size of a local or remote file in bytes."""
    address = url(path)
    if address is None:
        return os.stat(path).st_size
    fs, name = file_system(address)
    return int(fs.size(name))


def identity_of(path: PathLike) -> str:
    """Return what identifies the content of a file: its SHA-256, or its URL and version tag."""
    address = url(path)
    if address is None:
        return sha256_of(pathlib.Path(path))
    fs, name = file_system(address)
    return f"{address} {_version_of(fs.info(name))}"


def files(address: str) -> list[pathlib.PurePosixPath]:
    """Return the remote file, those that match a pattern, or those below a folder, in order."""
    fs, name = file_system(address)
    if glob.has_magic(name):
        found = fs.glob(name)
    else:
        found = [name] if fs.isfile(name) else fs.find(name)
    return sorted(pathlib.PurePosixPath(fs.unstrip_protocol(one)) for one in found)


def listing(path: PathLike) -> dict[str, dict[str, Any]]:
    """Return what the store knows of all files below a remote folder, by their relative paths."""
    fs, root = file_system(cast(str, url(path)))
    found = fs.find(root, detail=True)
    return {
        name.removeprefix(root).lstrip("/"): info
        for name, info in sorted(found.items())
        if name.startswith(f"{root}/")
    }


def is_complete(path: PathLike) -> bool:
    """Return whether a remote folder that this package wrote is complete."""
    fs, root = file_system(cast(str, url(path)))
    new = hidden_beside(root, "new")
    return bool(fs.exists(f"{root}/{CHECKSUMS}") or fs.exists(f"{new}/{CHECKSUMS}"))


def hidden_beside(address: str, ending: str) -> str:
    """Return the folder beside a remote one that is used while that one is written.

    It is hidden, so that it is not the folder of somebody else: it is deleted afterwards.
    """
    parent, slash, name = address.rstrip("/").rpartition("/")
    return f"{parent}{slash}.{name}.{ending}"


def mirror_of(path: PathLike) -> pathlib.Path:
    """Return the folder in the local cache for a copy of a remote folder."""
    address = cast(str, url(path)).rstrip("/")
    digest = hashlib.sha256(address.encode()).hexdigest()[:24]
    return user_cache() / "remote" / digest / address.rpartition("/")[2]


def mirrored(path: PathLike) -> pathlib.Path:
    """Return a local path unchanged, and the local copy of a remote folder.

    The copy is made if there is none, or if the store's list of files has changed: their names,
    sizes and version tags. The files are compared with `SHA256SUMS`, if the folder has it.

    Raises:
        FileNotFoundError: The remote folder does not exist.
        OSError: The store cannot be read, or the folder changed while it was read.
        ValueError: A file does not match `SHA256SUMS`.
    """
    address = url(path)
    if address is None:
        return pathlib.Path(path)
    local = mirror_of(path)
    record = _record(local)
    with lock_file(local.parent / "lock", "", wait=True):
        if not (local.is_dir() and record.is_file() and record.read_text() == _current(address)[1]):
            record.unlink(missing_ok=True)
            write_text(record, fetch(address, local))
    return local


def fetch(address: str, local: pathlib.Path) -> str:
    """Copy a remote folder to a local one, and return the list of its files; see `mirrored`."""
    for attempt in itertools.count(1):
        source, tags = _current(address)
        try:
            with replacing_folder(local) as folder:
                _get_files(source, folder)
                verify_checksums(folder)
        except (FileNotFoundError, ValueError):  # perhaps replaced while it was read
            if attempt == _ATTEMPTS or _current(address)[1] == tags:
                raise
        else:
            break
    return tags


def publish(folder: pathlib.Path, path: PathLike) -> None:
    """Copy a local folder with `SHA256SUMS` to an object store, as the module describes.

    Files below the remote folder that the local folder does not have are deleted.

    Raises:
        OSError: The store cannot be written.
    """
    address = cast(str, url(path))
    fs, root = file_system(address)
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    names.sort(key=lambda name: (_KEYS.index(name) if name in _KEYS else -1, name))
    new = hidden_beside(root, "new")
    replaces = fs.exists(f"{root}/{CHECKSUMS}")
    for target in (new, root) if replaces else (root,):
        sums = f"{target}/{CHECKSUMS}"
        if fs.exists(sums):
            fs.rm_file(sums)
        for name in fs.find(target):
            if name.removeprefix(f"{target}/") not in names:
                fs.rm_file(name)
        for name in names:
            if target == new or not replaces:
                fs.put_file(os.fspath(folder / name), f"{target}/{name}")
            else:
                fs.cp_file(f"{new}/{name}", f"{root}/{name}")
    delete(hidden_beside(address, "new"))
    if folder == mirror_of(path):
        write_text(_record(folder), _current(address)[1])


def delete(address: str) -> None:
    """Delete a remote file or folder, if it exists."""
    fs, name = file_system(address)
    if fs.exists(name):
        fs.rm(name, recursive=True)


@contextmanager
def writing_folder(path: PathLike) -> Iterator[pathlib.Path]:
    """Yield a temporary folder, which replaces a local or remote folder if the block succeeds.

    `SHA256SUMS` is added. See `files.replacing_folder` and `publish`.
    """
    if url(path) is None:
        with replacing_folder(pathlib.Path(path).resolve()) as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory() as name, disk_errors(name):
        folder = pathlib.Path(name, pathlib.PurePath(path).name)  # a model card contains its name
        folder.mkdir()
        yield folder
        write_checksums(folder)
        publish(folder, path)


def check_replaceable(path: PathLike, kind: str, replaceable: Collection[str]) -> None:
    """Raise an error if a local or remote folder has files that are not part of what replaces it.

    Args:
        path: The folder that is to be written.
        kind: What is written, for the message.
        replaceable: The names in the folder that may be replaced. Beside a configuration, this
            includes the model card.

    Raises:
        FileExistsError: It contains another file, or is a file.
        ValueError: It is the working directory.
    """
    folder, name = pathlib.Path(path), os.fspath(path)
    if url(path) is not None:
        names = {file.partition("/")[0] for file in listing(path)}
    elif not folder.exists():
        return
    elif not folder.is_dir():
        raise FileExistsError(f"{name!r} is a file. Give the path of a folder to save to.")
    else:
        check_not_working_directory(folder)
        names = {entry.name for entry in folder.iterdir()}
    card = {CARD_FILE} if names & {"config.json", "adapter_config.json"} else set()
    foreign = sorted(names.difference(replaceable, card))
    if foreign:
        raise FileExistsError(
            f"{name!r} contains {foreign[0]!r}, which is not part of a {kind}, and saving a {kind} "
            f"replaces the entire folder. Save it in a separate folder, such as "
            f"{os.path.join(name, 'model')!r}."
        )


def _record(mirror: pathlib.Path) -> pathlib.Path:
    return mirror.parent / "listing.json"


def _current(address: str) -> tuple[str, str]:
    """Return the URL of the complete version of a remote folder, and its files as JSON."""
    for source in (address.rstrip("/"), hidden_beside(address, "new")):
        files = listing(source)
        if CHECKSUMS in files:
            break
    else:  # not written by this package, or not completely
        source = address
        files = listing(source)
    if not files:
        raise FileNotFoundError(f"There is no folder {address!r} in the object store.")
    tags = {name: _version_of(info) for name, info in files.items()}
    return source, json.dumps([source, tags], indent=1)


def _version_of(info: dict[str, Any]) -> str:
    """Return a string that changes with the content of a remote file: a tag, or its times."""
    for name in ("ETag", "etag", "md5Hash", "blob_id", "xet_hash", "crc32c", "mtime", "created"):
        if info.get(name):
            return f"{info['size']} {info[name]}"
    return f"{info['size']}"


def _get_files(address: str, folder: pathlib.Path) -> None:
    """Copy the files below a remote folder to a local folder."""
    fs, root = file_system(address)
    for name in listing(address):
        target = folder / name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{address!r} contains a file with the name {name!r}. Rename it.")
        target.parent.mkdir(parents=True, exist_ok=True)
        fs.get_file(f"{root}/{name}", os.fspath(target))
