"""Merge the shards of a corpus into the files of a token store, with or without duplicates."""

import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.data.store import manifest, shards
from keras_bert_d2l.data.store.manifest import HASH_BYTES, Manifest, Origin
from keras_bert_d2l.data.store.shards import open_files, put

_DOCUMENTS_AT_ONCE = 1 << 10  # number of documents in memory at once
_HASHES_AT_ONCE = 1 << 22  # hashes in memory during deduplication; 200 MB with sort order


def merge(
    folders: Sequence[pathlib.Path], origin: Origin, directory: pathlib.Path, keep: np.ndarray
) -> Manifest:
    """Merge shards into one store, in the given order.

    Args:
        folders: The shards.
        origin: Corpus, vocabulary and options of the store.
        directory: Folder to write the four arrays to.
        keep: bool `(N,)`, True for the documents to keep, over all shards.

    Returns:
        The manifest of the store, which the caller writes.
    """
    dtype = manifest.token_dtype(origin.vocab_size)
    total = np.zeros(3, np.int64)  # documents, sentences, tokens
    num_read = 0
    with open_files(directory, manifest.FILES, "wb") as (tokens, sentences, documents, hashes):
        for file in (sentences, documents):
            put(file, np.zeros(1, "<i8"))
        for block in itertools.chain.from_iterable(_blocks(folder, dtype) for folder in folders):
            read = len(block.hashes)
            block = block.only(keep[num_read : num_read + read])
            num_read += read
            put(tokens, block.tokens)
            put(sentences, total[2] + np.cumsum(block.sentences, dtype="<i8"))
            put(documents, total[1] + np.cumsum(block.documents, dtype="<i8"))
            put(hashes, block.hashes)
            total += [len(block.documents), len(block.sentences), len(block.tokens)]
    num_documents, num_sentences, num_tokens = total.tolist()
    return Manifest(
        **vars(origin),
        num_documents=num_documents,
        num_sentences=num_sentences,
        num_tokens=num_tokens,
        num_duplicates=num_read - num_documents,
    )


def first_of_equals(folders: Sequence[pathlib.Path]) -> np.ndarray:
    """Return which documents are not duplicates of an earlier one, by their hashes, bool `(N,)`."""
    count = num_documents(folders)
    keep: np.ndarray = np.ones(count, bool)
    num_parts = -(-count // _HASHES_AT_ONCE)
    for part in range(num_parts):  # equal documents are in the same part
        hashes, places = [], []
        start = 0
        for folder in folders:
            found = np.fromfile(folder / shards.HASHES, "<u8").reshape(-1, 2)
            mine = np.flatnonzero(found[:, 0] % num_parts == part)
            hashes.append(found[mine])
            places.append(start + mine)
            start += len(found)
        high, low = np.concatenate(hashes).T
        order = np.lexsort((low, high))  # stable: the first of equal documents stays first
        high, low = high[order], low[order]
        is_copy = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        keep[np.concatenate(places)[order][1:][is_copy]] = False
    return keep


def num_documents(folders: Sequence[pathlib.Path]) -> int:
    """Return the number of documents in all shards."""
    return sum((folder / shards.HASHES).stat().st_size for folder in folders) // HASH_BYTES


class _Block(NamedTuple):
    """Some documents of a shard: tokens, tokens per sentence, sentences per document, hashes."""

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    hashes: np.ndarray

    def only(self, keep: np.ndarray) -> "_Block":
        if keep.all():
            return self
        of_sentences = np.repeat(keep, self.documents)
        of_tokens = np.repeat(of_sentences, self.sentences)
        return _Block(
            self.tokens[of_tokens],
            self.sentences[of_sentences],
            self.documents[keep],
            self.hashes[keep],
        )


def _blocks(folder: pathlib.Path, dtype: np.dtype) -> Iterator[_Block]:
    with open_files(folder, shards.FILES, "rb") as (tokens, sentences, documents, hashes):
        while len(sizes := np.fromfile(documents, shards.LENGTH, _DOCUMENTS_AT_ONCE)):
            lengths = np.fromfile(sentences, shards.LENGTH, sizes.sum())
            ids = np.fromfile(tokens, dtype, lengths.sum(dtype=np.int64))
            yield _Block(ids, lengths, sizes, np.fromfile(hashes, f"V{HASH_BYTES}", len(sizes)))
