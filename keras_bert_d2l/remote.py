"""Read files in object stores, such as `s3://`, `gs://` and `hf://`, through fsspec.

Corpora are streamed, and folders are copied to the local cache. Results are written to local
folders.
"""

import glob
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from keras_bert_d2l.files import (
    lock_file,
    replacing_folder,
    url,
    user_cache,
    verify_checksums,
    write_text,
)
from keras_bert_d2l.reading import check_file, sha256_of
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_BLOCK_BYTES = 1 << 22  # per request, when a file is read in parts


@contextmanager
def _file_system(address: str) -> Iterator[tuple["AbstractFileSystem", str]]:
    """Yield the file system of a URL, and the path in it.

    The libraries of object stores have errors of their own, most of which do not name the URL.

    Raises:
        ImportError: fsspec, or its package for this kind of URL, is not installed.
        FileNotFoundError: The store reports that there is no such file or bucket.
        OSError: The object store cannot be accessed.
    """
    try:
        import fsspec

        fs, path = fsspec.url_to_fs(address)
        fs.invalidate_cache()
        yield fs, path.rstrip("/")
    except ImportError as error:
        raise ImportError(
            f"Reading {address!r} needs fsspec and its package for this kind of URL ({error}). "
            'Install them with: pip install "keras-bert-d2l[remote]".'
        ) from error
    except Exception as error:
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else OSError
        reason = str(getattr(error, "strerror", None) or error).strip().rstrip(".")
        raise kind(
            f"Could not access {address!r}: {reason} ({type(error).__name__}). Check the URL, the "
            "network and your credentials."
        ) from error


def open_file(path: PathLike) -> BinaryIO:
    """Open a local or remote file for reading bytes."""
    address = url(path)
    if address is None:
        return open(check_file(path), "rb")
    with _file_system(address) as (fs, name):
        return cast(BinaryIO, fs.open(name, "rb", block_size=_BLOCK_BYTES))


def size_of(path: PathLike) -> int:
    """Return the size of a local or remote file in bytes."""
    address = url(path)
    if address is None:
        return os.stat(path).st_size
    with _file_system(address) as (fs, name):
        return int(fs.size(name))


def identity_of(path: PathLike) -> str:
    """Return what identifies the content of a file: its SHA-256, or its URL and version tag."""
    address = url(path)
    if address is None:
        return sha256_of(pathlib.Path(path))
    with _file_system(address) as (fs, name):
        return f"{address} {_version_of(fs.info(name))}"


def files(address: str) -> list[pathlib.PurePosixPath]:
    """Return the remote file, those that match a pattern, or those below a folder, in order."""
    with _file_system(address) as (fs, name):
        if glob.has_magic(name):
            found = fs.glob(name)
        else:
            found = [name] if fs.isfile(name) else fs.find(name)
        return sorted(pathlib.PurePosixPath(fs.unstrip_protocol(one)) for one in found)


def mirrored(path: PathLike) -> pathlib.Path:
    """Return a local path unchanged, and the local copy of a remote folder.

    The copy is made if there is none, or if the store's list of files has changed: their names,
    sizes and version tags. The files are compared with `SHA256SUMS`, if the folder has it.

    Raises:
        FileNotFoundError: The remote folder does not exist.
        OSError: The store cannot be read.
        ValueError: A file does not match `SHA256SUMS`.
    """
    address = url(path)
    if address is None:
        return pathlib.Path(path)
    address = address.rstrip("/")
    digest = hashlib.sha256(address.encode()).hexdigest()[:24]
    local = user_cache() / "remote" / digest / address.rpartition("/")[2]
    record = local.parent / "listing.json"
    with lock_file(local.parent / "lock", "", wait=True):
        with _file_system(address) as (fs, root):
            found = {
                name.removeprefix(f"{root}/"): _version_of(info)
                for name, info in sorted(fs.find(root, detail=True).items())
                if name.startswith(f"{root}/")
            }
        if not found:
            raise FileNotFoundError(f"There is no folder {address!r} in the object store.")
        tags = json.dumps(found, indent=1)
        if not (local.is_dir() and record.is_file() and record.read_text() == tags):
            record.unlink(missing_ok=True)
            with replacing_folder(local) as folder:
                _copy(address, list(found), folder)
                verify_checksums(folder)
            write_text(record, tags)
    return local


def _version_of(info: dict[str, Any]) -> str:
    """Return a string that changes with the content of a remote file: a tag, or its times."""
    for name in ("ETag", "etag", "md5Hash", "blob_id", "xet_hash", "crc32c", "mtime", "created"):
        if info.get(name):
            return f"{info['size']} {info[name]}"
    return f"{info['size']}"


def _copy(address: str, names: list[str], folder: pathlib.Path) -> None:
    """Copy files below a remote folder to a local folder."""
    for name in names:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{address!r} contains a file with the name {name!r}. Rename it.")
    with _file_system(address) as (fs, root):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(f"{root}/{name}", os.fspath(folder / name))
