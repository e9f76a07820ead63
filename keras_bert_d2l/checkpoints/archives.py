"""Archives of a model: `.tar.gz`, as TensorFlow Hub serves them, and `.keras`, a zip archive.

The files that a format reads are unpacked to a temporary folder, which is removed together with its
`Unpacked` object. Only regular files are written, and only inside this folder.
"""

import contextlib
import functools
import gzip
import io
import math
import os
import pathlib
import re
import shutil
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO, cast

from keras_bert_d2l.checkpoints.array_files import check
from keras_bert_d2l.checks import shown
from keras_bert_d2l.files import DISK_ERRORS, disk_errors
from keras_bert_d2l.reading import DAMAGE, check_file

_TAR, _GZIP, _ZIP = (".tar.gz", ".tgz", ".tar"), b"\x1f\x8b", b"PK"
_CHUNK = 2**20  # bytes
_MOST_FILES, _MOST_HEADER_BYTES = 500, 2**14  # a SavedModel has 10 files, each with up to 2 KB
# Compression shrinks weights by a tenth, and the graph of a SavedModel to a tenth.
_MOST_RATIO, _FEW_BYTES = 20, 2**26


class Limited:
    """A file that is read in parts of at most a megabyte (lists of BERT large: 100,000 bytes).

    Attributes:
        left: Number of bytes that may still be asked for.
    """

    def __init__(self, file: BinaryIO | gzip.GzipFile, left: float = math.inf) -> None:
        self._file, self.left = file, left
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = _CHUNK) -> bytes:
        """Return the next bytes, or raise a `ValueError` if too many are asked for."""
        check(0 <= size <= _CHUNK, f"its list of entries has {size:,} bytes")
        check(size <= self.left, "its list of entries is too long")
        self.left -= size
        return self._file.read(size)


class Unpacked:
    """Some files of an archive in a temporary folder, which is removed with this object.

    Args:
        path: A zip archive, which is recognized by its first bytes, or a tar archive. A folder with
            the files is used as it is.
        wanted: A regular expression for the names of the files. Its group is the name in the
            temporary folder.

    Attributes:
        folder: The folder.

    Raises:
        FileNotFoundError: The archive does not exist.
        OSError: The temporary folder is full.
        ValueError: The archive is damaged, too large, or has something other than files and
            folders inside of it.
    """

    def __init__(self, path: pathlib.Path, wanted: str) -> None:
        self.folder = path
        if path.is_dir():
            return
        check_file(path)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        with disk_errors(self.folder), path.open("rb") as file, _refusing(path):
            members = _zip_members if file.peek(2).startswith(_ZIP) else _tar_members
            left = max(_MOST_RATIO * os.fstat(file.fileno()).st_size, _FEW_BYTES)
            for number, (name, size, open_member) in enumerate(members(file)):
                left -= size
                check(number < _MOST_FILES, f"it has more than {_MOST_FILES:,} files")
                check(left >= 0, f"it is far larger than it can be at {shown(name)}")
                found = re.fullmatch(wanted, _safe(name))
                if not found or open_member is None:
                    continue
                target = self.folder / found[1]
                check(not target.exists(), f"it has two files {shown(found[1])}")
                target.parent.mkdir(exist_ok=True)
                with open_member() as content, target.open("xb") as unpacked:
                    shutil.copyfileobj(content, unpacked, _CHUNK)


# Name, size in bytes, and a function that opens the content, or `None` for a folder.
_Member = tuple[str, int, Callable[[], IO[bytes]] | None]


def is_tar(path: pathlib.Path) -> bool:
    """Return whether a file is a tar archive, compressed or not, by its name or first bytes."""
    with path.open("rb") as file:
        start = file.read(2 * tarfile.BLOCKSIZE)
    if start.startswith(_GZIP):
        with contextlib.suppress(zlib.error):
            start = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, tarfile.BLOCKSIZE)
    return path.name.endswith(_TAR) or start[257:262] == b"ustar"


def _tar_members(file: io.BufferedReader) -> Iterator[_Member]:
    is_plain_tar = not file.peek(2).startswith(_GZIP)
    with file if is_plain_tar else gzip.GzipFile(fileobj=cast(BinaryIO, Limited(file))) as content:
        limited = Limited(content, _MOST_HEADER_BYTES)
        archive = tarfile.TarFile(fileobj=cast(BinaryIO, limited))
        while member := archive.next():
            vars(archive).update(members=[], pax_headers={})  # each member has all headers
            is_plain = (member.isreg() and not member.issparse()) or member.isdir()
            check(is_plain, f"{shown(member.name)} is neither a file nor a folder")
            check(member.size >= 0, f"{shown(member.name)} has a negative size")
            reader = functools.partial(archive.extractfile, member)
            limited.left = math.inf
            yield member.name, member.size, cast(Callable, reader) if member.isreg() else None
            limited.left = _MOST_HEADER_BYTES  # of the next file
        while rest := content.read(_CHUNK):  # the checksum is at the end
            yield "", len(rest), None


def _zip_members(file: io.BufferedReader) -> Iterator[_Member]:
    archive = zipfile.ZipFile(cast(BinaryIO, Limited(file)))
    for entry in archive.infolist():
        yield entry.filename, entry.file_size, functools.partial(archive.open, entry)


def _safe(name: str) -> str:
    """Return the name of a member without `./` at its start, if it cannot lead elsewhere."""
    path = pathlib.PurePosixPath(name)
    leads_out = path.is_absolute() or ".." in path.parts or not {*"\\:\0"}.isdisjoint(name)
    check(not leads_out, f"{shown(name)} is not a name inside of it")
    return os.fspath(path)


@contextlib.contextmanager
def _refusing(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise
        raise ValueError(
            f"{os.fspath(path)!r} is not a complete archive of a model: {error!s:.200}. Copy it "
            "again, or unpack it with a program that you trust, and pass the folder."
        ) from error
