"""Make the shards of a corpus, in this process or in several processes in parallel."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection as connections

import tensorflow as tf

from keras_bert_d2l.data.store.shards import make_shard
from keras_bert_d2l.text.corpus import Piece
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

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
        workers,
        _context(),
        _start_worker,
        (tokenizer.vocab, tokenizer.options),
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


def check_plain(tokenizer: Tokenizer, advice: str) -> None:
    """Raise a `ValueError` that ends with `advice` for a tokenizer of a subclass."""
    if type(tokenizer) is not Tokenizer:
        raise ValueError(
            "`tokenizer` must be a plain `Tokenizer`, because the workers create it again from its "
            f"vocabulary and options. Received: a `{type(tokenizer).__qualname__}`. {advice}"
        )


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
