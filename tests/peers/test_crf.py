"""The CRF, compared with pytorch-crf: loss, gradients and best sequences."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.layers.crf import CRF
from keras_bert_d2l.models.losses import CRFLoss

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
torchcrf = pytest.importorskip("torchcrf", reason="needs pytorch-crf: make test-peers")
B, W, L = 6, 20, 7


def test_loss_gradients_and_best_sequences_equal_those_of_pytorch_crf():
    rng = np.random.default_rng(0)
    ours, theirs = CRF(L), torchcrf.CRF(L, batch_first=True)
    names = {"transitions": "transitions", "start": "start_transitions", "end": "end_transitions"}
    for name, other in names.items():
        value = rng.normal(size=getattr(ours, name).shape).astype("float32")
        getattr(ours, name).assign(value)
        getattr(theirs, other).data = torch.from_numpy(value)
    emissions = rng.normal(0, 2, (B, W, L)).astype("float32")
    lens = np.array([20, 1, 2, 7, 13, 19])
    mask = np.arange(W) < lens[:, None]
    tags = rng.integers(0, L, (B, W))

    logits = torch.from_numpy(emissions).requires_grad_()
    arguments = logits, torch.from_numpy(tags), torch.from_numpy(mask)
    expected = -theirs(*arguments, reduction="token_mean")
    expected.backward()

    watched = tf.constant(emissions)
    with tf.GradientTape() as tape:
        tape.watch(watched)
        found = CRFLoss(ours)(np.where(mask, tags, -100), watched)
    gradients = tape.gradient(found, [watched, *(getattr(ours, name).value for name in names)])
    assert float(found) == pytest.approx(expected.item(), rel=1e-6)
    for gradient, other in zip(
        gradients, (logits, *(getattr(theirs, x) for x in names.values())), strict=True
    ):
        np.testing.assert_allclose(gradient, other.grad.numpy(), atol=1e-6)

    best = theirs.decode(logits, arguments[2])
    for row, path in zip(np.asarray(ours.viterbi(emissions, mask)), best, strict=True):
        assert row[: len(path)].tolist() == path
