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


def take_turns(step: Callable[[], float], answers: int) -> None:
    """Run steps on request until stdin ends.

    Args:
        step: Runs one training step and returns its loss, which waits for the step to complete.
        answers: File descriptor for the messages.
    """
    with os.fdopen(answers, "w", buffering=1) as pipe:
        print(json.dumps(_timed(step, 1)), file=pipe)
        _timed(step, 1)  # a second step may still set something up
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
