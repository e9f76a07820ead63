"""A text file, decompressed and decoded, with its lines and its checksum."""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Iterable

from keras_bert_d2l.reading import sha256_of
from keras_bert_d2l.text.text_files import bare_suffix, read_text


@dataclasses.dataclass(frozen=True)
class TextFile:
    """The text of a file.

    Attributes:
        path: Path of the file.
        text: The complete text.
        sha256: Checksum of the bytes on disk.
    """

    path: pathlib.Path
    text: str
    sha256: str

    @property
    def suffix(self) -> str:
        """The file extension in lower case, without `.gz` or `.xz`, such as `".csv"`."""
        return bare_suffix(self.path)

    def lines(self) -> list[str]:
        """Return the lines without line breaks."""
        # `splitlines` would also split at a dozen characters that may occur within a text.
        lines = [line.removesuffix("\r") for line in self.text.split("\n")]
        return lines if lines[-1] else lines[:-1]

    def error(self, line: int, message: str) -> ValueError:
        """Return the exception to raise for a line, counted from 1."""
        return ValueError(f"{os.fspath(self.path)!r}, line {line:,}: {message}")


def read_file(path: pathlib.Path) -> TextFile:
    """Read a UTF-8 text file, decompressing `.gz` and `.xz`.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is not UTF-8, is binary, or is damaged.
    """
    return TextFile(path, "".join(read_text(path)), sha256_of(path))


def sha256_of_files(paths: Iterable[pathlib.Path], folder: pathlib.Path) -> str:
    """Return one checksum for the names and the contents of files in a folder."""
    checksum = hashlib.sha256()
    for path in paths:
        checksum.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return checksum.hexdigest()
