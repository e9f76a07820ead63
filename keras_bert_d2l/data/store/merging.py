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
_HASHES_AT_ONCE = 1 << 21  # compared; they take 150 MB


def merge(folders: Sequence[pathlib.Path], origin: Origin, directory: pathlib.Path) -> Manifest:
    """Merge shards into one store, in the given order.

    Args:
        folders: The shards.
        origin: Corpus, vocabulary and options of the store. With `deduplicate`, only the first of
            several documents with the same text is kept.
        directory: Folder to write the four arrays to.

    Returns:
        The manifest of the store, which the caller writes.
    """
    dtype = manifest.token_dtype(origin.vocab_size)
    count = sum((folder / shards.HASHES).stat().st_size for folder in folders) // HASH_BYTES
    keep = _first_of_equals(folders, count) if origin.deduplicate else np.ones(count, bool)
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
        num_duplicates=count - num_documents,
    )


def _first_of_equals(folders: Sequence[pathlib.Path], count: int) -> np.ndarray:
    """Return which documents are not duplicates of an earlier one, by their hashes, bool `(N,)`.

    Each pass over the hashes compares those with one remainder, so memory does not grow with them.
    """
    keep: np.ndarray = np.ones(count, bool)
    num_passes = -(-count // _HASHES_AT_ONCE)
    for remainder in range(num_passes):
        blocks = _hashes(folders)
        mine = [block[block[:, 0] % np.uint64(num_passes) == remainder] for block in blocks]
        high, low, places = np.concatenate(mine).T
        order = np.lexsort((low, high))  # stable: the first of equal documents stays first
        high, low = high[order], low[order]
        is_copy = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        keep[places[order][1:][is_copy].astype(np.int64)] = False
    return keep


def _hashes(folders: Sequence[pathlib.Path]) -> Iterator[np.ndarray]:
    """Yield blocks of all documents' hashes, in two halves, and of their numbers."""
    count = 0
    for folder in folders:
        with open(folder / shards.HASHES, "rb") as file:
            while len(found := np.fromfile(file, "<u8", 2 * _DOCUMENTS_AT_ONCE)):
                halves = found.reshape(-1, 2)
                places = np.arange(count, count + len(halves), dtype=np.uint64)
                count += len(halves)
                yield np.column_stack([halves, places])


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
