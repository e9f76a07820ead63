"""Learning-rate schedules with a warm-up, as serializable Keras objects."""

import abc
import functools
import math
from collections.abc import Callable, Mapping

import keras
from keras import ops

from keras_bert_d2l.checks import check_integer, check_that
from keras_bert_d2l.types import Tensor

_NO_SHARE = ", a number of steps and not a share of them"


class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule, abc.ABC):
    """Learning rate that rises linearly to a peak. A subclass defines what follows.

    Args:
        peak: Learning rate at the end of the warm-up.
        warmup_steps: Number of warm-up steps. If positive, the first step has the rate 0.
        total_steps: Number of steps of the training run.

    Raises:
        ValueError: A number of steps is not an integer or is negative, or `warmup_steps` is not
            below `total_steps`.
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int) -> None:
        check_integer("warmup_steps", warmup_steps, 0, _NO_SHARE)
        check_integer("total_steps", total_steps, 1)
        expected = f"below total_steps={total_steps}"
        check_that(warmup_steps < total_steps, "warmup_steps", expected, warmup_steps)
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32")
        rise = step / max(1, self.warmup_steps)
        return self.peak * ops.where(step < self.warmup_steps, rise, self.share_of_peak(step))

    @abc.abstractmethod
    def share_of_peak(self, step: Tensor) -> Tensor:
        """Return the rate of a step after the warm-up, divided by the peak."""

    def share_done(self, step: Tensor, first: int) -> Tensor:
        """Return which share of the steps from `first` to the last is done, from 0 to 1."""
        return ops.clip((step - first) / (self.total_steps - first), 0.0, 1.0)

    def get_config(self) -> dict[str, float | bool]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WarmupLinearDecay(WarmupSchedule):
    """Learning rate that rises linearly to a peak, then falls linearly to zero.

    Source: Devlin et al. 2019, appendix A.2; google-research/bert, optimization.py.

    Args:
        peak: Learning rate at the end of the warm-up.
        warmup_steps: Number of warm-up steps. If positive, the first step has the rate 0.
        total_steps: Step at which the rate reaches 0.
        decay_from_start: Start the linear decay at step 0 instead of at the peak. Google's code
            does this, so its rate drops by `peak * warmup_steps / total_steps` after the warm-up.

    Raises:
        ValueError: A number of steps is not an integer or is negative, or `warmup_steps` is not
            below `total_steps`.

    Example:

    ```python
    import keras_bert_d2l as kb

    schedule = kb.WarmupLinearDecay(1e-3, warmup_steps=100, total_steps=1000)
    schedule(50)  # 0.0005
    ```
    """

    def __init__(
        self, peak: float, warmup_steps: int, total_steps: int, *, decay_from_start: bool = False
    ) -> None:
        super().__init__(peak, warmup_steps, total_steps)
        self.decay_from_start = decay_from_start

    def share_of_peak(self, step: Tensor) -> Tensor:
        first = 0 if self.decay_from_start else self.warmup_steps
        return ops.maximum(0.0, (self.total_steps - step) / (self.total_steps - first))

    def get_config(self) -> dict[str, float | bool]:
        return {**super().get_config(), "decay_from_start": self.decay_from_start}


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WarmupCosineDecay(WarmupSchedule):
    """Learning rate that rises linearly to a peak, then falls to zero like half a cosine wave.

    The arguments are those of `WarmupLinearDecay`, without `decay_from_start`.

    Source: Loshchilov and Hutter 2017 (SGDR), equation 5, without restarts.

    Example:

    ```python
    import keras_bert_d2l as kb

    schedule = kb.WarmupCosineDecay(1e-3, warmup_steps=100, total_steps=1100)
    schedule(600)  # 0.0005
    ```
    """

    def share_of_peak(self, step: Tensor) -> Tensor:
        return (1 + ops.cos(math.pi * self.share_done(step, self.warmup_steps))) / 2


@keras.saving.register_keras_serializable("keras_bert_d2l")
class WarmupStableDecay(WarmupSchedule):
    """Learning rate that rises linearly, stays at its peak, and falls to zero at the end.

    It falls as 1 minus the square root of the completed share of the decay ("1-sqrt").

    Source: Haegele et al. 2024, section 3.

    Args:
        peak: Learning rate at the end of the warm-up.
        warmup_steps: Number of warm-up steps. If positive, the first step has the rate 0.
        total_steps: Step at which the rate reaches 0.
        decay_steps: Number of steps at the end during which the rate falls. `None`: a fifth of
            `total_steps`. 0: it stays at its peak.

    Raises:
        ValueError: A number of steps is not an integer or is negative, or the sum of
            `warmup_steps` and `decay_steps` is too large.

    Example:

    ```python
    import keras_bert_d2l as kb

    schedule = kb.WarmupStableDecay(1e-3, warmup_steps=100, total_steps=1000, decay_steps=400)
    schedule(700)  # 0.0005
    ```
    """

    def __init__(
        self, peak: float, warmup_steps: int, total_steps: int, *, decay_steps: int | None = None
    ) -> None:
        super().__init__(peak, warmup_steps, total_steps)
        if decay_steps is not None:
            check_integer("decay_steps", decay_steps, 0, _NO_SHARE)
        most = total_steps - warmup_steps
        self.decay_steps = min(total_steps // 5, most) if decay_steps is None else decay_steps
        expected = f"from 0 to {most}, the number of steps after the warm-up"
        check_that(self.decay_steps <= most, "decay_steps", expected, decay_steps)

    def share_of_peak(self, step: Tensor) -> Tensor:
        if not self.decay_steps:
            return ops.ones_like(step)
        return 1 - ops.sqrt(self.share_done(step, self.total_steps - self.decay_steps))

    def get_config(self) -> dict[str, float | bool]:
        return {**super().get_config(), "decay_steps": self.decay_steps}


SCHEDULES: Mapping[str, Callable[..., WarmupSchedule]] = {
    "linear": WarmupLinearDecay,
    "cosine": WarmupCosineDecay,
    "constant": functools.partial(WarmupStableDecay, decay_steps=0),
    "wsd": WarmupStableDecay,
}
