"""BERTAdamW compared with PyTorch's AdamW on the same tensors and gradients."""

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTAdamW

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")

NUM_STEPS = 5
SHAPES = {"kernel": (7, 5), "embeddings": (11, 3), "bias": (5,), "gamma": (3,)}
NOT_DECAYED = ("bias", "gamma")
SETTINGS = {"weight_decay": 0.1, "epsilon": 1e-6}


@pytest.fixture
def start():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype("float32") for name, shape in SHAPES.items()}


@pytest.fixture
def gradients():
    rng = np.random.default_rng(1)
    # The norms range from far below to far above the clipping norm.
    scales = np.logspace(-2, 2, NUM_STEPS)
    return [
        {name: (scale * rng.normal(size=shape)).astype("float32") for name, shape in SHAPES.items()}
        for scale in scales
    ]


def trained_by_us(start, gradients, learning_rates, clip_norm):
    weights = {name: keras.Variable(value, name=name) for name, value in start.items()}
    optimizer = BERTAdamW(clip_norm=clip_norm, **SETTINGS)
    for learning_rate, of_step in zip(learning_rates, gradients, strict=True):
        optimizer.learning_rate = learning_rate
        pairs = [(keras.ops.convert_to_tensor(of_step[name]), weights[name]) for name in weights]
        optimizer.apply_gradients(pairs)
    return {name: weight.numpy() for name, weight in weights.items()}


def trained_by_torch(start, gradients, learning_rates, clip_norm):
    weights = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in start.items()}
    groups = [
        {"params": [w for name, w in weights.items() if name not in NOT_DECAYED]},
        {"params": [weights[name] for name in NOT_DECAYED], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, weight_decay=SETTINGS["weight_decay"], eps=SETTINGS["epsilon"]
    )
    for learning_rate, of_step in zip(learning_rates, gradients, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        for name, weight in weights.items():
            weight.grad = torch.tensor(of_step[name])
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(weights.values(), clip_norm)
        optimizer.step()
    return {name: weight.detach().numpy() for name, weight in weights.items()}


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_five_training_steps_match_torch(start, gradients, clip_norm):
    learning_rates = np.linspace(0.01, 0.002, NUM_STEPS).tolist()
    ours = trained_by_us(start, gradients, learning_rates, clip_norm)
    theirs = trained_by_torch(start, gradients, learning_rates, clip_norm)
    for name in SHAPES:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-6, err_msg=name)


def test_gradient_clipping_changes_the_steps(start, gradients):
    learning_rates = [0.01] * NUM_STEPS
    free = trained_by_us(start, gradients, learning_rates, clip_norm=None)
    clipped = trained_by_us(start, gradients, learning_rates, clip_norm=1.0)
    assert np.abs(free["kernel"] - clipped["kernel"]).max() > 1e-3
