"""Fixtures of the tests of fused functions."""

import pytest

from keras_bert_d2l.layers.kernels import fusion


@pytest.fixture
def fuse_small_tensors(monkeypatch):
    """Fuse tensors of all sizes, so that the tests can be small."""
    monkeypatch.setattr(fusion, "_MIN_SIZE", 1)
