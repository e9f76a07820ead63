"""The losses of `distill` equal those of a PyTorch training loop."""

import numpy as np
import pytest

from keras_bert_d2l.models.losses import WeightedBinaryCrossEntropy, WeightedCrossEntropy
from keras_bert_d2l.training.distillation.distill import SoftLabelLoss, hidden_loss

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
functional = torch.nn.functional


@pytest.mark.parametrize("temperature", [1.0, 2.0, 8.0])
def test_soft_labels_have_the_loss_and_the_gradient_of_pytorch(temperature):
    import tensorflow as tf

    rng = np.random.default_rng(0)
    teacher, student = rng.normal(0, 3, (2, 6, 5)).astype("float32")
    theirs = torch.tensor(student, requires_grad=True)
    soft = functional.kl_div(
        functional.log_softmax(theirs / temperature, -1),
        functional.softmax(torch.tensor(teacher) / temperature, -1),
        reduction="batchmean",
    )
    soft = soft * temperature**2
    soft.backward()
    ours = tf.Variable(student)
    with tf.GradientTape() as tape:
        loss = SoftLabelLoss(WeightedCrossEntropy, temperature)(teacher, ours)
    assert float(loss) == pytest.approx(soft.item(), rel=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, ours), theirs.grad, atol=1e-6)


def test_independent_labels_have_the_gradient_of_pytorch():
    import tensorflow as tf

    teacher, student = np.random.default_rng(0).normal(0, 3, (2, 6, 5)).astype("float32")
    theirs = torch.tensor(student, requires_grad=True)
    target = torch.sigmoid(torch.tensor(teacher) / 2)
    (4 * functional.binary_cross_entropy_with_logits(theirs / 2, target)).backward()
    ours = tf.Variable(student)
    with tf.GradientTape() as tape:
        loss = SoftLabelLoss(WeightedBinaryCrossEntropy, 2.0)(teacher, ours)
    np.testing.assert_allclose(tape.gradient(loss, ours), theirs.grad, atol=1e-6)


def test_hidden_states_have_the_squared_error_of_pytorch():
    teacher, student = np.random.default_rng(0).normal(size=(2, 3, 4, 8)).astype("float32")
    expected = functional.mse_loss(torch.tensor(student), torch.tensor(teacher))
    assert float(hidden_loss(teacher, student, None)) == pytest.approx(expected.item(), rel=1e-5)
