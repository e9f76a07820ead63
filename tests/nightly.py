"""Parameters of a test of which `make test` runs some, and `make test-all` all."""

from collections.abc import Collection, Iterable

import pytest


def nightly_except(daily: Collection[object], values: Iterable[object]) -> list[object]:
    """Mark the values that are not in `daily` as `long`."""
    return [v if v in daily else pytest.param(v, marks=pytest.mark.long) for v in values]
