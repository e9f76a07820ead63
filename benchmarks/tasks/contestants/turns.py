"""The contestant's side: a training loop that pauses between turns.

`fit` and `Trainer` run only once. A callback counts the steps and waits for the next request when
a turn is over. Messages are JSON and use a separate pipe, because libraries print to stdout.
"""

import argparse
import gzip
import json
import os
import resource
import sys
import time
from pathlib import Path

LEARNING_RATE = 5e-5
MOST_WARMUP_STEPS = 20
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
LABELS = ("0", "1")
PRECISIONS = ("float32", "bfloat16")
MANY_STEPS = 100_000  # for a speed comparison, which ends when there are no more requests


def arguments() -> argparse.Namespace:
    """Parse the arguments of all contestants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True, help="a classifier checkpoint")
    parser.add_argument("--precision", choices=PRECISIONS, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--max-len", type=int, required=True)
    parser.add_argument("--steps", type=int, default=MANY_STEPS)
    parser.add_argument("--grouped", action="store_true", help="batch rows of similar length")
    parser.add_argument("--answers", type=int, required=True, help="file descriptor of a pipe")
    return parser.parse_args()


def warmup_steps(steps: int) -> int:
    """Return a tenth of the steps, limited because a speed comparison never reaches the end."""
    return min(MOST_WARMUP_STEPS, steps // 10)


def read_tsv(path: Path) -> tuple[list[str], list[int]]:
    """Return the texts and labels of an SST-2 file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        header = next(file).rstrip("\n").split("\t")
        rows = [line.rstrip("\n").split("\t") for line in file]
    label = header.index("label")
    text = 1 - label  # the two files name this column differently
    return [row[text] for row in rows], [int(row[label]) for row in rows]


class Turns:
    """Pauses a training loop between turns.

    Args:
        options: The parsed arguments; see `arguments`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._pipe = os.fdopen(options.answers, "w", buffering=1)
        self._batch_size = options.batch_size
        self._is_contest = options.steps == MANY_STEPS
        self._steps = self._left = 1
        self._start()

    def step_done(self) -> None:
        """Call this after each step. Ends the process when there are no more requests."""
        if not self._is_contest:
            return
        self._left -= 1
        if self._left:
            return
        self.answer(seconds=time.perf_counter() - self._wall, examples=self._examples)
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # the training loop would continue
        self._steps = self._left = json.loads(line)
        self._start()

    def answer(self, **figures: float) -> None:
        """Send a message."""
        figures["cpu_seconds"] = time.process_time() - self._cpu
        figures["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(figures), file=self._pipe)

    @property
    def _examples(self) -> int:
        return self._steps * self._batch_size

    def _start(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
