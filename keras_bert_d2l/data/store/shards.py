"""Tokenize the pieces of a corpus into shards, in one or several processes, and merge the shards.

A shard is a folder with token ids, lengths and hashes, as little-endian arrays without headers. The
token store contains offsets instead of lengths.
"""

import concurrent.futures
import contextlib
import hashlib
import itertools
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection as connections
from typing import IO, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.data.store import token_store
from keras_bert_d2l.data.store.token_store import HASH_BYTES, Manifest, Origin, token_dtype
from keras_bert_d2l.files import replacing_folder, verify_checksums
from keras_bert_d2l.text.corpus import Piece
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

TOKENS, SENTENCES, DOCUMENTS, HASHES = FILES = (
    "tokens.bin",
    "sentence_lengths.bin",  # in tokens
    "document_lengths.bin",  # in sentences
    "document_hashes.bin",
)
LENGTH = np.dtype("<i4")
_BATCH_CHARACTERS = 1 << 20  # per call of the tokenizer, which takes milliseconds for any text
_DOCUMENTS_AT_ONCE = 1 << 10  # number of documents that `merge` has in memory at once
_HASHES_AT_ONCE = 1 << 21  # compared; they take 150 MB

Document = Sequence[str]

Task = tuple[Piece, pathlib.Path]
"""A piece of a corpus, and the folder of its shard."""

_tokenizer: Tokenizer  # set in each worker process


def make_shards(tasks: Sequence[Task], tokenizer: Tokenizer, *, workers: int) -> Iterator[int]:
    """Make a shard for each piece, and yield the numbers of tokens in order of completion.

    Args:
        tasks: Pieces with the folders of their shards.
        tokenizer: The tokenizer.
        workers: Number of processes. With 1, the shards are made in this process.

    Raises:
        ChildProcessError: A process has died.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        for piece, folder in tasks:
            yield make_shard(piece, tokenizer, folder)
        return
    pool = concurrent.futures.ProcessPoolExecutor(
        workers, _context(), _start_worker, (tokenizer.vocab, tokenizer.options)
    )
    try:
        shards = [pool.submit(_make_shard, *task) for task in tasks]
        for shard in concurrent.futures.as_completed(shards):
            yield shard.result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "A tokenization process has died, often because memory ran out. Finished parts are "
            "kept: run the build again to resume, with fewer workers if memory is short. A script "
            'that uses several workers must start them under `if __name__ == "__main__":`, because '
            "each worker imports the script."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _context() -> multiprocessing.context.BaseContext:
    """Return the way to start processes, which must not copy the threads of TensorFlow.

    On Linux, the workers are forks of a process that has only imported TensorFlow, which starts no
    threads. The import takes seconds and hundreds of megabytes, and the workers share it.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _start_worker(vocab: Vocab, options: TokenizerOptions) -> None:
    global _tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets Ctrl-C too, and stops us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    _tokenizer = Tokenizer(vocab, **options)


def _make_shard(piece: Piece, folder: pathlib.Path) -> int:
    return make_shard(piece, _tokenizer, folder)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connections.wait([parent.sentinel])
        os._exit(1)  # immediately, because the next build may already start


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
            sentences = [sentence for document in documents for sentence in document]
            ragged = tokenizer.tokenize(sentences)
            ids, lengths = ragged.values.numpy(), ragged.row_lengths().numpy()
            owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
            sizes = np.bincount(owners[lengths > 0], minlength=len(documents))
            put(tokens_file, ids.astype(dtype))
            put(sentences_file, lengths[lengths > 0].astype(LENGTH))
            put(documents_file, sizes[sizes > 0].astype(LENGTH))
            for document, size in zip(documents, sizes, strict=True):
                if size:
                    text = "\n".join(document).encode()
                    hashes_file.write(hashlib.blake2b(text, digest_size=HASH_BYTES).digest())
            num_tokens += len(ids)
    return num_tokens


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
    dtype = token_dtype(origin.vocab_size)
    count = sum((folder / HASHES).stat().st_size for folder in folders) // HASH_BYTES
    keep = _first_of_equals(folders, count) if origin.deduplicate else np.ones(count, bool)
    total = np.zeros(3, np.int64)  # documents, sentences, tokens
    num_read = 0
    with open_files(directory, token_store.FILES, "wb") as (tokens, sentences, documents, hashes):
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
        found, places, num_read = [], [], 0
        for folder in folders:
            halves = np.fromfile(folder / HASHES, "<u8").reshape(-1, 2)
            mine = np.flatnonzero(halves[:, 0] % np.uint64(num_passes) == remainder)
            found.append(halves[mine])
            places.append(num_read + mine)
            num_read += len(halves)
        hashes = np.concatenate(found)
        order = np.lexsort(hashes.T)  # stable: the first of equal documents stays first
        is_copy = (hashes[order][1:] == hashes[order][:-1]).all(axis=1)
        keep[np.concatenate(places)[order][1:][is_copy]] = False
    return keep


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
    with open_files(folder, FILES, "rb") as (tokens, sentences, documents, hashes):
        while len(sizes := np.fromfile(documents, LENGTH, _DOCUMENTS_AT_ONCE)):
            lengths = np.fromfile(sentences, LENGTH, sizes.sum())
            ids = np.fromfile(tokens, dtype, lengths.sum(dtype=np.int64))
            yield _Block(ids, lengths, sizes, np.fromfile(hashes, f"V{HASH_BYTES}", len(sizes)))
