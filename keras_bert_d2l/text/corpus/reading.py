"""Read the lines of text files, decompressing and decoding block by block."""

import codecs
import contextlib
import gzip
import lzma
import os
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from keras_bert_d2l.remote import open_file

_BLOCK_BYTES = 1 << 16
_MAX_LINE = 1 << 16  # characters; longer lines are split to bound memory
_PACKED = (".gz", ".xz")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_packed(path: pathlib.PurePath) -> bool:
    """Return whether a file is compressed and can therefore only be read from its start."""
    return path.suffix.lower() in _PACKED


def bare_suffix(path: pathlib.PurePath) -> str:
    """Return the lowercase file suffix before `.gz` or `.xz`: `".csv"` for `A.CSV.gz`."""
    return (path.with_suffix("") if is_packed(path) else path).suffix.lower()


def read_lines(path: pathlib.PurePath, start: int = 0, stop: int | None = None) -> Iterator[str]:
    """Yield the lines of a text file, read as by `read_text`.

    Newline characters are removed. Lines longer than 65,536 characters are split at spaces.
    """
    line = ""
    for text in read_text(path, start, stop):
        *lines, line = (line + text).split("\n")
        yield from lines
        if len(line) > _MAX_LINE:
            cut = line.rfind(" ") + 1 or len(line)
            yield line[:cut]
            line = line[cut:]
    if line:
        yield line


def read_text(path: pathlib.PurePath, start: int = 0, stop: int | None = None) -> Iterator[str]:
    """Yield the text of a UTF-8 file in blocks, decompressing `.gz` and `.xz`.

    Args:
        path: The file.
        start: Offset in bytes of the first character to read; 0 for a compressed file.
        stop: Offset in bytes at which to stop; None (for compressed files) reads to the end.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a regular file, is damaged, is not text, or is not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = start
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
        yield text


def _blocks(path: pathlib.PurePath, start: int, stop: int | None) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, then an empty block."""
    try:
        with _opened(path) as file:
            file.seek(start)
            left = sys.maxsize if stop is None else stop - start
            while block := file.read(min(left, _BLOCK_BYTES)):
                left -= len(block)
                yield block
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is damaged or is not a {path.suffix} file ({error}). "
            "Download or compress it again."
        ) from error
    yield b""


@contextlib.contextmanager
def _opened(path: pathlib.PurePath) -> Iterator[BinaryIO]:
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    unpack = openers.get(path.suffix.lower(), contextlib.nullcontext)
    with open_file(path) as file, unpack(file) as unpacked:
        yield unpacked


def _zero_byte(path: pathlib.PurePath, offset: int) -> str:
    return (
        f"{os.fspath(path)!r} must be a text file. Received: byte {offset} is a zero byte, which "
        "occurs in archives, other binary files and UTF-16. Unpack or convert the file first; "
        "`tr -d '\\000'` removes zero bytes from a text."
    )


def _not_utf8(
    path: pathlib.PurePath, error: UnicodeDecodeError, start_of_block: int, is_ascii: bool
) -> str:
    offset = start_of_block + error.start
    byte = error.object[error.start]
    is_utf16 = offset == 0 and error.object.startswith(_UTF16)
    encoding = "UTF-16" if is_utf16 else "LATIN1"
    remedy = f"Convert the file, for example with `iconv -f {encoding} -t UTF-8`"
    if not is_ascii:  # converting the whole file would damage the part that is UTF-8
        remedy = (
            "The text before it is UTF-8, so the file mixes encodings or is damaged. Repair it, or "
            "drop the invalid bytes with `iconv -c -f UTF-8 -t UTF-8`"
        )
    return (
        f"{os.fspath(path)!r} must be UTF-8. Received: byte {offset} is 0x{byte:02x} "
        f"({error.reason}). {remedy}."
    )
