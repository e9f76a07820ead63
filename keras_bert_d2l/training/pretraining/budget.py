"""A budget in time: how many steps it buys, and how much of it is used.

The budget is divided into `PARTS` equal parts. The learning rate, the length of the rows, the mask
rate and the evaluations depend on the number of used parts, as they depend on the number of steps
in a run without a budget. From one evaluation to the next, every step uses the same fraction of a
part. It follows from the time of the latest steps, so the run ends in time on a machine that
becomes slower or faster, and all schedules remain continuous.
"""

import dataclasses
import math

PARTS = 10_000
_MAX_EVALUATIONS = 10
_EVALUATION_SHARE = 0.1  # of the time, at most
# What models predict for masked words, by the product of tokens seen and weights. The measurements
# are in docs/pretraining.md.
_EXPECTATIONS = (
    (1e13, "function words only"),
    (1e16, "common phrases"),
    (math.inf, "facts of the text"),
)


@dataclasses.dataclass
class Budget:
    """The used part of a budget, and the interval of steps until the next evaluation.

    Attributes:
        minutes: The budget.
        seconds: Time used so far, in all processes of the run.
        seconds_per_step: Time per step of the last interval, with its evaluation. 0: not measured.
        every: Parts between evaluations.
        first_step: Step at which the interval begins.
        last_step: Step at which it ends.
        first_part: Number of parts used when it begins.
        last_part: Number of parts used when it ends.
        first_second: Time used when it begins.
    """

    minutes: float
    seconds: float = 0.0
    seconds_per_step: float = 0.0
    every: int = PARTS
    first_step: int = 0
    last_step: int = 0
    first_part: int = 0
    last_part: int = 0
    first_second: float = 0.0

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
        self, step_seconds: float, evaluation_seconds: float, tracing_seconds: float = 0.0
    ) -> int:
        """End the first interval and return how many steps the remaining time buys.

        Args:
            step_seconds: Time per step, without evaluations.
            evaluation_seconds: Time per evaluation.
            tracing_seconds: Time for tracing the steps of all other phases.
        """
        left = max(60 * self.minutes - self.seconds, step_seconds)
        evaluations = int(_EVALUATION_SHARE * left / evaluation_seconds)
        evaluations = min(max(1, evaluations), _MAX_EVALUATIONS)
        fixed = evaluations * evaluation_seconds + tracing_seconds
        steps = max(1, int((left - fixed) / step_seconds))
        self.every, self.seconds_per_step = PARTS // evaluations, left / steps
        self.first_step, self.first_part = self.last_step, self.last_part
        return steps

    def begin_interval(self, phase_end: int) -> None:
        """Begin the interval to the next evaluation, or to the part at which the phase ends."""
        if self.last_step > self.first_step:
            seconds = self.seconds - self.first_second
            self.seconds_per_step = seconds / (self.last_step - self.first_step)
        steps_left = (60 * self.minutes - self.seconds) / self.seconds_per_step
        self.first_step, self.first_part = self.last_step, self.last_part
        self.first_second = self.seconds
        end = min(phase_end, self.first_part - self.first_part % self.every + self.every)
        self.last_part = PARTS if steps_left < 1 else end  # without time, one step is the last
        share = (self.last_part - self.first_part) / (PARTS - self.first_part)
        self.last_step += max(1, round(share * steps_left))


def expectation(num_tokens: int, num_weights: int, minutes: float) -> list[str]:
    """Return lines that say what to expect of a model, judging by tokens times weights."""
    product = num_tokens * num_weights
    words = next(words for most, words in _EXPECTATIONS if product < most)
    lines = [f"Expect: {words}"]
    if product < (enough := _EXPECTATIONS[0][0]):
        lines.append(
            f"Warning: this is too little to use the context of a word. Give about "
            f"{math.ceil(minutes * enough / product):,} minutes, or train a smaller model."
        )
    return lines
