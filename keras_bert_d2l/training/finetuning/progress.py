"""Progress of a fine-tuning run: its epochs, the best of them, and its learning curve."""

import dataclasses
import math
from typing import cast

from keras_bert_d2l.training.run.callbacks import Metrics
from keras_bert_d2l.training.run.run_folder import LOWER_IS_BETTER
from keras_bert_d2l.training.run.state import Progress


@dataclasses.dataclass
class FinetuningProgress(Progress):
    """Progress of a fine-tuning run.

    Attributes:
        step: As for `Progress`.
        history: The metrics of each finished epoch; `None` marks a value that is not finite.
        best_epoch: The best of these epochs, counted from 1, or `None` if there is none yet.
        monitor: The metric that selects the best epoch.
        batch: Completed batches of the current epoch.
        points: The training loss within epochs, as pairs `(x, loss)`. `x` is the number of epochs
            done, including fractions, and `loss` the mean loss since the previous point.
        window: Batches of the epoch up to the last point, and their mean loss.
        warning: A warning about the predictions of the best epoch, or `None`.
    """

    history: list[Metrics] = dataclasses.field(default_factory=list)
    best_epoch: int | None = None
    monitor: str = ""
    batch: int = 0
    points: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    window: tuple[int, float] = (0, 0.0)
    warning: str | None = None

    @property
    def best(self) -> Metrics | None:
        """The metrics of the best epoch so far."""
        return None if self.best_epoch is None else self.history[self.best_epoch - 1]

    def is_over(self, epochs: int, patience: int | None) -> bool:
        """Whether all epochs are done or the last `patience` epochs brought no improvement."""
        done = len(self.history)
        waited = done - (self.best_epoch or 0)
        return done >= epochs or waited >= (patience or math.inf)

    def add_point(self, num_batches: int, mean: float) -> None:
        """Add a point to the learning curve.

        Args:
            num_batches: Batches per epoch.
            mean: Mean loss of the current epoch so far.
        """
        before, mean_before = self.window
        loss = (mean * self.batch - mean_before * before) / (self.batch - before)
        if math.isfinite(loss):
            self.points.append((len(self.history) + self.batch / num_batches, loss))
        self.window = (self.batch, mean) if math.isfinite(mean) else (self.batch, 0.0)

    def add_epoch(self, metrics: Metrics) -> bool:
        """Record the metrics of an epoch and return whether it is the best so far."""
        best = self.best
        self.history.append(metrics)
        self.batch, self.window = 0, (0, 0.0)
        if metrics[self.monitor] is None:  # not finite
            return False
        if best is not None and self._rank(metrics) <= self._rank(best):
            return False
        self.best_epoch = len(self.history)
        return True

    def _rank(self, metrics: Metrics) -> tuple[float, float]:
        """Return a key that is larger for better epochs: the monitored metric, then the loss."""
        sign = -1 if self.monitor.endswith(LOWER_IS_BETTER) else 1
        loss = metrics.get("val_loss")
        return sign * cast(float, metrics[self.monitor]), -math.inf if loss is None else -loss
