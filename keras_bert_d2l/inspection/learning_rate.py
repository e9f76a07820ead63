"""`find_learning_rate`: the learning rate range test of Smith 2017."""

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_bert_d2l.checks import check_integer, check_positive, check_type
from keras_bert_d2l.models.features import BatchModel
from keras_bert_d2l.types import ConfigDict, Tensor

_FIRST = 5  # steps whose mean loss is the initial loss
_DIVERGED = 1.5  # times the initial loss
_FELL = 0.98  # times the initial loss; above that, the loss has not fallen
_LEARNED = 0.01  # times the initial loss; there is nothing left to learn
_NEIGHBORS = 4  # on both sides, over which losses are averaged
_MARGIN = 5  # between the rate of the lowest loss, which is about to diverge, and the proposal


@dataclasses.dataclass(frozen=True, repr=False)
class RangeTest:
    """Result of `find_learning_rate`.

    Attributes:
        rates: The learning rate of each step, ascending.
        losses: The training loss of each step.

    Example:

    ```python
    import keras_bert_d2l as kb

    found = kb.RangeTest(rates=(1e-4, 1e-3, 1e-2), losses=(5.0, 4.0, 9.0))
    print(found.proposal)
    ```
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def smoothed(self) -> tuple[float, ...]:
        """The loss of each step, averaged with the losses of the steps around it."""
        losses = np.array(self.losses)
        around = (losses[max(0, n - _NEIGHBORS) : n + _NEIGHBORS + 1] for n in range(len(losses)))
        return tuple(float(window.mean()) for window in around)

    @property
    def best(self) -> int:
        """Index of the lowest smoothed loss, or of the first one that is almost 0.

        A task that is learned before the test ends has many losses close to 0, and which of them is
        the lowest is chance.
        """
        losses = np.array(self.smoothed)
        return int(np.argmax(losses <= max(losses.min(), _LEARNED * losses[0])))

    @property
    def proposal(self) -> float | None:
        """A fifth of the rate of the lowest loss. `None` if no rate lowered the loss."""
        if self.smoothed[self.best] > _FELL * self.smoothed[0]:
            return None
        return self.rates[self.best] / _MARGIN

    def __repr__(self) -> str:
        if self.proposal is None:
            return (
                f"No learning rate up to {self.rates[-1]:.2g} lowered the loss. Keep the default "
                "rate, or test larger batches."
            )
        return (
            f"Proposed learning rate: {self.proposal:.2g}. The loss fell from "
            f"{self.smoothed[0]:.3f} to {self.smoothed[self.best]:.3f} at "
            f"{self.rates[self.best]:.2g}; the test ended at {self.rates[-1]:.2g}."
        )


def find_learning_rate(
    model: BatchModel,
    data: Iterable[Tensor],
    *,
    lowest: float = 1e-6,
    highest: float = 1.0,
    steps: int = 100,
) -> RangeTest:
    """Find a learning rate: train a few steps with rising rates, until the loss diverges.

    The rate rises exponentially from `lowest` to `highest`, whatever the schedule of the optimizer
    is. The test ends early when the loss is not finite or half above its initial value. The
    proposal is a fifth of the rate with the lowest smoothed loss. It suits the peak of a schedule
    with a warm-up.

    Afterwards, the weights, the optimizer and the dropout seeds are as before.

    Source: Smith 2017 (arXiv 1506.01186), section 3.3.

    Args:
        model: The compiled model. Its optimizer and batch size should be those of the training.
        data: The training batches, `(features, labels)` or `(features, labels, weights)`. If there
            are too few, they are repeated.
        lowest: The rate of the first step.
        highest: The rate of the last step.
        steps: Maximum number of steps.

    Returns: a `RangeTest` with the attribute `proposal`.

    Raises:
        ValueError: The model is not compiled, there are no batches, or an argument is out of range.
        FloatingPointError: The loss is not finite before the first step.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    bert = kb.BERTModel(50, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = kb.SequenceClassifier(bert, ["bad", "good"])
    model.compile(kb.BERTAdamW())
    tokens = np.random.randint(0, 50, (8, 6))
    batches = [({"tokens": tokens, "segments": 0 * tokens}, tokens[:, 1] % 2)]
    found = kb.find_learning_rate(model, batches, steps=10)
    ```
    """
    check_type("model", model, BatchModel)
    check_positive("lowest", lowest)
    check_positive("highest", highest)
    check_integer("steps", steps, 10, ", so that the losses can be averaged")
    if lowest >= highest:
        raise ValueError(
            f"`lowest` must be below `highest`. Received: lowest={lowest}, highest={highest}."
        )
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            "`model` must be compiled with the optimizer of the training. Received: a model that "
            "is not compiled; call `model.compile(optimizer)` first."
        )
    losses: list[float] = []
    factor = (highest / lowest) ** (1 / (steps - 1))
    with _with_rising_rate(model, lowest, factor):
        for batch in _repeated(data, steps):
            x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
            losses.append(float(model.train_on_batch(x, y, weights, return_dict=True)["loss"]))
            if not losses[-1] <= _DIVERGED * float(np.mean(losses[:_FIRST])):
                break
    losses = [loss for loss in losses if math.isfinite(loss)]
    if not losses:
        raise FloatingPointError("The loss of the first batch is not finite, at any learning rate.")
    rates = lowest * factor ** np.arange(len(losses))
    return RangeTest(tuple(rates.tolist()), tuple(losses))


class _RisingRate(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that every step multiplies by `factor`."""

    def __init__(self, lowest: float, factor: float, first_step: int) -> None:
        self.lowest, self.factor, self.first_step = lowest, factor, first_step

    def __call__(self, step: Tensor) -> Tensor:
        exponent = keras.ops.cast(step - self.first_step, "float32")
        return self.lowest * keras.ops.power(self.factor, exponent)

    def get_config(self) -> ConfigDict:
        return dict(vars(self))


@contextlib.contextmanager
def _with_rising_rate(model: BatchModel, lowest: float, factor: float) -> Iterator[None]:
    """Let the learning rate rise, and restore the complete state of the training at the end."""
    optimizer: Any = model.optimizer
    inner: Any = getattr(optimizer, "inner_optimizer", optimizer)  # float16 scales losses
    optimizer.build(model.trainable_variables)
    variables = [*model.variables, *optimizer.variables]
    values = [keras.ops.convert_to_numpy(variable).copy() for variable in variables]
    missing_heads, learning_rate = model.missing_heads, inner._learning_rate
    inner._learning_rate = _RisingRate(lowest, factor, int(inner.iterations))
    model._discard_graphs()
    try:
        yield
    finally:
        inner._learning_rate = learning_rate
        model._discard_graphs()
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        model.missing_heads = missing_heads
        model.reset_metrics()


def _repeated(data: Iterable[Tensor], number: int) -> Iterator[Tensor]:
    """Yield a number of batches, from as many passes over the data as it takes."""
    while number > 0:
        before = number
        for batch in data:
            yield batch
            number -= 1
            if not number:
                return
        if number == before:
            raise ValueError("`data` must contain at least one batch. Received: no batches.")
