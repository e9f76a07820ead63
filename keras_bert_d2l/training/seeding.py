"""Seed a model's initial weights and dropout without changing the global random state."""

import contextlib
import random
from collections.abc import Iterator


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generator from which Keras draws its seeds, and restore its state afterwards."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
