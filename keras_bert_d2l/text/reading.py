"""A text file in, its lines out: decompressed and decoded block by block."""

import codecs
import gzip
import lzma
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

_BLOCK_BYTES = 1 << 16
_MAX_LINE = 1 << 16  # characters: a longer line comes in pieces, so that memory is bounded


def read_lines(path: pathlib.Path) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file, without their ends; `.gz` and `.xz` are unpacked.

    A line of more than 65,536 characters comes in pieces, cut at spaces.

    Raises:
        ValueError: The file is not UTF-8, is no text, or is damaged.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    line = ""
    for block in _blocks(path):
        undecoded = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise ValueError(_not_utf8(path, error, offset - undecoded)) from error
        if offset == 0:
            text = text.removeprefix("\ufeff")
            if "\0" in text:
                raise ValueError(
                    f"{os.fspath(path)!r} must be a text file. Received: one with a zero byte, "
                    "as archives and other binary files have them; unpack or convert it first."
                )
        offset += len(block)
        *lines, line = (line + text).split("\n")
        yield from lines
        if len(line) > _MAX_LINE:
            cut = line.rfind(" ") + 1 or len(line)
            yield line[:cut]
            line = line[cut:]
    if line:
        yield line


def _blocks(path: pathlib.Path) -> Iterator[bytes]:
    """Yields the unpacked bytes of a file and at last an empty block."""
    try:
        with _open(path) as file:
            while block := file.read(_BLOCK_BYTES):
                yield block
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is damaged or no {path.suffix} file ({error}); "
            "fetch or pack it again."
        ) from error
    yield b""


def _open(path: pathlib.Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return open(path, "rb")


def _not_utf8(path: pathlib.Path, error: UnicodeDecodeError, start_of_block: int) -> str:
    offset = start_of_block + error.start
    byte = error.object[error.start]
    is_utf16 = offset == 0 and error.object[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "UTF-16" if is_utf16 else "LATIN1"
    return (
        f"{os.fspath(path)!r} must be UTF-8. Received: byte {offset} is 0x{byte:02x} "
        f"({error.reason}); convert the file, for instance with `iconv -f {encoding} -t UTF-8`."
    )
