"""Fixtures for the tests of checkpoints."""

import pytest


@pytest.fixture
def editable(checkpoint):
    """The folder of the fixture `checkpoint`, without checksums, so that its files may change."""
    (checkpoint / "SHA256SUMS").unlink()
    return checkpoint
