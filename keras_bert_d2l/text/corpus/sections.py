"""A text file in, sections out that can be read each on its own: by several processes at once.

Where a file is cut depends on its bytes alone. No document reaches over a cut.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator
from typing import BinaryIO

from keras_bert_d2l.text.corpus.layouts import documents, guess_layout, head
from keras_bert_d2l.text.corpus.reading import is_packed, read_lines

SECTION_BYTES = 1 << 23
_WINDOW_BYTES = 1 << 20  # in which the end of a document is looked for

_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
_BEFORE_TITLE = re.compile(rb"\n[ \t\r]*\n(?=[ \t]*= (?!= )[^\n]+ =[ \t\r]*\n[ \t\r]*\n)")


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A part of a text file, of whole documents.

    Attributes:
        path: The file.
        layout: How it is divided into sentences and documents.
        start: The first byte.
        stop: The byte after the last; None: up to the end.
        num_bytes: Size on disk.
    """

    path: pathlib.Path
    layout: str
    start: int
    stop: int | None
    num_bytes: int

    def documents(self) -> Iterator[list[str]]:
        """Yields the documents, each a list of sentences."""
        return documents(read_lines(self.path, self.start, self.stop), self.layout)


def sections(path: pathlib.Path, layout: str) -> Iterator[Section]:
    """Divides a text file into sections of about 8 MB; a packed file is one.

    A cut comes at the end of a document: at an empty line, in WikiText before a title. Where there
    is none within a megabyte it comes at the end of a line; a document is cut there.
    """
    size = path.stat().st_size
    if is_packed(path) or size <= SECTION_BYTES:
        yield Section(path, layout, 0, None, size)
        return
    if layout == "auto":
        layout = guess_layout(head(read_lines(path))[0])
    pattern = _BEFORE_TITLE if layout == "wikitext" else _BLANK_LINE
    start = 0
    with open(path, "rb") as file:
        while size - start > SECTION_BYTES and (stop := _cut(file, start, pattern)) < size:
            yield Section(path, layout, start, stop, stop - start)
            start = stop
    yield Section(path, layout, start, size, size - start)


def _cut(file: BinaryIO, start: int, pattern: re.Pattern[bytes]) -> int:
    """The place of the first cut after a full section; the end of the file, if that comes first."""
    at = file.seek(start + SECTION_BYTES)
    while window := file.read(_WINDOW_BYTES):
        end = pattern.search(window)
        if end:
            return at + end.end()
        if len(window) < _WINDOW_BYTES:  # what is left is short
            break
        if b"\n" in window:
            return at + window.index(b"\n") + 1
        at += len(window)
    return file.seek(0, os.SEEK_END)
