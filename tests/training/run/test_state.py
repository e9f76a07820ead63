"""The training state holds every variable that a step changes."""

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, WarmupLinearDecay
from keras_bert_d2l.training.optimization.run_optimizer import add_gradient_norms, make_optimizer
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.training.run.state import Progress, restore_variables, save_state

CONFIG = BERTConfig(20, 8, 12, num_heads=2, num_blks=1, dropout=0.1, max_len=8)


def trained(options, steps, seed=0):
    """Return a compiled model after some steps."""
    keras.utils.set_random_seed(seed)
    model = BERTModel.from_bert_config(CONFIG, dtype=options.precision)
    options.add_lora(model)
    optimizer = make_optimizer(options, WarmupLinearDecay(1e-3, 1, 10), "float32")
    model.compile(optimizer, run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    add_gradient_norms(model.optimizer)
    tokens = np.random.default_rng(0).integers(0, 20, (2, 6), "int32")
    positions = np.array([[1, 2]] * 2)
    features = {"tokens": tokens, "segments": 0 * tokens, "pred_positions": positions}
    for _ in range(steps):
        model.train_on_batch(features, {"mlm": tokens[:, 1:3], "nsp": tokens[:, 0] % 2})
    return model


def state(model):
    return [keras.ops.convert_to_numpy(x) for x in (*model.variables, *model.optimizer.variables)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"optimizer": "adamw", "precision": "mixed_float16"},
        pytest.param({"optimizer": "muon", "precision": "mixed_bfloat16"}, marks=pytest.mark.long),
        {"optimizer": "adamw", "precision": "float32", "lora": 2, "init": "a"},
    ],
)
def test_all_variables_are_restored_bit_for_bit(given, tmp_path):
    options = PretrainingOptions(corpus="a", **given)
    run, model = RunFolder(tmp_path), trained(options, steps=1)
    save_state(run, model, model.variables, Progress(step=1), {})
    saved, other = state(model), trained(options, steps=0, seed=1)
    assert any((a != b).any() for a, b in zip(saved, state(other), strict=True))
    restore_variables(run, other, other.variables)
    for expected, found in zip(saved, state(other), strict=True):
        np.testing.assert_array_equal(found, expected)
