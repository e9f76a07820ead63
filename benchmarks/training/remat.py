"""Peak memory and speed of the training step with and without activation checkpointing.

Each measurement is a separate process: a few AdamW steps of a `BERTModel` on one batch without
padding, with the default losses and metrics.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time

import numpy as np

SHARE_OF_PREDICTIONS = 0.15


def measure(size: str, rows: int, length: int, remat: str, steps: int) -> dict[str, object]:
    """Train in this process and return the cost."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # hides TensorFlow's messages
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset(size, vocab_size=30522))
    model.compile(kb.BERTAdamW(1e-4), remat=remat, jit_compile=False)
    tokens = np.random.default_rng(0).integers(1000, 30522, (rows, length), "int32")
    positions = np.tile(np.arange(int(SHARE_OF_PREDICTIONS * length), dtype="int32"), (rows, 1))
    features = {"tokens": tokens, "segments": 0 * tokens, "pred_positions": positions}
    labels = {"mlm": positions, "nsp": np.zeros(rows, "int32")}
    weights = {"mlm": np.ones(positions.shape, "float32"), "nsp": np.ones(rows, "float32")}
    seconds = []
    for _ in range(steps + 1):  # the first step builds the graph
        start = time.perf_counter()
        model.train_on_batch(features, labels, weights)
        seconds.append(time.perf_counter() - start)
    return {
        "size": size,
        "rows": rows,
        "length": length,
        "remat": remat,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "step_seconds": round(statistics.median(seconds[1:]), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="base", help="preset of the architecture")
    parser.add_argument("--rows", type=int, default=16, help="rows per batch")
    parser.add_argument("--length", type=int, default=128, help="tokens per row")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    for remat in ("none", "blocks"):
        # Use a new interpreter, because a forked process inherits its parent's peak memory.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            shape = options.size, options.rows, options.length
            print(json.dumps(pool.apply(measure, (*shape, remat, options.steps))), flush=True)


if __name__ == "__main__":
    main()
