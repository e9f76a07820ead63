"""Files, folders or installed packages in, a stream of documents out."""

import dataclasses
import glob
import hashlib
import importlib.metadata
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeGuard

from keras_bert_d2l.text.corpus import sections
from keras_bert_d2l.text.corpus.docstrings import Docstrings
from keras_bert_d2l.text.corpus.layouts import LAYOUTS

_SUFFIXES = tuple(
    f"{text}{packed}" for text in (".txt", ".text", ".tokens") for packed in ("", ".gz", ".xz")
)
_TOKEN_STORE = ("manifest.json", "tokens.bin")  # files of a folder that `build_store` wrote
_RULES = "2"  # a change of the rules that make documents of text changes every fingerprint

AnyPath = str | os.PathLike[str]


class _Section(Protocol):
    @property
    def num_bytes(self) -> int: ...

    def documents(self) -> Iterator[list[str]]: ...


class _Part(Protocol):
    @property
    def description(self) -> str: ...

    def identity(self) -> tuple[str, ...]: ...

    def sections(self) -> Iterator[_Section]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Some consecutive documents of a corpus, to be read on their own, in another process too."""

    sections: tuple[_Section, ...]

    def __iter__(self) -> Iterator[list[str]]:
        return itertools.chain.from_iterable(section.documents() for section in self.sections)

    def absolute(self) -> "Piece":
        """The same piece, to be read by a process that stands in another folder."""
        return Piece(
            tuple(
                dataclasses.replace(section, path=section.path.absolute())
                if isinstance(section, sections.Section)
                else section
                for section in self.sections
            )
        )


class Corpus:
    """Text as a stream of documents, each a list of sentences.

    `for document in corpus` reads from the beginning, as often as it is asked to. One document is
    in memory at a time; it has 1 to 1000 sentences, and a longer one comes as several.

    `Corpus.open` makes one.

    Attributes:
        source: What `open` was given: a string or a list of strings.
        layout: The layout that `open` was given.
    """

    def __init__(self, parts: Sequence[_Part], source: str | list[str], layout: str) -> None:
        self._parts = tuple(parts)
        self.source = source
        self.layout = layout

    @classmethod
    def open(cls, source: AnyPath | Sequence[AnyPath], *, layout: str = "auto") -> "Corpus":
        """Opens a corpus of text files, or of the docstrings of installed packages.

        Args:
            source: A file; a folder, of which all `.txt`, `.text` and `.tokens` files are read,
                in its subfolders too; a pattern such as `"books/*.txt"` (`**`: any subfolders); a
                list of these; or `"docstrings"`: the English prose in the docstrings of the
                installed tensorflow, keras and numpy, over half a million words. A file may be
                packed (`.gz`, `.xz`). Files must be UTF-8; they come in the order of the list
                and of their names, none twice.
            layout: How each file is divided into sentences and documents.
                `"lines"`: a line is a sentence, an empty line ends a document (the input of
                google-research/bert's create_pretraining_data.py).
                `"prose"`: running text; empty lines end paragraphs, which may be wrapped. A file
                is a document, but a long one is cut at the end of a paragraph after each 100
                sentences.
                `"wikitext"`: the files of WikiText; a document is an article, a line is a
                paragraph, a sentence ends at " . "; headings are left out, ` @-@ ` and the like
                become plain characters again.
                `"auto"`: one of these, found out from the beginning of each file.

        Returns: a `Corpus`. The files are read when it is iterated over.

        Raises:
            FileNotFoundError: There is no such file or folder.
            ValueError: A pattern or folder has no text file, all files are empty, a folder is or
                holds a token store, or an argument is of the wrong kind. When the corpus is read: a
                file is not UTF-8 or damaged, or there is no text in the whole corpus.
        """
        if layout not in LAYOUTS:
            raise ValueError(f"`layout` must be one of {LAYOUTS}. Received: layout={layout!r}.")
        names = _names(source)
        parts: dict[object, _Part] = {}
        for name in names:
            if name == "docstrings":
                parts[name] = Docstrings()
                continue
            for path in _files(name):
                parts.setdefault(path.resolve(), _TextFile(path, layout))
        return cls(list(parts.values()), names if _is_list(source) else names[0], layout)

    def __iter__(self) -> Iterator[list[str]]:
        is_empty = True
        for piece in self.pieces():
            for document in piece:
                is_empty = False
                yield document
        if is_empty:
            raise ValueError(
                "A corpus must hold at least one sentence. Received: no text in "
                f"{self.description}."
            )

    def pieces(self) -> Iterator[Piece]:
        """Divides the corpus into pieces of some 8 to 16 MB, for several readers at once.

        Their documents, end to end, are those of the corpus. The division depends on the files
        alone. A packed file is never divided.
        """
        gathered: list[_Section] = []
        num_bytes = 0
        for section in itertools.chain.from_iterable(part.sections() for part in self._parts):
            gathered.append(section)
            num_bytes += section.num_bytes
            if num_bytes >= sections.SECTION_BYTES:
                yield Piece(tuple(gathered))
                gathered, num_bytes = [], 0
        if gathered:
            yield Piece(tuple(gathered))

    @property
    def description(self) -> str:
        """The corpus in one line, for people."""
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
        """Returns 64 hexadecimal digits that change whenever the documents may have changed.

        They stand for the files' names, sizes, times of change and order, the layout, the
        versions of the packages whose docstrings are read, and the rules that make sentences.
        """
        version = importlib.metadata.version("sentencex")
        rules = ("rules", _RULES, version, str(sections.SECTION_BYTES))
        identities = [rules, *(part.identity() for part in self._parts)]
        return hashlib.sha256(repr(identities).encode("utf-8")).hexdigest()

    def __repr__(self) -> str:
        return f"Corpus({self.description})"


@dataclasses.dataclass(frozen=True)
class _TextFile:
    path: pathlib.Path
    layout: str

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size

    @property
    def description(self) -> str:
        return f"{self.path.name} ({_megabytes(self.num_bytes)})"

    def identity(self) -> tuple[str, ...]:
        state = self.path.stat()
        return self.path.name, str(state.st_size), str(state.st_mtime_ns), self.layout

    def sections(self) -> Iterator[sections.Section]:
        return sections.sections(self.path, self.layout)


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 100_000 else f"{num_bytes / 1e3:.1f} kB"


def _names(source: object) -> list[str]:
    names: list[Any] = list(source) if _is_list(source) else [source]
    for name in names:
        if not isinstance(name, str | os.PathLike) or not os.fspath(name):
            raise ValueError(
                "`source` must be a path, a pattern, 'docstrings', or a list of these. Received: "
                f"{name!r:.80} ({type(name).__name__})."
            )
    if not names:
        raise ValueError("`source` must name some text. Received: an empty list.")
    return [os.fspath(name) for name in names]


def _is_list(source: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(source, Iterable) and not isinstance(source, str | bytes | os.PathLike)


def _files(name: str) -> list[pathlib.Path]:
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        return _files_of_folder(path)
    if path.exists():
        return [path]
    if not glob.has_magic(name):
        raise FileNotFoundError(f"There is no file or folder {name!r}.")
    found = sorted(map(pathlib.Path, glob.glob(str(path), recursive=True)))
    if not any(path.is_file() for path in found):
        raise ValueError(f"No file matches the pattern {name!r} (seen from {os.getcwd()!r}).")
    return [path for path in found if path.is_file()]


def _files_of_folder(folder: pathlib.Path) -> list[pathlib.Path]:
    relative = sorted(
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.name.endswith(_SUFFIXES) and path.is_file()
    )
    found = [
        folder / path for path in relative if not any(part.startswith(".") for part in path.parts)
    ]
    for parent in dict.fromkeys([folder, *(path.parent for path in found)]):
        if all((parent / name).is_file() for name in _TOKEN_STORE):
            raise ValueError(
                f"Text is expected. Received: {os.fspath(parent)!r}, a token store, which is text "
                "that is tokenised already: open it with `TokenStore.open`, or name the text."
            )
    if not found:
        raise ValueError(
            f"The folder {os.fspath(folder)!r} has no text file, that is one whose name ends in "
            f"{', '.join(_SUFFIXES)}; name other files one by one or by a pattern."
        )
    return found
