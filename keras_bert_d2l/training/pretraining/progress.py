"""Progress of a pretraining run, and a budget in time: how many steps it buys.

The budget is divided into `PARTS` equal parts. The learning rate, the length of the rows, the mask
rate and the evaluations depend on the number of used parts, as they depend on the number of steps
in a run without a budget. From one evaluation to the next, every step uses the same fraction of a
part. It follows from the time of the latest steps and evaluations, so the run ends in time on a
machine that becomes slower or faster, and all schedules remain continuous.
"""

import dataclasses
import math
from collections.abc import Iterator

from keras_bert_d2l.training.pretraining.options import PARTS
from keras_bert_d2l.training.run.state import Progress

_MAX_EVALUATIONS = 10
_EVALUATION_SHARE = 0.1  # of the time, at most


@dataclasses.dataclass
class Budget:
    """The used part of a budget, and the interval of steps until the next evaluation.

    Attributes:
        minutes: The budget.
        seconds: Time used so far, in all processes of the run.
        seconds_per_token: Time per token, with padding, of the last interval. 0: not measured.
        tokens_per_step: Tokens per step of the interval, with padding.
        evaluation: Time of an evaluation, with saving, in seconds.
        tracing: Time for tracing the steps of a phase, in seconds.
        every: Parts between evaluations.
        first_step: Step at which the interval begins.
        last_step: Step at which it ends.
        first_part: Number of parts used when it begins.
        last_part: Number of parts used when it ends.
        first_second: Time used when it begins.
        phase_end: Part at which the phase of the interval ends.
        traces: Whether it is the first interval of its phase, in which the steps are traced.
    """

    minutes: float
    seconds: float = 0.0
    seconds_per_token: float = 0.0
    tokens_per_step: float = 0.0
    evaluation: float = 0.0
    tracing: float = 0.0
    every: int = PARTS
    first_step: int = 0
    last_step: int = 0
    first_part: int = 0
    last_part: int = 0
    first_second: float = 0.0
    phase_end: int = 0
    traces: bool = False

    def used(self, step: int) -> int:
        """Return the number of parts used when the interval began or, after it, when it ended."""
        return self.first_part if step < self.last_step else self.last_part

    def parts_per_step(self) -> float:
        """Return how many parts each step of the interval uses."""
        return (self.last_part - self.first_part) / (self.last_step - self.first_step)

    def time_steps(self, num_steps: int) -> None:
        """Begin with an interval of steps to time, each of which uses one part."""
        self.last_step = self.last_part = num_steps

    def plan(
        self, seconds_per_token: float, evaluation: float, tracing: float, later_phases: int
    ) -> float:
        """End the first interval and return how many tokens the remaining time buys.

        Args:
            seconds_per_token: Time per token, without evaluations.
            evaluation: Time per evaluation, in seconds.
            tracing: Time for tracing the steps of a phase, in seconds.
            later_phases: Number of phases whose steps are not traced yet.
        """
        left = max(0.0, 60 * self.minutes - self.seconds)
        evaluations = int(_EVALUATION_SHARE * left / evaluation)
        evaluations = min(max(1, evaluations), _MAX_EVALUATIONS)
        self.every, self.seconds_per_token = math.ceil(PARTS / evaluations), seconds_per_token
        self.evaluation, self.tracing = evaluation, tracing
        self.first_step, self.first_part = self.last_step, self.last_part
        evaluations = max(evaluations, later_phases + 1)  # also at the end of each phase
        in_steps = left - evaluations * evaluation - later_phases * tracing
        return max(0.0, in_steps / seconds_per_token)

    def begin_interval(
        self,
        phase_end: int,
        later_phases: int,
        tokens_per_step: float,
        seconds_per_token: float | None = None,
    ) -> None:
        """Begin the interval to the next evaluation, or to the part at which the phase ends.

        Args:
            phase_end: Part at which the phase ends.
            later_phases: Number of phases after this one.
            tokens_per_step: Tokens per step of the phase, with padding.
            seconds_per_token: Time per token of the interval that ends, or None to keep the
                estimate.
        """
        if seconds_per_token is not None:
            num_tokens = (self.last_step - self.first_step) * self.tokens_per_step
            others = self.seconds - self.first_second - num_tokens * seconds_per_token
            others = max(0.0, others)
            if self.traces:
                self.tracing = max(0.0, others - self.evaluation)
            else:
                self.evaluation += (others - self.evaluation) / 2
            self.seconds_per_token = seconds_per_token
        self.tokens_per_step = tokens_per_step
        step = self.seconds_per_token * tokens_per_step
        # The steps of the first phase are traced when they are timed.
        self.traces = self.phase_end not in (0, phase_end)
        self.phase_end = phase_end
        left = 60 * self.minutes - self.seconds
        # Fewer evaluations, if they turn out to take longer or restarts have used the time.
        evaluations = max(1, math.ceil(_EVALUATION_SHARE * left / self.evaluation))
        self.every = max(self.every, math.ceil((PARTS - self.last_part) / evaluations))
        self.first_step, self.first_part = self.last_step, self.last_part
        self.first_second = self.seconds
        # The next multiple of `every`, but no short interval at the start or end of a phase.
        end = self.every * math.ceil((self.first_part + self.every // 2) / self.every)
        if end > phase_end - self.every // 2:
            end = phase_end
        is_last = left < step  # without time, one step is the last
        self.last_part = PARTS if is_last else end
        evaluations = max(math.ceil((PARTS - self.first_part) / self.every), later_phases + 1)
        fixed = evaluations * self.evaluation + (later_phases + self.traces) * self.tracing
        share = (self.last_part - self.first_part) / (PARTS - self.first_part)
        self.last_step += max(1, round(share * (left - fixed) / step))


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
