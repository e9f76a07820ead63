"""Checks of the speed: the precision, and waiting for data."""

import itertools
import statistics
import time
from collections.abc import Iterable

import keras

from keras_bert_d2l.inspection.doctor.finding import Finding
from keras_bert_d2l.inspection.trial import undone
from keras_bert_d2l.models.features import BatchModel
from keras_bert_d2l.types import Tensor

_BATCHES, _SECONDS = 256, 2.0  # limits; the pipeline makes dozens of batches at once
_STEPS = 20


def precision(policy: str, speedup: float) -> Finding:
    """Compare the precision of a run with the one that is faster on this machine.

    1.5 is beyond the noise of the measurement, and below the factors of 1.8 to 2 that the wrong
    precision costs. Where bfloat16 is slow, float16 is as slow or slower.

    Args:
        policy: The dtype policy of the run.
        speedup: Time of matrix products in float32 divided by that in bfloat16.
    """
    is_half = policy in ("mixed_bfloat16", "mixed_float16")
    return Finding(
        name="precision",
        measures="time of a matrix product in this precision / in the other one",
        number=1 / speedup if is_half else speedup,
        high=1.5,
        severity="costs time",
        meaning=f"{policy} is slow on this machine.",
        remedy=f"Use `--precision {'float32' if is_half else 'mixed_bfloat16'}`, or auto, which "
        "measures.",
    )


def waiting_for_data(seconds_per_batch: float, seconds_per_step: float) -> Finding:
    """Compare the time to make a batch with the time of a training step that need not wait.

    Batches are made ahead, so a step waits only if they take longer than the step. On a CPU, both
    share the cores: at 1, half of the time is spent on the data. Both are measured one after the
    other, so that a machine that does something else slows down both. The speed of the run does
    not tell: it includes the waiting.

    Args:
        seconds_per_batch: Time per batch of the dataset alone.
        seconds_per_step: Time per training step on a batch that is there.
    """
    return Finding(
        name="waiting for data",
        measures="time to make a batch / time of a training step on a batch that is there",
        number=seconds_per_batch / seconds_per_step,
        high=1.0,
        severity="costs time",
        meaning="The training waits for its batches.",
        remedy="Tokenize once (`prepare`), let the dataset end with `.prefetch(tf.data.AUTOTUNE)`, "
        "and move slow Python code out of it.",
    )


def time_batches(batches: Iterable[Tensor]) -> float:
    """Return the seconds that a dataset takes per batch."""
    iterator = iter(batches)
    next(iterator, None)  # the first one builds the pipeline
    start, count = time.perf_counter(), 0
    for _ in itertools.islice(iterator, _BATCHES):
        count += 1
        if time.perf_counter() - start > _SECONDS:
            break
    return (time.perf_counter() - start) / max(count, 1)


def time_step(model: BatchModel, batch: Tensor) -> float:
    """Return the median seconds of a training step. The steps are undone."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
    with undone(model):
        model.train_on_batch(x, y, weights)  # builds the graph
        seconds: list[float] = []
        while len(seconds) < _STEPS and sum(seconds) < _SECONDS:
            start = time.perf_counter()
            model.train_on_batch(x, y, weights)
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
