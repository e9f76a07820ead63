r"""Time of attention within windows against attention to all tokens, in ModernBERT's shape.

    python -m benchmarks.training.windows
    python -m benchmarks.training.windows --lengths 2048 --rows 1 --rounds 9 --size base

The models have 6 blocks, of width 384 by default. In the first, two of three blocks attend within
windows of 128 tokens, and the other blocks to all tokens; in the second, all blocks attend to all
tokens. The third is the first with local attention replaced by the sum of queries, keys and values.
They take turns. `ratio` is the median ratio of the CPU times of the first two over the rounds,
which other processes hardly change; `seconds_ratio` is that of wall-clock times. `floor` is the
ratio of CPU times of the third and the second: no faster local attention could go below it.
`forward` is the encoder in a `tf.function`, `packed` the same with 4 examples per row, `step` a
training step of masked words with AdamW. All models of a line share a process of their own, and
rows have no padding.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from unittest import mock

import numpy as np

WIDTHS = {"mini": 256, "small": 384, "base": 768}
WINDOWS = {"windows": 128, "full": 0, "free": 128}
VOCAB_SIZE = 8000
SHARE_OF_PREDICTIONS = 0.15


def works(kind: str, tokens: np.ndarray, window: int, width: int) -> Callable[[], object]:
    """Return what is timed: a call of the encoder, or a training step."""
    import tensorflow as tf

    import keras_bert_d2l as kb

    rows, length = tokens.shape
    sizes = {"num_hiddens": width, "num_heads": width // 64, "ffn_num_hiddens": width * 3 // 2}
    fields = {**sizes, "num_blks": 6, "pad_id": 0, "max_len": length, "local_attention": window}
    config = kb.BERTConfig.preset("modernbert-base", vocab_size=VOCAB_SIZE, **fields)
    model = kb.BERTModel.from_bert_config(config)
    if kind != "step":
        examples = np.repeat(np.arange(1, 5), length // 4) * np.ones((rows, 1), int)
        packed = examples if kind == "packed" else None
        encode = tf.function(lambda x: tf.reduce_sum(model.encoder(x, example_ids=packed)))
        return lambda: float(encode(tf.constant(tokens)))
    model.compile(kb.BERTAdamW(1e-4))
    positions = np.tile(np.arange(int(SHARE_OF_PREDICTIONS * length), dtype="int32"), (rows, 1))
    batch = {"tokens": tokens, "pred_positions": positions}
    labels, weights = {"mlm": positions}, {"mlm": np.ones(positions.shape, "float32")}
    return lambda: model.train_on_batch(batch, labels, weights)


def compare(kind: str, rows: int, length: int, size: str, rounds: int) -> dict[str, object]:
    """Time both models in this process, in turns."""
    from keras_bert_d2l.layers import positions

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # hides TensorFlow's messages
    tokens = np.random.default_rng(0).integers(5, VOCAB_SIZE, (rows, length), "int32")
    work = {name: works(kind, tokens, window, WIDTHS[size]) for name, window in WINDOWS.items()}
    for name, run in work.items():  # builds the graphs
        free = mock.patch.object(positions, "local_attention", lambda q, k, v, **_: q + k + v)
        with free if name == "free" else contextlib.nullcontext():
            run()
    times: dict[str, list[np.ndarray]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            start = np.array([time.process_time(), time.perf_counter()])
            run()
            times[name].append(np.array([time.process_time(), time.perf_counter()]) - start)
    seconds = {name: np.array(each) for name, each in times.items()}
    cpu, clock = np.median(seconds["windows"] / seconds["full"], axis=0)
    floor = np.median(seconds["free"] / seconds["full"], axis=0)[0].round(3)
    medians = {f"{name}_cpu_seconds": np.median(x[:, 0]).round(3) for name, x in seconds.items()}
    shape = {"work": kind, "size": size, "rows": rows, "length": length}
    ratios = {"ratio": cpu.round(3), "floor": floor, "seconds_ratio": clock.round(3)}
    return {**shape, **medians, **ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", default=["forward", "step"])
    parser.add_argument("--size", choices=WIDTHS, default="small")
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for kind in options.work:
        for rows in options.rows:
            for length in options.lengths:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    shape = kind, rows, length, options.size, options.rounds
                    print(json.dumps(pool.apply(compare, shape)), flush=True)


if __name__ == "__main__":
    main()
