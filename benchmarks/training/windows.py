r"""Time of attention within windows against attention to all tokens, in ModernBERT's shape.

    python -m benchmarks.training.windows
    python -m benchmarks.training.windows --lengths 2048 --rows 1 --rounds 9

Both models have 6 blocks of width 384. In the first, two of three blocks attend within windows of
128 tokens, and the other blocks to all tokens; in the second, all blocks attend to all tokens. They
take turns. `ratio` is the median ratio of their CPU times over the rounds, which other processes
hardly change; `seconds_ratio` is that of wall-clock times. `forward` is the encoder in a
`tf.function`, `step` a training step of masked words with AdamW. Each pair of models has a process
of its own, and rows without padding.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable

import numpy as np

SIZES = {"num_hiddens": 384, "num_heads": 6, "num_blks": 6, "ffn_num_hiddens": 576}
WINDOWS = {"windows": 128, "full": 0}
VOCAB_SIZE = 8000
SHARE_OF_PREDICTIONS = 0.15


def works(kind: str, tokens: np.ndarray, window: int) -> Callable[[], object]:
    """Return what is timed: a call of the encoder, or a training step."""
    import tensorflow as tf

    import keras_bert_d2l as kb

    rows, length = tokens.shape
    fields = {**SIZES, "pad_id": 0, "max_len": length, "local_attention": window}
    config = kb.BERTConfig.preset("modernbert-base", vocab_size=VOCAB_SIZE, **fields)
    model = kb.BERTModel.from_bert_config(config)
    if kind == "forward":
        encode = tf.function(lambda tokens: tf.reduce_sum(model.encoder(tokens)))
        return lambda: float(encode(tf.constant(tokens)))
    model.compile(kb.BERTAdamW(1e-4))
    positions = np.tile(np.arange(int(SHARE_OF_PREDICTIONS * length), dtype="int32"), (rows, 1))
    batch = {"tokens": tokens, "pred_positions": positions}
    labels, weights = {"mlm": positions}, {"mlm": np.ones(positions.shape, "float32")}
    return lambda: model.train_on_batch(batch, labels, weights)


def compare(kind: str, rows: int, length: int, rounds: int) -> dict[str, object]:
    """Time both models in this process, in turns."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # hides TensorFlow's messages
    tokens = np.random.default_rng(0).integers(5, VOCAB_SIZE, (rows, length), "int32")
    work = {name: works(kind, tokens, window) for name, window in WINDOWS.items()}
    times: dict[str, list[np.ndarray]] = {name: [] for name in work}
    for _ in range(rounds + 1):  # the first round builds the graphs
        for name, run in work.items():
            start = np.array([time.process_time(), time.perf_counter()])
            run()
            times[name].append(np.array([time.process_time(), time.perf_counter()]) - start)
    seconds = {name: np.array(each[1:]) for name, each in times.items()}
    cpu, clock = np.median(seconds["windows"] / seconds["full"], axis=0)
    medians = {f"{name}_cpu_seconds": np.median(x[:, 0]).round(3) for name, x in seconds.items()}
    shape = {"work": kind, "rows": rows, "length": length}
    return {**shape, **medians, "ratio": cpu.round(3), "seconds_ratio": clock.round(3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", default=["forward", "step"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for kind in options.work:
        for rows in options.rows:
            for length in options.lengths:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    shape = kind, rows, length, options.rounds
                    print(json.dumps(pool.apply(compare, shape)), flush=True)


if __name__ == "__main__":
    main()
