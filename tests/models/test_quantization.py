"""`quantize` keeps the outputs within the error of 8-bit integers, and `.keras` files keep it."""

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, resize_positions, save_pretrained
from keras_bert_d2l.contract.task import task_kinds
from tests.nightly import nightly_except

TASKS = task_kinds()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("few_objects_to_collect"),
    # Keras warns for every kind of layer that it does not quantize.
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method"),
]

SIZES = {
    "vocab_size": 100,
    "max_len": 16,
    "num_blks": 1,
    "num_hiddens": 32,
    "ffn_num_hiddens": 64,
    "num_heads": 2,
}


def make_bert(preset="google", dtype="float32"):
    return BERTModel.from_bert_config(BERTConfig.preset(preset, **SIZES), dtype=dtype)


def make_batch():
    tokens = np.random.default_rng(0).integers(1, 100, (3, 8))
    batch = {"tokens": tokens, "segments": np.zeros_like(tokens)}
    return {**batch, "valid_lens": np.array([8, 5, 8]), "pred_positions": tokens[:, :2] % 8}


def outputs_of(model):
    batch = {name: x for name, x in make_batch().items() if name != "pred_positions"}
    outputs = model(make_batch() if isinstance(model, BERTModel) else batch)
    numbers = keras.tree.flatten(outputs)
    return [keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in numbers]


@pytest.mark.parametrize("dtype", nightly_except({"float32"}, ["float32", "mixed_bfloat16"]))
@pytest.mark.parametrize("preset", nightly_except({"google"}, ["google", "d2l", "codertimo"]))
def test_an_int8_model_keeps_its_logits_also_in_a_keras_file(preset, dtype, tmp_path):
    model = make_bert(preset, dtype)
    before = outputs_of(model)
    model.quantize("int8")
    after = outputs_of(model)
    for logits, quantized in zip(before, after, strict=True):
        assert 0 < np.abs(quantized - logits).max() < 0.3 * logits.std()
    for _ in range(2):  # a loaded model can be saved again
        model.save(tmp_path / "model.keras")
        model = keras.models.load_model(tmp_path / "model.keras")
        for one, other in zip(outputs_of(model), after, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", nightly_except({"SequenceClassifier"}, TASKS))
def test_a_keras_file_keeps_the_quantization_of_a_task_model(kind, tmp_path):
    names = ["a", "b"][: 1 if TASKS[kind].ranks else 2]
    labels = {"labels": names} if "labels" in TASKS[kind].fields else {}
    model = TASKS[kind](make_bert(dtype="mixed_bfloat16"), **labels)
    model.freeze_encoder(1)
    model.quantize("int8")
    model.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    assert loaded.quantized_policies == model.quantized_policies
    for one, other in zip(outputs_of(loaded), outputs_of(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_float_weights_of_a_quantized_model_are_refused(tmp_path):
    model = make_bert()
    model.quantize("int8")
    with pytest.raises(ValueError, match="quantized model has no float weights.*model.keras"):
        save_pretrained(model, tmp_path / "model")
    with pytest.raises(ValueError, match="quantized model has no float weights"):
        resize_positions(model, 32)
    assert not (tmp_path / "model").exists()
