"""`manifest.json`, the description of a token store: schema, validation and serialization.

The same folder contains `vocab.txt` and four little-endian arrays without headers.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Self, TypedDict, get_origin, is_typeddict

import numpy as np

from keras_bert_d2l.text.tokenizer.tokenizer import TokenizerOptions

VERSION = 3
MANIFEST = "manifest.json"
TOKENS = "tokens.bin"
SENTENCES = "sentence_offsets.bin"
DOCUMENTS = "document_offsets.bin"
HASHES = "document_hashes.bin"
VOCAB = "vocab.txt"
FILES = (TOKENS, SENTENCES, DOCUMENTS, HASHES)

HASH_BYTES = 16  # per document; with 8 bytes, two of a billion documents might have the same hash


class Shard(TypedDict):
    """Sizes of one part of the store, and the SHA-256 of this part of each file."""

    num_documents: int
    num_sentences: int
    num_tokens: int
    sha256: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Origin:
    """Everything that the bytes of a store depend on, except the version of this package."""

    version: int
    corpus_fingerprint: str
    vocab_fingerprint: str
    vocab_size: int
    tokenizer: TokenizerOptions
    deduplicate: bool

    def name(self) -> str:
        """Return a folder name of 24 hexadecimal digits."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()[:24]


@dataclasses.dataclass(frozen=True)
class Manifest(Origin):
    """The contents of `manifest.json`, which has exactly these keys."""

    num_documents: int
    num_sentences: int
    num_tokens: int
    num_duplicates: int  # number of skipped documents
    shards: list[Shard]

    @classmethod
    def read(cls, directory: pathlib.Path) -> Self:
        """Read the manifest of a store.

        Raises:
            ValueError: The manifest is damaged or has a different version.
        """
        path = directory / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise damaged(path, f"it is not JSON ({error})") from error
        version = content.get("version") if isinstance(content, dict) else None
        if type(version) is int and version != VERSION:
            raise ValueError(
                f"The token store {directory} has version {version}, but this package reads and "
                f"writes version {VERSION}. Delete the folder to have it rebuilt from the text."
            )
        _check_types(path, content, {field.name: field.type for field in dataclasses.fields(cls)})
        for shard in content["shards"]:
            _check_types(path, shard, Shard.__annotations__)
            if shard["sha256"].keys() != set(FILES):
                raise damaged(path, f"a shard's sha256 is {shard['sha256']}")
        manifest = cls(**content)
        for name in ("num_documents", "num_sentences", "num_tokens"):
            if getattr(manifest, name) != sum(shard[name] for shard in manifest.shards):
                raise damaged(path, f"its {name} is not the sum over the shards")
        return manifest

    def arrays(self) -> dict[str, tuple[np.dtype, int]]:
        """Return the dtype and the number of values of each file."""
        return {
            TOKENS: (token_dtype(self.vocab_size), self.num_tokens),
            SENTENCES: (np.dtype("<i8"), self.num_sentences + 1),
            DOCUMENTS: (np.dtype("<i8"), self.num_documents + 1),
            HASHES: (np.dtype("<u8"), self.num_documents * HASH_BYTES // 8),
        }


def _check_types(path: pathlib.Path, content: object, types: Mapping[str, object]) -> None:
    if not isinstance(content, dict) or content.keys() != types.keys():
        raise damaged(path, f"it must contain exactly the keys {', '.join(types)}")
    for key, kind in types.items():
        if type(content[key]) is not (dict if is_typeddict(kind) else get_origin(kind) or kind):
            raise damaged(path, f"its {key} is {content[key]!r}")


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
