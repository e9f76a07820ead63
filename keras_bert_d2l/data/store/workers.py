"""Pieces of a corpus in, shards on disk out: made in this process or in several at once."""

import contextlib
import multiprocessing
import os
import pathlib
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import connection as connections
from typing import NoReturn

import tensorflow as tf

from keras_bert_d2l.data.store.shards import make_shard
from keras_bert_d2l.text.corpus.corpus import Piece
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer, TokenizerOptions
from keras_bert_d2l.text.vocab.vocab import Vocab

Task = tuple[Piece, pathlib.Path]


def make_shards(tasks: Sequence[Task], tokenizer: Tokenizer, workers: int) -> Iterator[int]:
    """Makes a shard of each piece and yields its number of tokens, in the order they are done.

    Args:
        tasks: Each a piece and the folder of its shard.
        tokenizer: Makes the ids.
        workers: Number of processes; 1: this one.

    Raises:
        ChildProcessError: A process has died.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        for piece, folder in tasks:
            yield make_shard(piece, tokenizer, folder)
        return
    with contextlib.ExitStack() as stack:
        team = [_Worker(tokenizer, stack) for _ in range(workers)]
        waiting = iter(tasks)
        busy = {worker.connection: worker for worker in team}
        for worker in team:
            worker.send(next(waiting))
        while busy:
            for ready in connections.wait(list(busy)):
                worker = busy.pop(ready)  # type: ignore[call-overload]
                yield worker.receive()
                task = next(waiting, None)
                if task is not None:
                    worker.send(task)
                    busy[worker.connection] = worker


class _Worker:
    """A process that makes shards, seen from the one that asks for them; it ends with `stack`."""

    def __init__(self, tokenizer: Tokenizer, stack: contextlib.ExitStack) -> None:
        # Not forked: TensorFlow's threads would not be there.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, tokenizer.vocab, tokenizer.options),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        stack.callback(self._process.join)
        stack.callback(self._process.kill)  # what is done is on disk; what is half done is not used

    def send(self, task: Task) -> None:
        try:
            self.connection.send(task)
        except BrokenPipeError:
            self._died()

    def receive(self) -> int:
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._died()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _died(self) -> NoReturn:
        self._process.join()
        raise ChildProcessError(
            f"A process that tokenises ended with code {self._process.exitcode} (-9: killed, as "
            "happens where memory runs out). What is finished is kept: run the same again, with "
            "fewer workers if memory is short. A script that asks for several workers must do so "
            'under `if __name__ == "__main__":`, because each of them imports it.'
        ) from None


def _serve(connection: connections.Connection, vocab: Vocab, options: TokenizerOptions) -> None:
    """Makes one shard after another, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends this
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tokenizer = Tokenizer(vocab, **options)
    while True:
        piece, folder = connection.recv()
        try:
            answer: int | BaseException = make_shard(piece, tokenizer, folder)
        except Exception as error:
            answer = _sendable(error)
        connection.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connections.wait([parent.sentinel])
        os._exit(1)  # at once: the next build may start any moment


def _sendable(error: Exception) -> Exception:
    """The error, or one that says the same, where it cannot be sent to another process."""
    error.add_note("In a process that tokenises:\n" + traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
