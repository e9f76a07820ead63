"""`Corpus`: a stream of documents from files, folders or installed packages."""

import dataclasses
import glob
import hashlib
import importlib.metadata
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard, cast

from keras_bert_d2l.checks import check_choice, check_type, shown
from keras_bert_d2l.files import url
from keras_bert_d2l.progress import stage
from keras_bert_d2l.reading import check_file, visible_files
from keras_bert_d2l.remote import files, identity_of, size_of
from keras_bert_d2l.text import text_files
from keras_bert_d2l.text.docstrings import Docstrings
from keras_bert_d2l.text.text_files import LAYOUTS, Section, documents
from keras_bert_d2l.types import PathLike

_SUFFIXES = tuple(
    f"{text}{packed}" for text in (".txt", ".text", ".tokens") for packed in ("", ".gz", ".xz")
)
# Files that only `build_store` writes. One of them is enough: the others may be lost.
_TOKEN_STORE = ("tokens.bin", "sentence_offsets.bin", "document_offsets.bin")
_DOCUMENTS_IN_SECTION = 1000  # documents in memory
IN_MEMORY = "documents in memory"
_RULES = "2"  # increase when the rules that split text into documents change


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive documents of a corpus, which another process can read independently."""

    sections: tuple["Section | Docstrings | _Documents", ...]

    @property
    def num_bytes(self) -> int:
        """Size in bytes, of files on disk."""
        return sum(section.num_bytes for section in self.sections)

    def __iter__(self) -> Iterator[list[str]]:
        return itertools.chain.from_iterable(section.documents() for section in self.sections)


@dataclasses.dataclass(frozen=True)
class _TextFile:
    path: pathlib.PurePath
    layout: str

    @property
    def num_bytes(self) -> int:
        return size_of(self.path)

    @property
    def description(self) -> str:
        return f"{self.path.name} ({_megabytes(self.num_bytes)})"

    def identity(self) -> tuple[str, ...]:
        return identity_of(self.path), self.layout

    def sections(self) -> Iterator[Section]:
        return text_files.sections(self.path, self.layout)


@dataclasses.dataclass(frozen=True)
class _Documents:
    """Documents in memory. The strings of a document are like the lines of a file."""

    texts: tuple[tuple[str, ...], ...]
    layout: str

    @property
    def num_bytes(self) -> int:
        return sum(len(line) for text in self.texts for line in text)

    @property
    def description(self) -> str:
        return f"{len(self.texts):,} documents in memory"

    def identity(self) -> tuple[str, ...]:
        return hashlib.sha256(
            repr(self.texts).encode(errors="surrogatepass")
        ).hexdigest(), self.layout

    def sections(self) -> Iterator["_Documents"]:
        for first in range(0, len(self.texts), _DOCUMENTS_IN_SECTION):
            yield _Documents(self.texts[first : first + _DOCUMENTS_IN_SECTION], self.layout)

    def documents(self) -> Iterator[list[str]]:
        for text in self.texts:
            lines = "\n".join(text).split("\n")
            if self.layout == "lines":  # an empty line would end the document
                lines = [line for line in lines if line.strip()]
            yield from documents(lines, self.layout)


class Corpus:
    r"""Text as a stream of documents, each a list of sentences.

    Each loop `for document in corpus` reads from the beginning. Only one document is in memory at
    a time. A document has 1 to 1000 sentences; longer ones are split.

    Create a corpus with `Corpus.open`.

    Attributes:
        source: The `source` that `open` received: a string or a list of strings;
            `"documents in memory"` for documents.
        layout: The `layout` that `open` received.

    Example:
        >>> import keras_bert_d2l as kb
        >>> with open("pets.txt", "w") as file:
        ...     print("The cat sat.", "It slept.", "", "A dog ran.", sep="\n", file=file)
        >>> list(kb.Corpus.open("pets.txt", layout="lines"))
        [['The cat sat.', 'It slept.'], ['A dog ran.']]
    """

    def __init__(
        self,
        parts: Sequence[_TextFile | Docstrings | _Documents],
        source: str | list[str],
        layout: str,
    ) -> None:
        self._parts = tuple(parts)
        self.source = source
        self.layout = layout

    @classmethod
    def open(
        cls,
        source: PathLike | Sequence[PathLike] | Iterable[Sequence[str]],
        *,
        layout: str = "auto",
    ) -> "Corpus":
        """Open text files, the docstrings of installed packages, or documents as a corpus.

        Args:
            source: What to read; all files must be UTF-8.
                A file: plain or compressed (`.gz`, `.xz`).
                A folder: all its `.txt`, `.text` and `.tokens` files, including subfolders, in
                alphabetical order.
                A URL: a file, folder or pattern in an object store, such as `"s3://bucket/books"`.
                Requires `keras-bert-d2l[remote]`. Such files are identified by their version tags.
                A pattern: such as `"books/*.txt"`; `**` matches any subfolders.
                `"docstrings"`: English prose from the docstrings of the installed tensorflow,
                keras and numpy, over half a million words.
                A list of these: read in this order, each file once.
                A list of documents, each a list of sentences: text in memory. To have texts split
                into sentences, pass `[[text] for text in texts]` with `layout="prose"`.
            layout: How a file is split into sentences and documents.
                `"lines"`: one sentence per line; an empty line ends a document. This is the input
                format of google-research/bert's create_pretraining_data.py.
                `"prose"`: running text. Empty lines end paragraphs, which may be wrapped. A file
                is one document, but a long file is split at the end of a paragraph about every
                100 sentences.
                `"wikitext"`: the files of WikiText. A document is an article, a line is a
                paragraph, and a sentence ends at " . ". Headings are skipped, and ` @-@ ` and
                similar escapes become plain characters.
                `"auto"`: one of these, detected from the beginning of each file; `"lines"` for
                documents in memory.

        Returns:
            A `Corpus`. The files are read when you iterate over it.

        Raises:
            FileNotFoundError: If a file or folder does not exist.
            ValueError: If a pattern or folder has no text file, if a folder is or contains a
                token store, or if an argument is invalid. Raised while reading if a file is
                damaged or is not UTF-8, or if the corpus contains no text.
        """
        check_choice("layout", layout, LAYOUTS)
        is_one = isinstance(source, str | bytes | os.PathLike) or not isinstance(source, Iterable)
        items: list[object] = [source] if is_one else list(source)  # type: ignore[arg-type]
        if are_documents(items):
            in_lines = "lines" if layout == "auto" else layout
            return cls([_Documents(_texts(items), in_lines)], IN_MEMORY, layout)
        names = _names(items)
        parts: dict[object, _TextFile | Docstrings] = {}
        for name in names:
            if name == "docstrings":
                parts[name] = Docstrings()
                continue
            for path, identity in _files(name):
                parts.setdefault(identity, _TextFile(path, layout))
        return cls(list(parts.values()), names[0] if is_one else names, layout)

    def __iter__(self) -> Iterator[list[str]]:
        is_empty, num_bytes = True, sum(part.num_bytes for part in self._parts)
        with stage("Reading the text", num_bytes) as work:
            for piece in self.pieces():
                for document in piece:
                    is_empty = False
                    yield document
                work.advance(piece.num_bytes)
        if is_empty:
            raise ValueError(
                "A corpus must have at least one sentence. Received: no text in "
                f"{self.description}."
            )

    def pieces(self) -> Iterator[Piece]:
        """Split the corpus into pieces of 8 to 16 MB, which several processes can read in parallel.

        Together, the pieces contain the documents of the corpus in the same order. Their boundaries
        depend only on the files. A compressed file is never split.
        """
        gathered: list[Section | Docstrings | _Documents] = []
        num_bytes = 0
        for part in self._parts:
            for section in part.sections():
                gathered.append(section)
                num_bytes += section.num_bytes
                if num_bytes >= text_files.SECTION_BYTES:
                    yield Piece(tuple(gathered))
                    gathered, num_bytes = [], 0
        if gathered:
            yield Piece(tuple(gathered))

    @property
    def files(self) -> list[pathlib.PurePath]:
        """The text files, in the order in which they are read."""
        return [part.path for part in self._parts if isinstance(part, _TextFile)]

    @property
    def description(self) -> str:
        """A one-line, human-readable description of the corpus."""
        files = [part for part in self._parts if isinstance(part, _TextFile)]
        shown = [part.description for part in self._parts if not isinstance(part, _TextFile)]
        if len(files) > 2:
            shown.append(
                f"{len(files):,} text files, {_megabytes(sum(file.num_bytes for file in files))}"
                f", {files[0].path.name} to {files[-1].path.name}"
            )
        else:
            shown += [file.description for file in files]
        return "; ".join(shown)

    def fingerprint(self) -> str:
        """Return 64 hexadecimal digits that change whenever the documents may have changed.

        They depend on the contents and the order of the files, which are read completely, on the
        layout, the versions of packages whose docstrings are read, and the rules for splitting
        sentences. The names of the files do not matter.
        """
        version = importlib.metadata.version("sentencex")
        rules = ("rules", _RULES, version, str(text_files.SECTION_BYTES))
        identities = [rules, *(part.identity() for part in self._parts)]
        return hashlib.sha256(repr(identities).encode("utf-8")).hexdigest()

    def __repr__(self) -> str:
        return f"Corpus({self.description})"


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 100_000 else f"{num_bytes / 1e3:.1f} kB"


def are_documents(value: object) -> TypeGuard[Sequence[Sequence[str]]]:
    """Return whether a value is a list of documents, rather than a list of paths."""
    return isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], list | tuple)


def as_corpus(value: object, name: str = "corpus") -> Corpus:
    """Return a corpus unchanged, and documents in memory as a corpus.

    Raises:
        ValueError: It is something else, such as a path.
    """
    if are_documents(value):
        return Corpus.open(value)
    advice = (
        "Open text with `Corpus.open` and a token store with `TokenStore.open`, or pass a list of "
        "documents, each a list of sentences."
    )
    check_type(name, value, Corpus, advice)
    return cast(Corpus, value)


def _texts(documents: Sequence[object]) -> tuple[tuple[str, ...], ...]:
    for number, text in enumerate(documents):
        if not isinstance(text, list | tuple) or not all(isinstance(one, str) for one in text):
            raise ValueError(
                "Every document must be a list of sentences, which are strings. Received: "
                f"{shown(text)} as document {number}."
            )
    return tuple(map(tuple, documents))  # type: ignore[arg-type]


def _names(source: Sequence[object]) -> list[str]:
    names: list[str] = []
    for name in source:
        if not isinstance(name, str | os.PathLike) or not os.fspath(name):
            raise ValueError(
                "`source` must be a path, a pattern, 'docstrings', a list of these, or a list of "
                f"documents. Received: {shown(name)} ({type(name).__name__})."
            )
        names.append(os.fspath(name))
    if not names:
        raise ValueError("`source` must name at least one text source. Received: an empty list.")
    return names


def _files(name: str) -> list[tuple[pathlib.PurePath, pathlib.PurePath]]:
    """Return the absolute paths of text files, and the paths without symbolic links."""
    if url(name) is not None:
        return [(path, path) for path in _remote_files(name)]
    return [(path.absolute(), path.resolve()) for path in _local_files(name)]


def _remote_files(name: str) -> list[pathlib.PurePosixPath]:
    found = files(cast(str, url(name)))
    if not glob.has_magic(name) and [url(path) for path in found] != [url(name)]:  # a folder
        if any(path.name in _TOKEN_STORE for path in found):
            raise _is_token_store(name)
        found = [path for path in found if path.name.endswith(_SUFFIXES)]
    if not found:
        raise FileNotFoundError(f"There is no text file at {name!r}.")
    return found


def _local_files(name: str) -> list[pathlib.Path]:
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        return _files_of_folder(path)
    if path.exists():
        return [check_file(path)]
    if not glob.has_magic(name):
        raise FileNotFoundError(f"There is no file or folder {name!r}.")
    found = map(pathlib.Path, glob.glob(str(path), recursive=True))
    files = sorted(path for path in found if path.is_file())
    if not files:
        raise ValueError(f"No file matches the pattern {name!r} in {os.getcwd()!r}.")
    return files


def _files_of_folder(folder: pathlib.Path) -> list[pathlib.Path]:
    found = [path for path in visible_files(folder) if path.name.endswith(_SUFFIXES)]
    for parent in dict.fromkeys([folder, *(path.parent for path in found)]):
        if any((parent / name).exists() for name in _TOKEN_STORE):
            raise _is_token_store(os.fspath(parent))
    if not found:
        raise ValueError(
            f"The folder {os.fspath(folder)!r} has no text file, that is, no file name ending in "
            f"{', '.join(_SUFFIXES)}. Pass files with other names one by one or as a pattern."
        )
    return found


def _is_token_store(name: str) -> ValueError:
    return ValueError(
        f"A corpus consists of text files. Received: {name!r}, a token store, whose text is "
        "already tokenized. Pass the text itself. In Python, `TokenStore.open` opens a store."
    )
