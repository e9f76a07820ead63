"""The optimizer of a run: which one its options name, its pace, and the norms of its gradients."""

import functools
from collections.abc import Callable

import keras
from keras import ops

from keras_bert_d2l.training.optimization import schedules
from keras_bert_d2l.training.optimization.optimizers import BERTAdamW, BERTMuon
from keras_bert_d2l.training.options import StepOptions

GRADIENT_NORMS = "gradient_norms"  # name of a variable
OPTIMIZERS = {"adamw": BERTAdamW, "muon": BERTMuon}


def make_schedule(
    options: StepOptions, warmup_steps: int, total_steps: int, decay_steps: int | None = None
) -> schedules.WarmupSchedule:
    """Create the learning rate schedule that the options of a run name."""
    decay = {} if decay_steps is None else {"decay_steps": decay_steps}
    kind = schedules.SCHEDULES[options.schedule]
    return kind(options.learning_rate, warmup_steps, total_steps, **decay)


def make_optimizer(
    options: StepOptions,
    schedule: schedules.WarmupSchedule,
    compute_dtype: str,
    layer_decay: float = 1.0,
) -> BERTAdamW:
    """Create the optimizer that the options of a run name.

    `compute_dtype` is that of the model.
    """
    kind: Callable[..., BERTAdamW] = OPTIMIZERS[options.optimizer]
    if kind is BERTMuon and compute_dtype == "bfloat16":
        kind = functools.partial(BERTMuon, compute_dtype=compute_dtype)
    return kind(
        schedule,
        weight_decay=options.weight_decay,
        layer_decay=layer_decay,
        name=f"bert_{options.optimizer}",
    )


def set_schedule(optimizer: keras.optimizers.Optimizer, schedule: schedules.WarmupSchedule) -> None:
    """Replace the schedule of a built optimizer, which continues at its step."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._learning_rate = schedule


def add_gradient_norms(optimizer: keras.optimizers.Optimizer) -> None:
    """Let a built optimizer add up the norms that it clips, saved last in its state.

    The variable contains the sum of the norms of the gradients, before clipping, and their number.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner.gradient_norms = inner.add_variable(
        (2,), initializer="zeros", aggregation="only_first_replica", name=GRADIENT_NORMS
    )


def mean_gradient_norm(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Return the mean norm of the gradients since the last call, if there were any."""
    norms = getattr(optimizer, "inner_optimizer", optimizer).gradient_norms
    total, number = ops.convert_to_numpy(norms)
    norms.assign([0.0, 0.0])
    return float(total / number) if number else None
