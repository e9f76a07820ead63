"""A seed for the weights and the dropout of a model in, the generator as it was before out."""

import contextlib
import random
from collections.abc import Iterator


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds what Keras draws the seeds of weights and dropout from, and puts it back."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
