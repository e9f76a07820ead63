"""The tokenised corpus on disk: a folder that `build_store` wrote in, memory-mapped arrays out.

`tokens.bin` holds the ids of all sentences end to end, the two offset files say where sentences and
documents begin, `document_hashes.bin` identifies each document by its text, `vocab.txt` is the
vocabulary, and `manifest.json` says what the rest was made from. The `.bin` files are
little-endian, without headers.

S: sentences, N: documents.
"""

import hashlib
import os
import pathlib
from typing import Self

import numpy as np

from keras_bert_d2l.data.store import manifest
from keras_bert_d2l.data.store.manifest import Manifest, Origin, damaged, to_json
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab

_READ_BYTES = 1 << 20


class TokenStore:
    """A corpus as token ids, on disk: tokenised once, read at random, never held in memory.

    Written by `build_store`; opened by it and by `TokenStore.open`.

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
        num_duplicates: Documents that were left out as copies of others; None if not looked for.
        vocab_size: Size of the vocabulary; every id is below it.
        vocab_fingerprint: `Vocab.fingerprint` of the vocabulary it was tokenised with.
        tokenizer_options: The tokenizer's further arguments, by name.
        corpus_fingerprint: `Corpus.fingerprint()` of the text.
        fingerprint: 64 hexadecimal digits that stand for all that the store holds: the vocabulary,
            the ids, and where sentences and documents begin.
    """

    def __init__(self, directory: pathlib.Path, content: Manifest) -> None:
        self.directory = directory
        self.num_documents = content.num_documents
        self.num_sentences = content.num_sentences
        self.num_tokens = content.num_tokens
        self.num_duplicates = content.num_duplicates if content.deduplicate else None
        self.vocab_size = content.vocab_size
        self.vocab_fingerprint = content.vocab_fingerprint
        self.tokenizer_options = content.tokenizer
        self.corpus_fingerprint = content.corpus_fingerprint
        self._manifest = content
        shards = [content.vocab_fingerprint, *(shard["sha256"] for shard in content.shards)]
        self.fingerprint = hashlib.sha256(to_json(shards).encode()).hexdigest()
        arrays = {
            name: np.memmap(directory / name, dtype, mode="r", shape=(count,))
            for name, (dtype, count) in content.arrays().items()
        }
        self.tokens = arrays[manifest.TOKENS]
        self.sentence_offsets = arrays[manifest.SENTENCES]
        self.document_offsets = arrays[manifest.DOCUMENTS]
        self.document_hashes = arrays[manifest.HASHES].reshape(self.num_documents, -1)[:, 0]

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Self:
        """Opens a store, after checking that its files are there and of the right size.

        What takes as long as reading all of it is left to `verify`.

        Raises:
            FileNotFoundError: There is no finished store in `directory`.
            ValueError: A file is missing or truncated, or the manifest is damaged or of another
                version.
        """
        directory = pathlib.Path(directory)
        if not (directory / manifest.MANIFEST).exists():
            raise FileNotFoundError(
                f"There is no token store in {directory}: it has no {manifest.MANIFEST}. Make one, "
                "or finish one that was stopped, with `build_store(corpus, tokenizer, directory)`."
            )
        content = Manifest.read(directory)
        for name, (dtype, count) in content.arrays().items():
            path = directory / name
            if not path.exists():
                raise damaged(path, "it is missing")
            size = path.stat().st_size
            if size != count * dtype.itemsize:
                raise damaged(path, f"it has {size:,} bytes, not {count * dtype.itemsize:,}")
        if not (directory / manifest.VOCAB).exists():
            raise damaged(directory / manifest.VOCAB, "it is missing")
        return cls(directory, content)

    @staticmethod
    def is_at(path: str | os.PathLike[str]) -> bool:
        """Whether a path is the folder of a finished store."""
        return pathlib.Path(path, manifest.MANIFEST).is_file()

    def tokenizer(self) -> Tokenizer:
        """Returns the tokenizer that the store was made with.

        Raises:
            ImportError: tensorflow-text is not installed or does not match TensorFlow.
            ValueError: `vocab.txt` has changed.
        """
        return Tokenizer(self._vocab(), **self.tokenizer_options)

    def _vocab(self) -> Vocab:
        path = self.directory / manifest.VOCAB
        try:
            vocab = Vocab.from_file(path)
        except ValueError as error:
            raise damaged(path, str(error)) from error
        if vocab.fingerprint != self.vocab_fingerprint:
            raise damaged(path, "it is not the vocabulary that the store was made with")
        return vocab

    def verify(self) -> None:
        """Reads all of the store and compares it with the SHA-256 of each shard.

        Raises:
            ValueError: A file has changed; the shard and its documents are named.
        """
        self._vocab()
        places = dict.fromkeys(manifest.FILES, 0)  # in values
        arrays = self._manifest.arrays()
        for name in (manifest.SENTENCES, manifest.DOCUMENTS):
            path = self.directory / name
            if np.fromfile(path, arrays[name][0], 1) != 0:
                raise damaged(path, "it does not begin with 0")
            places[name] = 1
        first = 0
        for number, shard in enumerate(self._manifest.shards):
            last = first + shard["num_documents"]
            for name, count in _sizes(shard).items():
                path, itemsize = self.directory / name, arrays[name][0].itemsize
                found = _sha256(path, places[name] * itemsize, count * itemsize)
                if found != shard["sha256"][name]:
                    raise damaged(
                        path,
                        f"the SHA-256 of shard {number} (documents {first:,} to {last:,}) is not "
                        "the one noted when it was written",
                    )
                places[name] += count
            first = last

    @property
    def description(self) -> str:
        """The store in one line, for people."""
        return f"token store {self.directory}"

    def sentence(self, index: int) -> np.ndarray:
        """Returns the ids of a sentence."""
        return self.tokens[self.sentence_offsets[index] : self.sentence_offsets[index + 1]]

    def document(self, index: int) -> list[np.ndarray]:
        """Returns the ids of each sentence of a document."""
        first, stop = self.document_offsets[index : index + 2].tolist()
        return [self.sentence(sentence) for sentence in range(first, stop)]

    def locate(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the documents and the sentences that tokens belong to.

        Args:
            places: Indices into `tokens`, int of any shape.

        Returns: indices of documents and of sentences, int64 of that shape.
        """
        sentences = np.searchsorted(self.sentence_offsets, places, side="right") - 1
        return np.searchsorted(self.document_offsets, sentences, side="right") - 1, sentences

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raises `ValueError` unless the store was made with this vocabulary and these options."""
        if self.vocab_fingerprint != tokenizer.vocab.fingerprint:
            raise ValueError(
                f"The token store {self.directory} was made with another vocabulary: "
                f"{self.vocab_size:,} tokens, fingerprint {self.vocab_fingerprint[:12]}; the "
                f"tokenizer's has {len(tokenizer.vocab):,} tokens, fingerprint "
                f"{tokenizer.vocab.fingerprint[:12]}. Use the tokenizer the store was made with, "
                "or build a store in another folder."
            )
        received = dict(tokenizer.options)
        if self.tokenizer_options != received:
            raise ValueError(
                f"The token store {self.directory} was made with {_listed(self.tokenizer_options)};"
                f" the tokenizer has {_listed(received)}. Use the tokenizer the store was made "
                "with, or build a store in another folder."
            )

    def check_origin(self, origin: Origin, tokenizer: Tokenizer, text: str) -> None:
        """Raises `ValueError` unless the store is what would be built."""
        self.check_tokenizer(tokenizer)
        if self.corpus_fingerprint != origin.corpus_fingerprint:
            raise ValueError(
                f"The folder {self.directory} holds the token store of another corpus, or the text "
                f"has changed since ({text}). Delete the folder or name another one."
            )
        if self._manifest.deduplicate != origin.deduplicate:
            raise ValueError(
                f"The token store {self.directory} was made with "
                f"deduplicate={self._manifest.deduplicate}. Received: "
                f"deduplicate={origin.deduplicate}. Delete the folder or name another one."
            )


def _sizes(shard: dict) -> dict[str, int]:
    """How many values of each file are a shard's."""
    return {
        manifest.TOKENS: shard["num_tokens"],
        manifest.SENTENCES: shard["num_sentences"],
        manifest.DOCUMENTS: shard["num_documents"],
        manifest.HASHES: shard["num_documents"] * manifest.HASH_BYTES // 8,
    }


def _sha256(path: pathlib.Path, start: int, num_bytes: int) -> str:
    checksum = hashlib.sha256()
    with open(path, "rb") as file:
        file.seek(start)
        while block := file.read(min(num_bytes, _READ_BYTES)):
            checksum.update(block)
            num_bytes -= len(block)
    return checksum.hexdigest()


def _listed(options: dict) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
