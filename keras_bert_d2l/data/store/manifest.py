"""`manifest.json`, the description of a token store.

The same folder contains `vocab.txt`, four little-endian arrays without headers, and `SHA256SUMS`.
"""

import dataclasses
import hashlib
import json
import pathlib
from typing import Self

import numpy as np

from keras_bert_d2l.checks import check_bool, check_integer, check_type
from keras_bert_d2l.files import CHECKSUMS, read_checksums
from keras_bert_d2l.reading import read_json_object, sha256_of
from keras_bert_d2l.text.normalization import Normalization, TokenizerOptions
from keras_bert_d2l.types import ConfigDict

VERSION = 4
MANIFEST = "manifest.json"
TOKENS = "tokens.bin"
SENTENCES = "sentence_offsets.bin"
DOCUMENTS = "document_offsets.bin"
HASHES = "document_hashes.bin"
VOCAB = "vocab.txt"
FILES = (TOKENS, SENTENCES, DOCUMENTS, HASHES)

# Keys of earlier versions, which could discard documents by these options.
FORMER_FILTERS = ("near_duplicates", "language", "quality")
_FORMER_KEYS = {*FORMER_FILTERS, "discarded"}

HASH_BYTES = 16  # per document; with 8 bytes, two of a billion documents might have the same hash


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Everything that the bytes of a store depend on, except the version of this package."""

    deduplicate: bool
    version: int
    corpus_fingerprint: str
    vocab_fingerprint: str
    vocab_size: int
    tokenizer: TokenizerOptions

    def name(self) -> str:
        """Return a folder name of 24 hexadecimal digits."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()[:24]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(Origin):
    """The contents of `manifest.json`, which has exactly these keys."""

    num_documents: int
    num_sentences: int
    num_tokens: int
    num_duplicates: int  # number of skipped documents with the text of an earlier one

    @classmethod
    def read(cls, directory: pathlib.Path) -> Self:
        """Read the manifest of a store.

        Raises:
            ValueError: The manifest is damaged or has a different version.
        """
        path = directory / MANIFEST
        try:
            content = read_json_object(path)
        except ValueError as error:
            raise damaged(path, "it is not a JSON object") from error
        content = {key: value for key, value in content.items() if key not in _FORMER_KEYS}
        version = content.get("version", VERSION)
        if version != VERSION:
            raise ValueError(
                f"The token store {directory} has version {version}, but this package reads and "
                f"writes version {VERSION}. Delete the folder to have it rebuilt from the text."
            )
        if sha256_of(path) != read_checksums(directory).get(MANIFEST):
            raise damaged(path, f"its SHA-256 is not the one in {CHECKSUMS}")
        try:
            _check(content, [field.name for field in dataclasses.fields(cls)])
            return cls(**content)
        except ValueError as error:
            raise damaged(path, str(error).rstrip(".")) from error

    def arrays(self) -> dict[str, tuple[np.dtype, int]]:
        """Return the dtype and the number of values of each file."""
        return {
            TOKENS: (token_dtype(self.vocab_size), self.num_tokens),
            SENTENCES: (np.dtype("<i8"), self.num_sentences + 1),
            DOCUMENTS: (np.dtype("<i8"), self.num_documents + 1),
            HASHES: (np.dtype("<u8"), self.num_documents * HASH_BYTES // 8),
        }


def _check(content: ConfigDict, names: list[str]) -> None:
    """Raise a `ValueError` unless a manifest has exactly these keys and its values are valid."""
    if content.keys() != {*names}:
        wrong = min(content.keys() ^ {*names})
        raise ValueError(f"the key {wrong!r:.80} is {'missing' if wrong in names else 'unknown'}")
    for name in ("corpus_fingerprint", "vocab_fingerprint"):
        check_type(name, content[name], str)
    for name in ("vocab_size", "num_documents", "num_sentences", "num_tokens"):
        check_integer(name, content[name], 1)
    check_integer("num_duplicates", content["num_duplicates"], 0)
    check_bool("deduplicate", content["deduplicate"])
    check_type("tokenizer", content["tokenizer"], dict)
    unknown = content["tokenizer"].keys() - TokenizerOptions.__annotations__.keys()
    if unknown:
        raise ValueError(f"`tokenizer` has the unknown key {min(unknown)!r:.80}")
    Normalization((), **content["tokenizer"])  # checks the options


def to_json(content: object) -> str:
    """Serialize to JSON. Equal content always gives equal text."""
    if dataclasses.is_dataclass(content) and not isinstance(content, type):
        content = dataclasses.asdict(content)
    return json.dumps(content, indent=1) + "\n"


def token_dtype(vocab_size: int) -> np.dtype:
    """Return uint16 if every id fits, else int32."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def damaged(path: pathlib.Path, reason: str) -> ValueError:
    """Return an error that names the damaged file and explains how to rebuild the store."""
    return ValueError(
        f"The token store is damaged at {path}: {reason}. Delete the folder {path.parent} to have "
        "it rebuilt from the text."
    )
