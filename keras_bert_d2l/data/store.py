"""The tokenised corpus on disk: documents of sentences in, memory-mapped token ids out.

A store is a folder. `tokens.bin` holds the ids of all sentences end to end, the two offset files
say where sentences and documents begin, `document_hashes.bin` identifies each document by its text,
and `manifest.json` says what the rest was made from. Files are little-endian, without headers.

S: sentences, N: documents.
"""

import array
import dataclasses
import hashlib
import json
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from keras_bert_d2l.files import replacing_folder
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer import Tokenizer

_MANIFEST = "manifest.json"
_TOKENS, _SENTENCES, _DOCUMENTS, _HASHES = (
    "tokens.bin",
    "sentence_offsets.bin",
    "document_offsets.bin",
    "document_hashes.bin",
)
_VERSION = 1
_BATCH_CHARACTERS = 1 << 18  # one call of the tokenizer: large enough to be fast, small in memory
_READ_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class _Manifest:
    """What `manifest.json` holds: these keys and no others."""

    version: int
    corpus_fingerprint: str
    vocab_fingerprint: str
    vocab_size: int
    lowercase: bool
    num_documents: int
    num_sentences: int
    num_tokens: int
    checksums: dict  # CRC-32 of each file

    def files(self) -> dict[str, tuple[np.dtype, int]]:
        """The dtype and the number of values of each file."""
        return {
            _TOKENS: (_token_dtype(self.vocab_size), self.num_tokens),
            _SENTENCES: (np.dtype("<i8"), self.num_sentences + 1),
            _DOCUMENTS: (np.dtype("<i8"), self.num_documents + 1),
            _HASHES: (np.dtype("<u8"), self.num_documents),
        }


class TokenStore:
    """A corpus as token ids, on disk: tokenised once, read at random, never held in memory.

    Made by `TokenStore.build` or `TokenStore.open`.

    Attributes:
        directory: Folder of the store.
        tokens: Ids of all sentences end to end, without special tokens; memory-mapped, uint16 for
            a vocabulary of up to 65,536 tokens and int32 beyond.
        sentence_offsets: int64 `(S + 1,)`: sentence s is
            `tokens[sentence_offsets[s] : sentence_offsets[s + 1]]`, and never empty.
        document_offsets: int64 `(N + 1,)`: document n is the sentences
            `document_offsets[n]` to `document_offsets[n + 1] - 1`, at least one.
        document_hashes: uint64 `(N,)`: a hash of each document's text, the same whatever the
            vocabulary and wherever in the corpus the document stands.
        num_documents: N.
        num_sentences: S.
        num_tokens: Length of `tokens`.
        vocab_size: Size of the vocabulary; every id is below it.
        vocab_fingerprint: `Vocab.fingerprint` of the vocabulary it was tokenised with.
        lowercase: Whether the tokenizer lowercased.
        corpus_fingerprint: `Corpus.fingerprint()` of the text.
    """

    def __init__(self, directory: pathlib.Path, manifest: _Manifest):
        self.directory = directory
        self.num_documents = manifest.num_documents
        self.num_sentences = manifest.num_sentences
        self.num_tokens = manifest.num_tokens
        self.vocab_size = manifest.vocab_size
        self.vocab_fingerprint = manifest.vocab_fingerprint
        self.lowercase = manifest.lowercase
        self.corpus_fingerprint = manifest.corpus_fingerprint
        arrays = {
            name: np.memmap(directory / name, dtype, mode="r", shape=(count,))
            for name, (dtype, count) in manifest.files().items()
        }
        self.tokens = arrays[_TOKENS]
        self.sentence_offsets = arrays[_SENTENCES]
        self.document_offsets = arrays[_DOCUMENTS]
        self.document_hashes = arrays[_HASHES]

    @classmethod
    def build(cls, corpus: Corpus, tokenizer: Tokenizer, directory: str | os.PathLike[str]) -> Self:
        """Tokenises a corpus into a folder, or opens the folder where that was done before.

        The corpus is streamed: memory does not grow with it. The folder appears when it is whole.
        Sentences without a token and documents without a sentence are left out.

        Args:
            corpus: The text.
            tokenizer: Makes the ids; its vocabulary and `lowercase` become part of the store.
            directory: Folder to write. One that already holds the store of this corpus (by its
                fingerprint), vocabulary and `lowercase` is opened as it is.

        Returns: the store, opened.

        Raises:
            ValueError: The corpus holds no token, the tokenizer gives an id outside its
                vocabulary, or `directory` holds something else.
            OSError: The text cannot be read or the folder cannot be written.
        """
        directory = pathlib.Path(directory)
        if (directory / _MANIFEST).exists():
            store = cls.open(directory)
            store._check_origin(corpus, tokenizer)
            return store
        if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
            raise ValueError(
                f"A token store needs a folder of its own; {directory} is a file or holds other "
                "files. Name a new or an empty folder."
            )
        try:
            with replacing_folder(directory) as folder:
                _write(corpus, tokenizer, folder)
        except OSError as error:
            raise type(error)(
                f"Could not build the token store {directory}: {error}. Needed are a corpus that "
                "can be read and a folder with write permission and free space; to use another "
                "folder, set `cache_dir`."
            ) from error
        return cls.open(directory)

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Self:
        """Opens a store that `build` has written, after checking that it is whole.

        Raises:
            FileNotFoundError: There is no store in `directory`.
            ValueError: A file is missing, truncated or changed.
        """
        directory = pathlib.Path(directory)
        manifest = _read_manifest(directory)
        for name, (dtype, count) in manifest.files().items():
            path = directory / name
            size = path.stat().st_size if path.exists() else 0
            if size != count * dtype.itemsize:
                raise _damaged(path, f"it has {size:,} bytes, not {count * dtype.itemsize:,}")
            if _checksum(path) != manifest.checksums[name]:
                raise _damaged(path, "its checksum is not the one noted when it was written")
        return cls(directory, manifest)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises `ValueError` unless the store was made with this vocabulary and `lowercase`."""
        if self.vocab_fingerprint != tokenizer.vocab.fingerprint:
            raise ValueError(
                f"The token store {self.directory} was made with another vocabulary: "
                f"{self.vocab_size:,} tokens, fingerprint {self.vocab_fingerprint[:12]}; the "
                f"tokenizer's has {len(tokenizer.vocab):,} tokens, fingerprint "
                f"{tokenizer.vocab.fingerprint[:12]}. Use the tokenizer the store was made with, "
                "or build a store in another folder."
            )
        if self.lowercase != tokenizer.lowercase:
            raise ValueError(
                f"The token store {self.directory} was made with lowercase={self.lowercase}; the "
                f"tokenizer has lowercase={tokenizer.lowercase}. Use the tokenizer the store was "
                "made with, or build a store in another folder."
            )

    def _check_origin(self, corpus: Corpus, tokenizer: Tokenizer) -> None:
        self.check_tokenizer(tokenizer)
        if self.corpus_fingerprint != corpus.fingerprint():
            raise ValueError(
                f"The folder {self.directory} holds the token store of another corpus, or the text "
                f"has changed since ({corpus.description}). Delete the folder or name another one."
            )


def cached_store(
    corpus: Corpus, tokenizer: Tokenizer, cache_dir: str | os.PathLike[str] | None = None
) -> TokenStore:
    """The store of a corpus under `cache_dir`, built at the first call and opened afterwards.

    Args:
        corpus: The text.
        tokenizer: Makes the ids.
        cache_dir: Folder of stores, each in a subfolder named by the fingerprints of the corpus
            and the vocabulary. None: `keras_bert_d2l` in the user's cache folder, which is
            `$XDG_CACHE_HOME` or `~/.cache`. A store may be deleted at any time; it is built anew.
    """
    if cache_dir is None:
        user_cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        cache_dir = pathlib.Path(user_cache, "keras_bert_d2l")
    origin = [_VERSION, corpus.fingerprint(), tokenizer.vocab.fingerprint, tokenizer.lowercase]
    name = hashlib.sha256(json.dumps(origin).encode()).hexdigest()[:24]
    return TokenStore.build(corpus, tokenizer, pathlib.Path(cache_dir, name))


def _token_dtype(vocab_size: int) -> np.dtype:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def _write(corpus: Corpus, tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    """Writes the five files of a store, batch after batch."""
    corpus_fingerprint = corpus.fingerprint()  # before reading: a change meanwhile shows later
    vocab_size = len(tokenizer.vocab)
    num_tokens = num_sentences = num_documents = 0
    hashes = array.array("Q")  # one for each document read so far
    last_owner = -1
    with (
        open(folder / _TOKENS, "wb") as tokens_file,
        open(folder / _SENTENCES, "wb") as sentences_file,
        open(folder / _DOCUMENTS, "wb") as documents_file,
        open(folder / _HASHES, "wb") as hashes_file,
    ):
        np.zeros(1, "<i8").tofile(sentences_file)
        for sentences, owners in _batches(corpus, hashes):
            ids, lengths = _tokenize(tokenizer, sentences)
            owners, lengths = owners[lengths > 0], lengths[lengths > 0]
            if not len(owners):
                continue
            starts = np.flatnonzero(np.diff(owners, prepend=last_owner))  # a document begins
            ids.astype(_token_dtype(vocab_size)).tofile(tokens_file)
            (num_tokens + np.cumsum(lengths)).astype("<i8").tofile(sentences_file)
            (num_sentences + starts).astype("<i8").tofile(documents_file)
            np.array([hashes[owner] for owner in owners[starts]], "<u8").tofile(hashes_file)
            num_tokens += len(ids)
            num_sentences += len(lengths)
            num_documents += len(starts)
            last_owner = owners[-1]
        np.array([num_sentences], "<i8").tofile(documents_file)
    if not num_tokens:
        raise ValueError(f"The corpus holds no text: {corpus.description}.")
    manifest = _Manifest(
        version=_VERSION,
        corpus_fingerprint=corpus_fingerprint,
        vocab_fingerprint=tokenizer.vocab.fingerprint,
        vocab_size=vocab_size,
        lowercase=tokenizer.lowercase,
        num_documents=num_documents,
        num_sentences=num_sentences,
        num_tokens=num_tokens,
        checksums={
            name: _checksum(folder / name) for name in (_TOKENS, _SENTENCES, _DOCUMENTS, _HASHES)
        },
    )
    text = json.dumps(dataclasses.asdict(manifest), indent=2) + "\n"
    (folder / _MANIFEST).write_text(text, encoding="utf-8")


def _batches(corpus: Corpus, hashes: array.array) -> Iterator[tuple[list[str], np.ndarray]]:
    """Sentences across documents, and for each the number of its document.

    Appends the hash of each document to `hashes` before its first sentence comes.
    """
    sentences: list[str] = []
    owners: list[int] = []
    num_characters = 0
    for owner, document in enumerate(corpus):
        digest = hashlib.blake2b("\n".join(document).encode(), digest_size=8).digest()
        hashes.append(int.from_bytes(digest, "little"))
        for sentence in document:
            sentences.append(sentence)
            owners.append(owner)
            num_characters += len(sentence) + 1  # empty ones count too: the batch has to end
            if num_characters >= _BATCH_CHARACTERS:
                yield sentences, np.array(owners)
                sentences, owners, num_characters = [], [], 0
    if sentences:
        yield sentences, np.array(owners)


def _tokenize(tokenizer: Tokenizer, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids of the sentences end to end, and the number of each."""
    ragged = tokenizer.tokenize(sentences)
    ids, lengths = ragged.values.numpy(), ragged.row_lengths().numpy()
    outside = (ids < 0) | (ids >= len(tokenizer.vocab))
    if outside.any():
        at = int(np.argmax(outside))
        sentence = sentences[np.searchsorted(np.cumsum(lengths), at, side="right")]
        raise ValueError(
            f"The tokenizer gives the id {ids[at]}, outside its vocabulary of "
            f"{len(tokenizer.vocab)} tokens, in {sentence[:80]!r}. Use the vocabulary that belongs "
            "to the tokenizer."
        )
    return ids, lengths


def _read_manifest(directory: pathlib.Path) -> _Manifest:
    path = directory / _MANIFEST
    if not path.exists():
        raise FileNotFoundError(
            f"There is no token store in {directory}: it has no {_MANIFEST}. Make one with "
            "`TokenStore.build(corpus, tokenizer, directory)`."
        )
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    types = {field.name: field.type for field in dataclasses.fields(_Manifest)}
    if not isinstance(content, dict) or content.keys() != types.keys():
        raise _damaged(path, f"it must hold exactly the keys {', '.join(types)}")
    for key, kind in types.items():
        if type(content[key]) is not kind:
            raise _damaged(path, f"its {key} is {content[key]!r}")
    if content["version"] != _VERSION:
        raise _damaged(path, f"its version is {content['version']}, not {_VERSION}")
    manifest = _Manifest(**content)
    if manifest.checksums.keys() != manifest.files().keys():
        raise _damaged(path, f"its checksums are {manifest.checksums}")
    return manifest


def _checksum(path: pathlib.Path) -> int:
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(_READ_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _damaged(path: pathlib.Path, reason: str) -> ValueError:
    return ValueError(
        f"The token store is damaged at {path}: {reason}. Delete the folder {path.parent}; it will "
        "be built again from the text."
    )
