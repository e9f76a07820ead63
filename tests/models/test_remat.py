"""Activation checkpointing does not change a training step, including the dropout."""

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTAdamW, BERTModel
from keras_bert_d2l.layers import encoder
from keras_bert_d2l.layers.transformer import rematerialized
from keras_bert_d2l.training.devices import make_strategy


def train(data, remat, *, sizes=(60, 32, 64, 2, 2, 0.2, 16), lora=False, **options):
    """Return all variables, with the dropout seeds, after two steps from the same start."""
    keras.utils.set_random_seed(0)
    model = BERTModel(*sizes, embedding_dropout=0.1, attention_dropout=0.1)
    if lora:
        model.enable_lora(2)
    model.compile(BERTAdamW(1e-2, epsilon=1e-3), remat=remat, **{"jit_compile": False, **options})
    features, labels, weights = data
    for _ in range(2):
        model.train_on_batch(features, labels, weights)
    return [keras.ops.convert_to_numpy(x) for x in model.variables]


def check_same(data, **options):
    plain, again = (train(data, remat, **options) for remat in ("none", "blocks"))
    for one, two in zip(plain, again, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-6)


@pytest.mark.long
def test_a_step_is_the_same_with_its_dropout(make_batch, monkeypatch):
    blocks = []

    def counted(layer, X, **options):
        blocks.append(layer.name)
        return rematerialized(layer, X, **options)

    monkeypatch.setattr(encoder, "rematerialized", counted)
    check_same(make_batch(6), run_eagerly=True)
    assert set(blocks) == {"blk_0", "blk_1"}


def test_only_known_kinds_are_accepted(make_model):
    with pytest.raises(ValueError, match="`remat` must be one of 'none', 'blocks'"):
        make_model().compile(remat="all")


@pytest.mark.long
@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (6, {"micro_batches": 2}),
        (6, {"lora": True}),
        (6, {"jit_compile": True}),
        (256, {"sizes": (60, 128, 256, 2, 1, 0.2, 16)}),  # with fused functions
    ],
)
def test_a_step_is_the_same_with_other_options(rows, options, make_batch):
    check_same(make_batch(rows), **options)


@pytest.mark.long
def test_a_step_is_the_same_on_two_devices(make_batch):
    with make_strategy("mirrored").scope():
        check_same(make_batch(6))
