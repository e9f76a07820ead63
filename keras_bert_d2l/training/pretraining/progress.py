"""Progress of a pretraining run, and its evaluations."""

import dataclasses
from collections.abc import Iterator

from keras_bert_d2l.training.pretraining.budget import Budget
from keras_bert_d2l.training.run.state import Progress


@dataclasses.dataclass
class PretrainingProgress(Progress):
    """Progress of a pretraining run.

    Attributes:
        step: As for `Progress`.
        best_loss: Lowest held-out loss on rows of this length, or `None` before the first.
        best_step: The step of the checkpoint in `best/`, or `None` before the first.
        max_len: Tokens per row of the current phase, also of the held-out text.
        budget: The used part of the budget. `None` without `minutes`.
        batch_sizes: Rows per batch in each phase, which do not change with the number of devices.
    """

    best_loss: float | None = None
    best_step: int | None = None
    max_len: int | None = None
    budget: Budget | None = None
    batch_sizes: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        stored: object = self.budget
        if isinstance(stored, dict):  # from the file of the state
            self.budget = Budget(**stored)


def intervals(step: int, steps: int, every: int) -> Iterator[tuple[int, int]]:
    """Divide the remaining steps at the multiples of `every`.

    Args:
        step: Number of completed steps.
        steps: Total number of steps.
        every: Steps between evaluations.

    Yields: the length of an interval, and the number of consecutive intervals of this length.
    """
    to_next = min(-step % every, steps - step)
    left = steps - step - to_next
    for length, count in ((to_next, 1), (every, left // every), (left % every, 1)):
        if length and count:
            yield length, count
