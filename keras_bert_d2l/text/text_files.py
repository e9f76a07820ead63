"""Text files: decoded to lines, split into sentences and documents, divided into sections.

Several processes can read the sections of a file in parallel. The section boundaries depend only on
the bytes of the file.
"""

import codecs
import contextlib
import dataclasses
import gzip
import itertools
import lzma
import os
import pathlib
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import sentencex

from keras_bert_d2l.remote import identity_of, open_file, size_of

LAYOUTS = ("auto", "lines", "prose", "wikitext")
SECTION_BYTES = 1 << 23
LONG_ENOUGH = 100  # number of sentences after which a document of prose may end

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_BLOCK_BYTES = 1 << 16
_MAX_LINE = 1 << 16  # characters; longer lines are split to bound memory
_MAX_PARAGRAPH = 1 << 14  # characters; longer paragraphs are split
_MAX_SENTENCES, _MAX_CHARACTERS = 1000, 1 << 18  # per document, to bound memory
_HEAD_LINES, _HEAD_CHARACTERS = 1000, 1 << 17  # the part of a file that "auto" examines
_WINDOW_BYTES = 1 << 20  # searched for the end of a section

_ENDS_A_SENTENCE = re.compile(r"[.!?…:;][\"'”’)\]]*$")
_WIKITEXT_HEADING = re.compile(r"= .*=$")
_WIKITEXT_TITLE = re.compile(r"= (?!= ).+ =$")
_WIKITEXT_ESCAPE = re.compile(r" ?@([-,.])@ ?")
_BLANK_LINE = re.compile(rb"\n[ \t\r]*\n")
_BEFORE_TITLE = re.compile(rb"\n[ \t\r]*\n(?=[ \t]*= (?!= )[^\n]+ =[ \t\r]*\n[ \t\r]*\n)")


def is_packed(path: pathlib.PurePath) -> bool:
    """Return whether a file is compressed and can therefore only be read from its start."""
    return path.suffix.lower() in _OPENERS


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
    r"""Yield the text of a UTF-8 file in blocks, decompressing `.gz` and `.xz`.

    If the lines of the first block end in `\r` alone, apart from the last, `\r` becomes `\n`.

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
    has_only_cr = False
    for block in _blocks(path, start, stop):
        if b"\0" in block:
            raise ValueError(
                f"{os.fspath(path)!r} must be a text file. Received: byte "
                f"{offset + block.index(0)} is a zero byte, which occurs in archives, other binary "
                "files and UTF-16. Unpack the file, or convert it with `iconv -f UTF-16 -t UTF-8`; "
                "`tr -d '\\000'` removes zero bytes from a text."
            )
        undecoded = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{os.fspath(path)!r} must be UTF-8. Received: byte "
                f"{offset - undecoded + error.start} is 0x{error.object[error.start]:02x} "
                f"({error.reason}). Convert the file, for example with `iconv -f LATIN1 -t UTF-8`. "
                "If the text before it is UTF-8, drop the invalid bytes with `iconv -c -f UTF-8 -t "
                "UTF-8`."
            ) from error
        if offset == 0:
            text = text.removeprefix("\ufeff")
        if offset == start:
            lines = text.rstrip("\r\n")
            has_only_cr = "\r" in lines and "\n" not in lines
        if has_only_cr:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        offset += len(block)
        yield text


def _blocks(path: pathlib.PurePath, start: int, stop: int | None) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file, then an empty block."""
    try:
        unpack = _OPENERS.get(path.suffix.lower(), contextlib.nullcontext)
        with open_file(path) as packed, unpack(packed) as file:
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


def split_sentences(paragraph: str) -> list[str]:
    """Split English prose into sentences.

    Abbreviations, initials, decimal numbers and dotted names such as `tf.Tensor` do not end a
    sentence. Runs of white space, including line ends, become one space. Pieces without a letter
    or digit, such as a row of asterisks, are dropped.
    """
    # Normalize spaces first: the splitter panics at an initial followed by a no-break space.
    text = " ".join(paragraph.split())
    sentences: list[str] = []
    for piece in sentencex.segment("en", text):
        if sentences and sentences[-1][-1] in ".!?":  # no space follows: the dot is part of a name
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return [s.strip() for s in sentences if any(map(str.isalnum, s))]


def gather_documents(
    paragraphs: Iterable[Sequence[str] | None], long_enough: int | None = None
) -> Iterator[list[str]]:
    """Yield documents of 1 to 1000 sentences and at most about 262,144 characters.

    Args:
        paragraphs: The sentences of each paragraph, and None where a document ends.
        long_enough: A document that has this many sentences ends with the current paragraph.
            None: a document ends only where `paragraphs` has None.
    """
    document: list[str] = []
    num_characters = 0
    for paragraph in itertools.chain(paragraphs, [None]):
        for sentence in paragraph or ():
            document.append(sentence)
            num_characters += len(sentence)
            if len(document) == _MAX_SENTENCES or num_characters > _MAX_CHARACTERS:
                yield document
                document, num_characters = [], 0
        is_end = paragraph is None or (long_enough is not None and len(document) >= long_enough)
        if document and is_end:
            yield document
            document, num_characters = [], 0


def documents(lines: Iterable[str], layout: str) -> Iterator[list[str]]:
    """Return an iterator over the documents of a file, each a list of at least one sentence.

    Args:
        lines: The lines of the file, without line ends.
        layout: One of `LAYOUTS`; see `Corpus.open`.
    """
    if layout == "auto":
        first, lines = head(lines)
        layout = guess_layout(first)
    if layout == "lines":
        stripped = map(str.strip, lines)
        return gather_documents([sentence] if sentence else None for sentence in stripped)
    if layout == "wikitext":
        return gather_documents(_wikitext(lines))
    return gather_documents(_prose(lines), LONG_ENOUGH)


def guess_layout(lines: Sequence[str]) -> str:
    """Return the layout that the first lines of a file most resemble."""
    if any(is_title for is_title, _ in _marked_titles(lines)):
        return "wikitext"
    lines = [line.strip() for line in lines]
    blocks = [list(b) for filled, b in itertools.groupby(lines, key=bool) if filled]
    filled = list(itertools.chain.from_iterable(blocks))
    if not filled:
        return "prose"
    num_ended = sum(bool(_ENDS_A_SENTENCE.search(line)) for line in filled)
    if num_ended < len(filled) / 2:  # sentences run over several lines, or have no full stops
        return "prose" if _is_wrapped(blocks) else "lines"
    num_with_several = sum(len(split_sentences(line)) > 1 for line in filled)
    if num_with_several > len(filled) / 4:  # one paragraph per line
        return "prose"
    return "lines" if len(filled) > 1.5 * len(blocks) else "prose"


def head(lines: Iterable[str]) -> tuple[list[str], Iterator[str]]:
    """Return the first lines, which `guess_layout` needs, and an iterator over all lines."""
    lines = iter(lines)
    first: list[str] = []
    size = 0
    for line in itertools.islice(lines, _HEAD_LINES):
        first.append(line)
        size += len(line)
        if size > _HEAD_CHARACTERS:
            break
    return first, itertools.chain(first, lines)


def _is_wrapped(blocks: Sequence[Sequence[str]]) -> bool:
    """Return whether most lines end where the next line's first word would not have fit."""
    pairs = [pair for block in blocks for pair in itertools.pairwise(block)]
    lengths = sorted(len(line) for block in blocks for line in block)
    width = lengths[len(lengths) * 9 // 10]  # the 90th percentile ignores stray long lines
    full = sum(len(line) + 1 + len(following.split()[0]) > 0.9 * width for line, following in pairs)
    return not pairs or full > 0.6 * len(pairs)


def _prose(lines: Iterable[str]) -> Iterator[list[str]]:
    paragraph = ""
    for line in itertools.chain(lines, [""]):
        line = line.strip()
        if not line:
            yield split_sentences(paragraph)
            paragraph = ""
            continue
        paragraph = f"{paragraph} {line}" if paragraph else line
        if len(paragraph) > _MAX_PARAGRAPH:
            paragraph = " ".join(paragraph.split())
        if len(paragraph) > _MAX_PARAGRAPH:
            *whole, paragraph = split_sentences(paragraph) or [""]
            if len(paragraph) > _MAX_PARAGRAPH:  # no sentence ends here; probably a list or a table
                whole, paragraph = [*whole, paragraph], ""
            yield from ([sentence] for sentence in whole)  # a document may end after any of them


def _wikitext(lines: Iterable[str]) -> Iterator[list[str] | None]:
    for is_title, line in _marked_titles(lines):
        if is_title:
            yield None
        elif line and not _WIKITEXT_HEADING.match(line):
            line = line.replace("<unk>", "[UNK]")
            *whole, last = _WIKITEXT_ESCAPE.sub(r"\1", line).split(" . ")
            yield [f"{sentence} ." for sentence in whole] + [last]


def _marked_titles(lines: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """Yield `(is_title, line)` for each line. Empty lines surround the title of an article."""
    lines = itertools.chain([""], map(str.strip, lines), [""])
    before, line = next(lines), next(lines)
    for after in lines:
        yield not before and not after and bool(_WIKITEXT_TITLE.match(line)), line
        before, line = line, after


@dataclasses.dataclass(frozen=True, slots=True)
class TextFile:
    """A text file, or a section of it that consists of complete documents.

    Attributes:
        path: The file.
        layout: How the file is split into sentences and documents; see `Corpus.open`.
        start: Offset of the first byte.
        stop: Offset after the last byte; None reads to the end.
    """

    path: pathlib.PurePath
    layout: str
    start: int = 0
    stop: int | None = None

    @property
    def num_bytes(self) -> int:
        """Size on disk in bytes."""
        return (size_of(self.path) if self.stop is None else self.stop) - self.start

    @property
    def description(self) -> str:
        """The name and the size of the file."""
        return f"{self.path.name} ({self.num_bytes / 1e6:,.1f} MB)"

    def identity(self) -> tuple[str, ...]:
        """Return strings that change whenever the documents may have changed."""
        return identity_of(self.path), self.layout

    def documents(self) -> Iterator[list[str]]:
        """Return an iterator over the documents, each a list of sentences."""
        return documents(read_lines(self.path, self.start, self.stop), self.layout)

    def sections(self) -> Iterator["TextFile"]:
        """Split the file into sections of about 8 MB. A compressed file is one section.

        A section ends where a document ends: at an empty line or, in WikiText, before a title. If
        no document ends within a megabyte, the section ends after a line, which splits the
        document.
        """
        size = size_of(self.path)
        if is_packed(self.path) or size <= SECTION_BYTES:
            yield self
            return
        layout = self.layout
        if layout == "auto":
            layout = guess_layout(head(read_lines(self.path))[0])
        pattern = _BEFORE_TITLE if layout == "wikitext" else _BLANK_LINE
        start = 0
        with open_file(self.path) as file:
            while size - start > SECTION_BYTES and (stop := _cut(file, start, pattern)) < size:
                yield TextFile(self.path, layout, start, stop)
                start = stop
        yield TextFile(self.path, layout, start, size)


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
