"""The workload of all pipelines: the same text, ids and sizes, and batches on request.

A contestant produces batches with one iterator that is never restarted. It reports the number of
tokens, without padding, and the CPU time. Work done by its threads between two turns counts for
the next turn, which uses the result.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

MASK_RATE, MASKED, RANDOM = 0.15, 0.8, 0.1
NUM_BATCHES = 16  # number of batches of ids, which are masked repeatedly
MASKED_TOGETHER = 1024  # rows per batch
WARM_UP = 3  # number of untimed batches at the start

Document = list[list[int]]  # sentences of ids


def read_options() -> argparse.Namespace:
    """Parse the arguments that `pipeline.py` passes to a contestant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", required=True)
    parser.add_argument("--lines", type=pathlib.Path, required=True, help="one text per line")
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--max-len", type=int, required=True)
    parser.add_argument("--answers", type=int, required=True, help="file descriptor of a pipe")
    return parser.parse_args()


def take_turns(step: Callable[[], int], answers: int) -> None:
    """Produce batches on request until stdin ends.

    Args:
        step: Produces a batch and returns its number of tokens, without padding.
        answers: File descriptor for the messages.
    """
    for _ in range(WARM_UP):
        step()
    with os.fdopen(answers, "w", buffering=1) as pipe:
        print(json.dumps("ready"), file=pipe)
        cpu = time.process_time()
        for line in sys.stdin:
            end, tokens = time.perf_counter() + float(line), 0
            while time.perf_counter() < end:
                tokens += step()
            before, cpu = cpu, time.process_time()
            print(json.dumps({"tokens": tokens, "cpu_seconds": cpu - before}), file=pipe)


def texts(options: argparse.Namespace) -> list[str]:
    return options.lines.read_text(encoding="utf-8").splitlines()


def vocab_tokens(options: argparse.Namespace) -> list[str]:
    text = (options.store / "vocab.txt").read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n")


def documents(options: argparse.Namespace) -> list[Document]:
    """Return the documents of the store as nested lists of ids."""
    from keras_bert_d2l.data.store.token_store import TokenStore

    store = TokenStore.open(options.store)
    return [
        [sentence.tolist() for sentence in store.document(n)] for n in range(store.num_documents)
    ]


def rows(options: argparse.Namespace) -> list[list[list[int]]]:
    """Return batches of full rows of ids: running text between `[CLS]` and `[SEP]`."""
    ids = np.fromfile(options.store / "tokens.bin", "<u2")
    tokens = vocab_tokens(options)
    size, inner = MASKED_TOGETHER, options.max_len - 2
    if len(ids) < NUM_BATCHES * size * inner:
        raise SystemExit("The text is too short for the masking task.")
    body = ids[: NUM_BATCHES * size * inner].reshape(-1, inner).tolist()
    framed = [[tokens.index("[CLS]"), *row, tokens.index("[SEP]")] for row in body]
    return [framed[first : first + size] for first in range(0, len(framed), size)]


def pairs(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of two successive texts per row. With three special tokens they fill it."""
    ids = np.fromfile(options.store / "tokens.bin", "<u2").astype(np.int32)
    inner = options.max_len - 3
    rows = ids[: len(ids) // inner * inner].reshape(-1, inner)
    return rows[:, : inner // 2], rows[:, inner // 2 :]


def finished_batch(examples: Iterator[tuple], options: argparse.Namespace) -> int:
    """Build the arrays of a batch and return the number of tokens.

    An example consists of the corrupted tokens, the predicted positions, the labels, the segments,
    and whether the second text follows the first.
    """
    batch = itertools.islice(examples, options.batch_size)
    tokens, positions, labels, segments, is_next = zip(*batch, strict=True)
    num_predictions = round(MASK_RATE * options.max_len)
    arrays: list[Any] = [_padded(rows, options.max_len) for rows in (tokens, segments)]
    arrays += [_padded(rows, num_predictions) for rows in (positions, labels)]
    arrays.append(np.array(is_next, np.int32))
    return sum(map(len, tokens))


def _padded(batch: Sequence[Sequence[int]], max_len: int) -> np.ndarray:
    array = np.zeros((len(batch), max_len), np.int32)
    for row, ids in zip(array, batch, strict=True):
        row[: len(ids)] = ids
    return array
