"""`TokenStore`: the memory-mapped arrays of a folder that `build_store` wrote.

`tokens.bin` contains the concatenated ids of all sentences, the two offset files contain the start
offsets of sentences and documents, `document_hashes.bin` identifies each document by its text,
`vocab.txt` or `tokenizer.json` is the vocabulary, and `manifest.json` records how the store was
built. The `.bin` files are little-endian, without headers. `SHA256SUMS` has the checksums of all of
them.

S: sentences, N: documents.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Self

import numpy as np

from keras_bert_d2l.checks import check_path, check_type
from keras_bert_d2l.files import CHECKSUMS, changed_files, read_checksums, url
from keras_bert_d2l.reading import errors_naming, read_json_object, sha256_of
from keras_bert_d2l.remote import files, mirrored
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab, vocab_file_in
from keras_bert_d2l.types import PathLike

VERSION = 4
MANIFEST = "manifest.json"
TOKENS = "tokens.bin"
SENTENCES = "sentence_offsets.bin"
DOCUMENTS = "document_offsets.bin"
HASHES = "document_hashes.bin"
FILES = (TOKENS, SENTENCES, DOCUMENTS, HASHES)

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
        version = content.get("version", VERSION)
        if version != VERSION:
            raise ValueError(
                f"The token store {directory} has version {version}, but this package reads and "
                f"writes version {VERSION}. Delete the folder to have it rebuilt from the text."
            )
        if sha256_of(path) != read_checksums(directory).get(MANIFEST):
            raise damaged(path, f"its SHA-256 is not the one in {CHECKSUMS}")
        try:
            return cls(**content)
        except TypeError as error:
            raise damaged(path, f"its keys are not those of version {VERSION} ({error})") from error

    def arrays(self) -> dict[str, tuple[np.dtype, int]]:
        """Return the dtype and the number of values of each file."""
        return {
            TOKENS: (token_dtype(self.vocab_size), self.num_tokens),
            SENTENCES: (np.dtype("<i8"), self.num_sentences + 1),
            DOCUMENTS: (np.dtype("<i8"), self.num_documents + 1),
            HASHES: (np.dtype("<u8"), self.num_documents * HASH_BYTES // 8),
        }


def to_json(content: object) -> str:
    """Serialize to JSON. Equal content always gives equal text."""
    return json.dumps(content, indent=1, default=vars) + "\n"


def token_dtype(vocab_size: int) -> np.dtype:
    """Return uint16 if every id fits, else int32."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def damaged(path: pathlib.Path, reason: str) -> ValueError:
    """Return an error that names the damaged file and explains how to rebuild the store."""
    return ValueError(
        f"The token store is damaged at {path}: {reason}. Delete the folder {path.parent} to have "
        "it rebuilt from the text."
    )


class TokenStore:
    r"""A corpus as token ids on disk: tokenized once, read in any order, never loaded into memory.

    `build_store` writes a store and opens it; `TokenStore.open` opens an existing one.

    Attributes:
        directory: Folder of the store.
        tokens: Concatenated ids of all sentences, without special tokens; memory-mapped, uint16 for
            a vocabulary of up to 65,536 tokens and int32 for a larger one.
        sentence_offsets: int64 `(S + 1,)`: sentence s is
            `tokens[sentence_offsets[s] : sentence_offsets[s + 1]]`, which is never empty.
        document_offsets: int64 `(N + 1,)`: document n has the sentences
            `document_offsets[n]` to `document_offsets[n + 1] - 1`, at least one.
        document_hashes: uint64 `(N,)`: a hash of each document's text, independent of the
            vocabulary and of the document's position in the corpus.
        num_documents: N.
        num_sentences: S.
        num_tokens: Length of `tokens`.
        num_duplicates: Number of documents skipped as duplicates; None without deduplication.
        vocab_size: Vocabulary size; every id is smaller.
        vocab_fingerprint: `Vocab.fingerprint` of the vocabulary.
        tokenizer_options: The tokenizer's keyword arguments.
        corpus_fingerprint: `Corpus.fingerprint()` of the text.
        fingerprint: 64 hexadecimal digits that identify the content of the store: the vocabulary,
            the ids, and the boundaries of sentences and documents.

    Example:
        >>> import keras_bert_d2l as kb
        >>> with open("pets.txt", "w") as file:
        ...     print("The cat sat.", "It slept.", "", "A dog ran.", sep="\n", file=file)
        >>> corpus = kb.Corpus.open("pets.txt", layout="lines")
        >>> tokenizer = kb.Tokenizer(kb.learn_vocab(corpus, size=50))
        >>> store = kb.build_store(corpus, tokenizer, "stores/pets")
        >>> store = kb.TokenStore.open("stores/pets")
        >>> ids = store.sentence(0)
        >>> [tokenizer.vocab.tokens[i] for i in ids][-1]
        '.'
        >>> len(store.document(0))  # sentences
        2
    """

    def __init__(self, directory: pathlib.Path, content: Manifest) -> None:
        self.directory = directory
        self._name = os.fspath(directory)  # in messages
        self.num_documents = content.num_documents
        self.num_sentences = content.num_sentences
        self.num_tokens = content.num_tokens
        self.num_duplicates = content.num_duplicates if content.deduplicate else None
        self.vocab_size = content.vocab_size
        self.vocab_fingerprint = content.vocab_fingerprint
        self.tokenizer_options = content.tokenizer
        self.corpus_fingerprint = content.corpus_fingerprint
        self._manifest = content
        checksums = read_checksums(directory)
        identity = [content.vocab_fingerprint, *(checksums[name] for name in FILES)]
        self.fingerprint = hashlib.sha256(to_json(identity).encode()).hexdigest()
        self._arrays = {
            name: np.memmap(directory / name, dtype, mode="r", shape=(count,))
            for name, (dtype, count) in content.arrays().items()
        }
        self.tokens = self._arrays[TOKENS]
        self.sentence_offsets = self._arrays[SENTENCES]
        self.document_offsets = self._arrays[DOCUMENTS]
        self.document_hashes = self._arrays[HASHES].reshape(self.num_documents, -1)[:, 0]

    def __repr__(self) -> str:
        return (
            f"TokenStore({os.fspath(self.directory)!r}, {self.num_documents:,} documents, "
            f"{self.num_sentences:,} sentences, {self.num_tokens:,} tokens)"
        )

    @classmethod
    def open(cls, directory: PathLike) -> Self:
        """Open a store, after a check of its manifest and of the sizes of the files.

        `verify` also compares the files with their checksums, which reads all of them.

        Raises:
            FileNotFoundError: There is no finished store in `directory`.
            ValueError: A file is missing or damaged, or the store has the wrong version.
        """
        check_path("directory", directory)
        given, directory = directory, mirrored(directory)
        if not (directory / MANIFEST).exists():
            raise FileNotFoundError(
                f"There is no token store in {directory}: it has no {MANIFEST}. Build "
                "one, or resume an interrupted build, with `keras-bert-d2l prepare` or "
                "`build_store`."
            )
        content = Manifest.read(directory)
        vocab_file = vocab_file_in(directory)
        for name in {*FILES, vocab_file.name} - read_checksums(directory).keys():
            raise damaged(directory / CHECKSUMS, f"it does not list {name}")
        sizes = {name: dtype.itemsize * count for name, (dtype, count) in content.arrays().items()}
        for name in (*FILES, vocab_file.name):
            path = directory / name
            if not path.exists():
                raise damaged(path, "it is missing")
            size = path.stat().st_size
            if size != sizes.get(name, size):
                raise damaged(path, f"it has {size:,} bytes, not {sizes[name]:,}")
        store = cls(directory, content)
        store._name = os.fspath(given)
        return store

    @staticmethod
    def is_at(path: PathLike) -> bool:
        """Return whether a path is the folder of a finished store."""
        if (address := url(path)) is not None:
            return bool(files(f"{address}/{MANIFEST}"))
        return pathlib.Path(path, MANIFEST).is_file()

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that the store was built with.

        Raises:
            ValueError: The vocabulary has changed.
        """
        path = vocab_file_in(self.directory)
        vocab = Vocab.from_file(path)
        if (len(vocab), vocab.fingerprint) != (self.vocab_size, self.vocab_fingerprint):
            raise damaged(path, "it is not the vocabulary that the store was built with")
        with errors_naming(self.directory / MANIFEST, " is damaged"):
            return Tokenizer(vocab, **self.tokenizer_options)

    def verify(self) -> None:
        """Read the complete store and compare it with its `SHA256SUMS`.

        Raises:
            ValueError: A file has changed; the message names it.
        """
        for path in changed_files(self.directory):
            raise damaged(path, f"its SHA-256 is not the one in {CHECKSUMS}")

    @property
    def description(self) -> str:
        """A one-line description of the store for messages."""
        return f"token store {self._name}"

    def sentence(self, index: int) -> np.ndarray:
        """Return the ids of a sentence."""
        return self.tokens[self.sentence_offsets[index] : self.sentence_offsets[index + 1]]

    def document(self, index: int) -> list[np.ndarray]:
        """Return the ids of each sentence of a document."""
        first, stop = self.document_offsets[index : index + 2].tolist()
        return [self.sentence(sentence) for sentence in range(first, stop)]

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise `ValueError` unless the store was built with this vocabulary and these options."""
        check_type("tokenizer", tokenizer, Tokenizer, "Use `store.tokenizer()`.")
        stored = (self.vocab_size, self.vocab_fingerprint, self.tokenizer_options)
        received = (len(tokenizer.vocab), tokenizer.vocab.fingerprint, tokenizer.options)
        if stored != received:
            (size, vocab, options), (new_size, new_vocab, new_options) = stored, received
            raise ValueError(
                f"`tokenizer` must be the one that the token store {self._name} was built with: "
                f"{size:,} tokens, fingerprint {vocab[:12]}, {options}. Received: {new_size:,} "
                f"tokens, fingerprint {new_vocab[:12]}, {new_options}. Use `store.tokenizer()`, or "
                "build a store in a different folder."
            )

    def check_origin(self, origin: Origin, tokenizer: Tokenizer, text: str) -> None:
        """Raise `ValueError` if the store does not match this corpus, tokenizer and options."""
        self.check_tokenizer(tokenizer)
        built = (self.corpus_fingerprint, self._manifest.deduplicate)
        if built != (origin.corpus_fingerprint, origin.deduplicate):
            raise ValueError(
                f"The folder {self._name} contains the token store of a different corpus or with "
                f"deduplicate={built[1]}, or the text has changed since. Received: {text}, "
                f"deduplicate={origin.deduplicate}. Delete the folder or choose a different one."
            )
