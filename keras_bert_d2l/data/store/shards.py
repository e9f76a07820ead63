"""Tokenize a piece of a corpus into a shard: a folder with token ids, lengths and hashes.

The files are little-endian arrays without headers. A shard contains lengths, and the token
store contains offsets.
"""

import contextlib
import functools
import hashlib
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from keras_bert_d2l.checks import shown
from keras_bert_d2l.data.store.manifest import HASH_BYTES, token_dtype
from keras_bert_d2l.files import replacing_folder, verify_checksums
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.word_cache import WordCache

TOKENS, SENTENCES, DOCUMENTS, HASHES = FILES = (
    "tokens.bin",
    "sentence_lengths.bin",  # in tokens
    "document_lengths.bin",  # in sentences
    "document_hashes.bin",
)
LENGTH = np.dtype("<i4")
_BATCH_CHARACTERS = 1 << 20  # per call of the tokenizer, which takes milliseconds for any text

Document = Sequence[str]


def make_shard(piece: Iterable[Document], tokenizer: Tokenizer, folder: pathlib.Path) -> int:
    """Tokenize a piece into a folder, unless the folder already contains the complete shard.

    Sentences without tokens and documents without sentences are skipped.

    Args:
        piece: The documents.
        tokenizer: The tokenizer.
        folder: Folder to write.

    Returns:
        The number of tokens.
    """
    num_tokens = tokens_if_complete(folder)
    if num_tokens is None:
        with replacing_folder(folder) as temporary:
            num_tokens = _write(piece, tokenizer, temporary)
    return num_tokens


@contextlib.contextmanager
def open_files(folder: pathlib.Path, names: Sequence[str], mode: str) -> Iterator[list[IO[bytes]]]:
    """Open several files of a folder."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(open(folder / name, mode)) for name in names]


def put(file: IO[bytes], array: np.ndarray) -> None:
    """Append an array to a file. (`ndarray.tofile` hides the reason if the disk is full.)"""
    file.write(np.ascontiguousarray(array).view(np.uint8).data)


def tokens_if_complete(folder: pathlib.Path) -> int | None:
    """Return the number of tokens of a shard, or None if it is missing or damaged."""
    try:
        verify_checksums(folder)
        return int(np.fromfile(folder / SENTENCES, LENGTH).sum(dtype=np.int64))
    except (FileNotFoundError, ValueError):
        return None


def _write(piece: Iterable[Document], tokenizer: Tokenizer, folder: pathlib.Path) -> int:
    """Write the files of a shard, batch by batch, and return the number of tokens."""
    dtype = token_dtype(len(tokenizer.vocab))
    num_tokens = 0
    with open_files(folder, FILES, "wb") as files:
        tokens_file, sentences_file, documents_file, hashes_file = files
        for documents in _batches(piece):
            ids, lengths = _tokenize(tokenizer, [s for document in documents for s in document])
            owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
            sizes = np.bincount(owners[lengths > 0], minlength=len(documents))
            put(tokens_file, ids.astype(dtype))
            put(sentences_file, lengths[lengths > 0].astype(LENGTH))
            put(documents_file, sizes[sizes > 0].astype(LENGTH))
            for document, size in zip(documents, sizes, strict=True):
                if size:
                    hashes_file.write(_hash(document))
            num_tokens += len(ids)
    return num_tokens


def _hash(document: Document) -> bytes:
    return hashlib.blake2b("\n".join(document).encode(), digest_size=HASH_BYTES).digest()


def _batches(piece: Iterable[Document]) -> Iterator[list[Document]]:
    documents: list[Document] = []
    num_characters = 0
    for document in piece:
        documents.append(document)
        # Count line ends too, so that the size of a batch of empty sentences is limited.
        num_characters += sum(map(len, document)) + len(document) + 1
        if num_characters >= _BATCH_CHARACTERS:
            yield documents
            documents, num_characters = [], 0
    if documents:
        yield documents


def _tokenize(tokenizer: Tokenizer, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated ids of all sentences, and the number of ids of each sentence."""
    if type(tokenizer) is Tokenizer:  # a subclass may treat words differently in each sentence
        return _word_cache(tokenizer).tokenize(sentences)
    ragged = tokenizer.tokenize(sentences)
    ids, lengths = ragged.values.numpy(), ragged.row_lengths().numpy()
    outside = (ids < 0) | (ids >= len(tokenizer.vocab))
    if outside.any():
        at = int(np.argmax(outside))
        sentence = sentences[np.searchsorted(np.cumsum(lengths), at, side="right")]
        raise ValueError(
            f"The tokenizer returned the id {ids[at]}, outside its vocabulary of "
            f"{len(tokenizer.vocab)} tokens, in {shown(sentence)}. Use the vocabulary that belongs "
            "to the tokenizer."
        )
    return ids, lengths


@functools.lru_cache(maxsize=1)
def _word_cache(tokenizer: Tokenizer) -> WordCache:
    return WordCache(tokenizer)
