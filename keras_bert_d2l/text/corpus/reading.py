"""A text file in, its lines out: decompressed and decoded block by block."""

import codecs
import gzip
import lzma
import os
import pathlib
import sys
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

_BLOCK_BYTES = 1 << 16
_MAX_LINE = 1 << 16  # characters: a longer line comes in pieces, so that memory is bounded
_PACKED = (".gz", ".xz")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_packed(path: pathlib.Path) -> bool:
    """Whether the file can only be read from its beginning."""
    return path.suffix.lower() in _PACKED


def bare_suffix(path: pathlib.Path) -> str:
    """The ending of a file's name before that of a packed file, in small letters: `".csv"`."""
    return (path.with_suffix("") if is_packed(path) else path).suffix.lower()


def read_lines(path: pathlib.Path, start: int = 0, stop: int | None = None) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file, without their ends; `.gz` and `.xz` are unpacked.

    A line of more than 65,536 characters comes in pieces, cut at spaces.

    Args:
        path: The file.
        start: The byte to begin with, the first of a line; 0 for a packed file.
        stop: The byte to stop before; None for a packed file.

    Raises:
        ValueError: The file is not UTF-8, is no text, or is damaged.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = start
    line = ""
    is_ascii = True
    for block in _blocks(path, start, stop):
        undecoded = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            if b"\0" in block and not (offset == 0 and block.startswith(_UTF16)):
                raise ValueError(_zero_byte(path, offset + block.index(b"\0"))) from error
            is_ascii = is_ascii and error.object[: error.start].isascii()
            raise ValueError(_not_utf8(path, error, offset - undecoded, is_ascii)) from error
        if b"\0" in block:
            raise ValueError(_zero_byte(path, offset + block.index(b"\0")))
        if offset == 0:
            text = text.removeprefix("\ufeff")
        is_ascii = is_ascii and text.isascii()
        offset += len(block)
        *lines, line = (line + text).split("\n")
        yield from lines
        if len(line) > _MAX_LINE:
            cut = line.rfind(" ") + 1 or len(line)
            yield line[:cut]
            line = line[cut:]
    if line:
        yield line


def _blocks(path: pathlib.Path, start: int, stop: int | None) -> Iterator[bytes]:
    """Yields the unpacked bytes of a file and at last an empty block."""
    try:
        with _open(path) as file:
            file.seek(start)
            left = sys.maxsize if stop is None else stop - start
            while block := file.read(min(left, _BLOCK_BYTES)):
                left -= len(block)
                yield block
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is damaged or no {path.suffix} file ({error}); "
            "fetch or pack it again."
        ) from error
    yield b""


def _open(path: pathlib.Path) -> BinaryIO:
    if path.suffix.lower() == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix.lower() == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return open(path, "rb")


def _zero_byte(path: pathlib.Path, offset: int) -> str:
    return (
        f"{os.fspath(path)!r} must be a text file. Received: byte {offset} is a zero byte, as "
        "archives, other binary files and UTF-16 have them; unpack or convert it first. From a "
        "text, `tr -d '\\000'` takes them out."
    )


def _not_utf8(
    path: pathlib.Path, error: UnicodeDecodeError, start_of_block: int, is_ascii: bool
) -> str:
    offset = start_of_block + error.start
    byte = error.object[error.start]
    is_utf16 = offset == 0 and error.object.startswith(_UTF16)
    remedy = f"convert the file, for instance with `iconv -f {'UTF-16' if is_utf16 else 'LATIN1'}"
    remedy += " -t UTF-8`"
    if not is_ascii:  # converting it as a whole would spoil what is right
        remedy = (
            "the text before it is UTF-8, so the file mixes encodings or is damaged: mend it, or "
            "leave such bytes out with `iconv -c -f UTF-8 -t UTF-8`"
        )
    return (
        f"{os.fspath(path)!r} must be UTF-8. Received: byte {offset} is 0x{byte:02x} "
        f"({error.reason}); {remedy}."
    )
