"""Sections of a text file that several processes can read in parallel.

The section boundaries depend only on the bytes of the file.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator
from typing import BinaryIO

from keras_bert_d2l.remote import open_file, size_of
from keras_bert_d2l.text.corpus.layouts import documents, guess_layout, head
from keras_bert_d2l.text.corpus.reading import is_packed, read_lines

SECTION_BYTES = 1 << 23
_WINDOW_BYTES = 1 << 20  # searched for the end of a document

_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
_BEFORE_TITLE = re.compile(rb"\n[ \t\r]*\n(?=[ \t]*= (?!= )[^\n]+ =[ \t\r]*\n[ \t\r]*\n)")


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A part of a text file that consists of complete documents.

    Attributes:
        path: The file.
        layout: How the file is split into sentences and documents; see `Corpus.open`.
        start: Offset of the first byte.
        stop: Offset after the last byte; None reads to the end.
        num_bytes: Size on disk in bytes.
    """

    path: pathlib.PurePath
    layout: str
    start: int
    stop: int | None
    num_bytes: int

    def documents(self) -> Iterator[list[str]]:
        """Return an iterator over the documents, each a list of sentences."""
        return documents(read_lines(self.path, self.start, self.stop), self.layout)


def sections(path: pathlib.PurePath, layout: str) -> Iterator[Section]:
    """Split a text file into sections of about 8 MB. A compressed file is one section.

    A section ends where a document ends: at an empty line or, in WikiText, before a title. If no
    document ends within a megabyte, the section ends after a line, which splits the document.
    """
    size = size_of(path)
    if is_packed(path) or size <= SECTION_BYTES:
        yield Section(path, layout, 0, None, size)
        return
    if layout == "auto":
        layout = guess_layout(head(read_lines(path))[0])
    pattern = _BEFORE_TITLE if layout == "wikitext" else _BLANK_LINE
    start = 0
    with open_file(path) as file:
        while size - start > SECTION_BYTES and (stop := _cut(file, start, pattern)) < size:
            yield Section(path, layout, start, stop, stop - start)
            start = stop
    yield Section(path, layout, start, size, size - start)


def _cut(file: BinaryIO, start: int, pattern: re.Pattern[bytes]) -> int:
    """Return the end offset of the section that starts at `start`."""
    at = file.seek(start + SECTION_BYTES)
    while window := file.read(_WINDOW_BYTES):
        end = pattern.search(window)
        if end:
            return at + end.end()
        if len(window) < _WINDOW_BYTES:  # the file ends here
            break
        if b"\n" in window:
            return at + window.index(b"\n") + 1
        at += len(window)
    return file.seek(0, os.SEEK_END)
