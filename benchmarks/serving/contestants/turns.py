"""The contestant's side: run requests for a few seconds and report the latency of each.

A request is a list of strings. Messages are JSON and use a separate pipe, because libraries print
to stdout.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.runner import status_mb

NUM_REQUESTS = 64  # number of different requests, which are repeated
NUM_UNTIMED = 3  # warm-up requests per turn, which set up buffers for the shape
QUERY = "which film has a long and boring end"  # of the rerankers
CHECKED = ["a film that is good", "a long and very boring film , without any end in sight"]


def arguments() -> argparse.ArgumentParser:
    """Return a parser with the arguments of all contestants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--vocab", type=Path, required=True)
    parser.add_argument("--answers", type=int, required=True, help="file descriptor of a pipe")
    return parser


def take_turns(
    answer: Callable[[list[str]], list[float]],
    options: argparse.Namespace,
    process: int | str = "self",
) -> None:
    """Run requests until stdin ends.

    Args:
        answer: Returns the probability of the second label of each text.
        options: The parsed arguments; see `arguments`.
        process: The process that has the model, whose memory counts.
    """
    with os.fdopen(options.answers, "w", buffering=1) as pipe:
        print(json.dumps({"scores": answer(CHECKED)}), file=pipe)
        words = whole_words(options.vocab)
        for line in sys.stdin:
            turn = json.loads(line)
            asked = requests(words, turn["batch_size"], turn["num_tokens"], turn.get("fewest"))
            cost = _timed(answer, asked, turn["seconds"], turn.get("untimed", NUM_UNTIMED))
            memory = {"rss_mb": status_mb("VmRSS", process), "peak_mb": status_mb("VmHWM", process)}
            print(json.dumps(cost | memory), file=pipe)


def whole_words(vocab: Path) -> list[str]:
    """Return the words that the vocabulary represents as a single token."""
    tokens = vocab.read_text(encoding="utf-8").split("\n")
    return [token for token in tokens if re.fullmatch("[a-z]{2,}", token)]


def requests(
    words: list[str], batch_size: int, num_tokens: int, fewest: int | None = None
) -> list[list[str]]:
    """Return requests with texts of `num_tokens` tokens, including special tokens.

    Args:
        words: Words of one token.
        batch_size: Number of texts per request.
        num_tokens: Number of tokens per text.
        fewest: If given, the numbers of tokens are random, from this to `num_tokens`.
    """
    random = np.random.default_rng((batch_size, num_tokens))
    shape = (NUM_REQUESTS, batch_size, num_tokens - 2)
    batches = random.choice(words, shape).tolist()
    least = num_tokens if fewest is None else fewest
    lengths = random.integers(least - 2, num_tokens - 2, shape[:2], endpoint=True)
    return [
        [" ".join(text[:length]) for text, length in zip(batch, row, strict=True)]
        for batch, row in zip(batches, lengths, strict=True)
    ]


def _timed(
    answer: Callable[[list[str]], list[float]],
    asked: list[list[str]],
    seconds: float,
    num_untimed: int,
) -> dict[str, object]:
    for texts in asked[:num_untimed]:
        answer(texts)
    latencies: list[float] = []
    cpu, end = time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        answer(asked[len(latencies) % len(asked)])
        latencies.append(time.perf_counter() - start)
    return {
        "latencies_ms": [round(1000 * latency, 3) for latency in latencies],
        "cpu_seconds": time.process_time() - cpu,
    }
