"""Data waiting time: how long training steps wait for data, and how much the pipeline slows them.

The `mini` preset trains alternately on batches that the pipeline builds and on the same kind of
batches kept in memory: pretraining on a token store, or with `--labeled` fine-tuning on a file of
labeled texts. With few cores, a pipeline may never block a step and still
cost time, because it uses the cores that compute the step. `waiting` is the fraction of a step
spent in `next(iterator)`, and `kept_waiting` the same for batches in memory: what the call
itself costs. `slowdown` is how much longer a step takes than on batches in memory.
`data_cpu` is the CPU time to produce a batch, and `data_share` is its share of the CPU time of a
step. All values are medians over the rounds. Prints one JSON line.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.training.devices import choose_precision

KEPT = 16  # number of batches kept in memory
MADE_AHEAD = 64  # batches discarded before a turn: more than the pipeline prefetches
ALONE = 128  # batches for measuring the CPU time


def turn(train_step: Any, batches: Iterator[Any], num_steps: int) -> tuple[float, float]:
    """Train for `num_steps`; return the seconds per step, including waiting, and of waiting."""
    for _ in range(MADE_AHEAD):
        next(batches)
    waited, start = 0.0, time.perf_counter()
    for _ in range(num_steps):
        before = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - before
        train_step(batch)
    return (time.perf_counter() - start) / num_steps, waited / num_steps


def median_ratio(numerators: tuple[float, ...], denominators: tuple[float, ...]) -> float:
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def cpu_of_a_batch(batches: Iterator[Any]) -> float:
    """Return the CPU seconds to produce a batch, summed over all threads."""
    for _ in range(MADE_AHEAD):
        next(batches)
    start = time.process_time()
    for _ in range(ALONE):
        next(batches)
    return (time.process_time() - start) / ALONE


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a file or a folder of text")
    parser.add_argument("--labeled", action="store_true", help="fine-tune on labeled texts")
    parser.add_argument("--vocab", required=True, help="a vocab.txt")
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--precision", help="default: the faster one")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--masking", default="token")
    parser.add_argument("--rows", default="padded", choices=("padded", "packed"))
    parser.add_argument("--steps", type=int, default=30, help="steps per turn")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def pretraining(
    options: argparse.Namespace, tokenizer: kb.Tokenizer, folder: str
) -> tf.data.Dataset:
    return kb.pretraining_dataset(
        kb.Corpus.open(options.data),
        tokenizer,
        batch_size=options.batch_size,
        max_len=options.max_len,
        masking=options.masking,
        rows=options.rows,
        epochs=None,
        cache_dir=folder,
    )


def main() -> None:
    options = arguments()
    tokenizer = kb.Tokenizer(kb.Vocab.from_file(options.vocab))
    config = kb.BERTConfig.preset(options.preset, vocab_size=len(tokenizer.vocab))
    num_tokens = options.batch_size * options.max_len
    options.precision = options.precision or choose_precision(config, num_tokens)
    model = kb.BERTModel.from_bert_config(config, dtype=options.precision)
    with tempfile.TemporaryDirectory() as folder:
        if options.labeled:
            examples = read_examples("classify", options.data)
            rows = kb.TaskRows.encode(examples, tokenizer, max_len=options.max_len)
            model = kb.SequenceClassifier(model, rows.label_names)
            data = rows.batches(options.batch_size, epoch=0).repeat()
        else:
            data = pretraining(options, tokenizer, folder)
        model.compile(optimizer=kb.BERTAdamW(1e-4))
        train_step = tf.function(model.train_step, reduce_retracing=True)
        data_cpu = cpu_of_a_batch(iter(data))
        kept = data.take(KEPT).cache()
        for batch in kept:
            train_step(batch)  # builds the graph
        contestants = {"built": iter(data), "kept": iter(kept.repeat().prefetch(2))}
        rounds = []
        for number in range(options.rounds):
            names = list(contestants)[:: -1 if number % 2 else 1]
            rounds.append({n: turn(train_step, contestants[n], options.steps) for n in names})
    seconds, waited = zip(*(times["built"] for times in rounds), strict=True)
    kept_seconds, kept_waited = zip(*(times["kept"] for times in rounds), strict=True)
    step = statistics.median(seconds)
    figures = {
        "step_ms": step * 1e3,
        "kept_step_ms": statistics.median(kept_seconds) * 1e3,
        "data_cpu_ms": data_cpu * 1e3,
        "waiting": median_ratio(waited, seconds),
        "kept_waiting": median_ratio(kept_waited, kept_seconds),
        "slowdown": median_ratio(seconds, kept_seconds) - 1,
        "data_share": data_cpu / (step * os.cpu_count()),
    }
    print(json.dumps({**vars(options), **{name: round(v, 4) for name, v in figures.items()}}))


if __name__ == "__main__":
    main()
