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

from keras_bert_d2l.checks import check_choice, check_that, check_type
from keras_bert_d2l.files import url
from keras_bert_d2l.progress import stage
from keras_bert_d2l.reading import check_file, visible_files
from keras_bert_d2l.remote import files
from keras_bert_d2l.text import text_files
from keras_bert_d2l.text.docstrings import Docstrings
from keras_bert_d2l.text.text_files import LAYOUTS, TextFile, documents
from keras_bert_d2l.types import PathLike

_SUFFIXES = tuple(
    f"{text}{packed}" for text in (".txt", ".text", ".tokens") for packed in ("", ".gz", ".xz")
)
# Files that only `build_store` writes. One of them is enough: the others may be lost.
_TOKEN_STORE = ("tokens.bin", "sentence_offsets.bin", "document_offsets.bin")
IN_MEMORY = "documents in memory"
_RULES = "2"  # increase when the rules that split text into documents change


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive documents of a corpus, which another process can read independently."""

    sections: tuple["TextFile | Docstrings | _Documents", ...]

    @property
    def num_bytes(self) -> int:
        """Size in bytes, of files on disk."""
        return sum(section.num_bytes for section in self.sections)

    def __iter__(self) -> Iterator[list[str]]:
        return itertools.chain.from_iterable(section.documents() for section in self.sections)


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
        yield self

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
        parts: Sequence[TextFile | Docstrings | _Documents],
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
            FileNotFoundError: If a file does not exist, or a pattern or folder has no text file.
            ValueError: If a folder is or contains a token store, or an argument is invalid. Raised
                while reading if a file is damaged or is not UTF-8, or if the corpus contains no
                text.
        """
        check_choice("layout", layout, LAYOUTS)
        is_one = isinstance(source, str | bytes | os.PathLike) or not isinstance(source, Iterable)
        items: list[object] = [source] if is_one else list(source)  # type: ignore[arg-type]
        if are_documents(items):
            in_lines = "lines" if layout == "auto" else layout
            return cls([_Documents(_texts(items), in_lines)], IN_MEMORY, layout)
        names = _names(items)
        parts: dict[str, TextFile | Docstrings] = {}
        for name in names:
            if name == "docstrings":
                parts[name] = Docstrings()
                continue
            for path in _files(name):
                parts.setdefault(os.path.realpath(path), TextFile(path, layout))
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
        gathered: list[TextFile | Docstrings | _Documents] = []
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
        return [part.path for part in self._parts if isinstance(part, TextFile)]

    @property
    def description(self) -> str:
        """A one-line, human-readable description of the corpus."""
        shown = [part.description for part in self._parts]
        if len(shown) > 3:
            shown[1:-1] = [f"{len(shown) - 2:,} more"]
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
        is_right = isinstance(text, list | tuple) and all(isinstance(one, str) for one in text)
        expected = "a list of documents, each a list of sentences, which are strings"
        check_that(is_right, "source", expected, text, f"It is document {number}.")
    return tuple(map(tuple, documents))  # type: ignore[arg-type]


def _names(source: Sequence[object]) -> list[str]:
    expected = "a path, a pattern, 'docstrings', a list of these, or a list of documents"
    names: list[str] = []
    for name in source:
        is_name = isinstance(name, str | os.PathLike) and os.fspath(name) != ""
        check_that(is_name, "source", expected, name)
        names.append(os.fspath(cast(PathLike, name)))
    check_that(bool(names), "source", expected, source)
    return names


def _files(name: str) -> list[pathlib.PurePath]:
    """Return the text files of a file, folder, pattern or URL, with absolute paths."""
    address, path = url(name), pathlib.Path(name).expanduser().absolute()
    is_pattern = glob.has_magic(name) and not path.exists()
    found: list[pathlib.PurePath]
    if address is not None:
        found = [*files(address)]
        is_folder = not is_pattern and [url(file) for file in found] != [address]
    elif is_folder := path.is_dir():
        found = [*visible_files(path)]
    elif is_pattern:
        matches = map(pathlib.Path, glob.glob(os.path.expanduser(name), recursive=True))
        found = sorted(file.absolute() for file in matches if file.is_file())
    else:
        found = [check_file(path)]
    if is_folder and (stores := [file for file in found if file.name in _TOKEN_STORE]):
        raise ValueError(
            "A corpus consists of text files. Received: "
            f"{os.fspath(stores[0].parent)!r}, a token store, whose text is already tokenized. "
            "Pass the text itself. In Python, `TokenStore.open` opens a store."
        )
    if is_folder:
        found = [file for file in found if file.name.endswith(_SUFFIXES)]
    if not found:
        raise FileNotFoundError(
            f"There is no text file at {name!r}. In a folder, text files have names that end in "
            f"{', '.join(_SUFFIXES)}. Pass files with other names one by one or as a pattern."
        )
    return found
