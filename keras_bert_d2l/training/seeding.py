"""A random seed for a model's first weights and dropout that leaves the process unchanged."""

import contextlib
import random
from collections.abc import Iterator


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generator from which Keras draws its own seeds, and restore it afterwards."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
