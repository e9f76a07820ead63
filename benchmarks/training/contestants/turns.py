"""The contestant's side: read a number of steps per line and write their cost as JSON.

The first message signals that the contestant is ready. Messages use a separate pipe, because
libraries print to stdout.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable


def peak_mb_of_process() -> float:
    """Return the largest resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def take_turns(
    train: Callable[[int], float],
    answers: int,
    *,
    peak_mb: Callable[[], float] = peak_mb_of_process,
    waited: Callable[[], float] = lambda: 0.0,
    attention: str = "",
) -> None:
    """Train on request until stdin ends.

    Args:
        train: Runs a number of training steps and returns the loss of the last one, which waits
            for the steps to complete.
        answers: File descriptor for the messages.
        peak_mb: Returns the largest memory so far, in MB.
        waited: Returns the seconds that all steps so far waited for data.
        attention: How attention is computed.
    """

    def timed(num_steps: int) -> dict[str, float]:
        cpu, wall, before = time.process_time(), time.perf_counter(), waited()
        loss = train(num_steps)
        return {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
            "waited_seconds": waited() - before,
            "peak_mb": peak_mb(),
            "loss": float(loss),
            "attention": attention,
        }

    with os.fdopen(answers, "w", buffering=1) as pipe:
        print(json.dumps(timed(1)), file=pipe)
        timed(1)  # a second step may still set something up
        for line in sys.stdin:
            print(json.dumps(timed(int(line))), file=pipe)


def repeated(step: Callable[[], float]) -> Callable[[int], float]:
    """Return a function that runs a step a number of times."""

    def train(num_steps: int) -> float:
        for _ in range(num_steps):
            loss = step()
        return loss

    return train
