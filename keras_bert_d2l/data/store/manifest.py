"""What a token store says about itself: `manifest.json` in, a checked `Manifest` out, and back.

Beside it are `vocab.txt` and little-endian arrays without headers. S: sentences, N: documents.
"""

import dataclasses
import hashlib
import json
import pathlib
from typing import Any, Self

import numpy as np

VERSION = 3
MANIFEST = "manifest.json"
TOKENS = "tokens.bin"
SENTENCES = "sentence_offsets.bin"
DOCUMENTS = "document_offsets.bin"
HASHES = "document_hashes.bin"
VOCAB = "vocab.txt"
FILES = (TOKENS, SENTENCES, DOCUMENTS, HASHES)

HASH_BYTES = 16  # of a document: with 8, of a thousand million two might be taken for equal
_SHARD = {"num_documents": int, "num_sentences": int, "num_tokens": int, "sha256": dict}


@dataclasses.dataclass(frozen=True)
class Origin:
    """All that the bytes of a store depend on, the version of the package aside."""

    version: int
    corpus_fingerprint: str
    vocab_fingerprint: str
    vocab_size: int
    tokenizer: dict[str, Any]  # its options
    deduplicate: bool

    def name(self) -> str:
        """A name for a folder: 24 hexadecimal digits."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()[:24]


@dataclasses.dataclass(frozen=True)
class Manifest(Origin):
    """What `manifest.json` holds: these keys and no others."""

    num_documents: int
    num_sentences: int
    num_tokens: int
    num_duplicates: int  # documents left out
    shards: list[dict[str, Any]]

    @classmethod
    def read(cls, directory: pathlib.Path) -> Self:
        """Reads the manifest of a store.

        Raises:
            ValueError: It is damaged or of another version.
        """
        path = directory / MANIFEST
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise damaged(path, f"it is not JSON ({error})") from error
        version = content.get("version") if isinstance(content, dict) else None
        if type(version) is int and version != VERSION:
            raise ValueError(
                f"The token store {directory} is of version {version}; this package reads and "
                f"writes version {VERSION}. Delete the folder; it will be built again from the "
                "text."
            )
        types = {field.name: field.type for field in dataclasses.fields(cls)}
        _check_types(path, content, types)
        for shard in content["shards"]:
            _check_types(path, shard, _SHARD)
            if shard["sha256"].keys() != set(FILES):
                raise damaged(path, f"a shard's sha256 is {shard['sha256']}")
        manifest = cls(**content)
        for name in ("num_documents", "num_sentences", "num_tokens"):
            if getattr(manifest, name) != sum(shard[name] for shard in manifest.shards):
                raise damaged(path, f"its {name} is not the sum of those of the shards")
        return manifest

    def arrays(self) -> dict[str, tuple[np.dtype, int]]:
        """The dtype and the number of values of each file."""
        return {
            TOKENS: (token_dtype(self.vocab_size), self.num_tokens),
            SENTENCES: (np.dtype("<i8"), self.num_sentences + 1),
            DOCUMENTS: (np.dtype("<i8"), self.num_documents + 1),
            HASHES: (np.dtype("<u8"), self.num_documents * HASH_BYTES // 8),
        }


def _check_types(path: pathlib.Path, content: Any, types: dict[str, Any]) -> None:
    if not isinstance(content, dict) or content.keys() != types.keys():
        raise damaged(path, f"it must hold exactly the keys {', '.join(types)}")
    for key, kind in types.items():
        kind = getattr(kind, "__origin__", kind)
        if type(content[key]) is not kind:
            raise damaged(path, f"its {key} is {content[key]!r}")


def to_json(content: Any) -> str:
    """The text of a JSON file: always the same for the same content."""
    if dataclasses.is_dataclass(content) and not isinstance(content, type):
        content = dataclasses.asdict(content)
    return json.dumps(content, indent=1) + "\n"


def token_dtype(vocab_size: int) -> np.dtype:
    """uint16 where every id fits in it, else int32."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def damaged(path: pathlib.Path, reason: str) -> ValueError:
    """The error that names a damaged file and the remedy."""
    return ValueError(
        f"The token store is damaged at {path}: {reason}. Delete the folder {path.parent}; it will "
        "be built again from the text."
    )
