"""A contestant's side of the contest: a number of steps comes in on a line, their cost goes out.

The first line out, before any comes in, says that the contestant is ready. Lines out are JSON and
go to a pipe of their own, since libraries print to stdout what they like.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable


def take_turns(step: Callable[[], float], answers: int) -> None:
    """Runs steps on demand until stdin ends.

    Args:
        step: One whole training step; returns its loss, so that it has ended when it returns.
        answers: File descriptor that the lines go to.
    """
    with os.fdopen(answers, "w", buffering=1) as pipe:
        print(json.dumps(_timed(step, 1)), file=pipe)
        _timed(step, 1)  # whatever a second step still sets up
        for line in sys.stdin:
            print(json.dumps(_timed(step, int(line))), file=pipe)


def _timed(step: Callable[[], float], num_steps: int) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(num_steps):
        loss = step()
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "loss": float(loss),
    }
