"""Weights under the prefix of a wrapper, in every format that names weights."""

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from keras_bert_d2l import BERTConfig
from keras_bert_d2l.checkpoints.formats import google, huggingface, state_dicts
from tests.checkpoints.small import (
    assert_same_weights,
    edit_weights,
    model_of,
    random_model,
    save_tensors,
    write_google,
)

SIZES = {"vocab_size": 11, "num_hiddens": 6, "num_heads": 2, "num_blks": 1, "max_len": 7}


def saved(format, preset, folder):
    model = random_model(BERTConfig.preset(preset, ffn_num_hiddens=10, **SIZES))
    folder.mkdir()
    format.write(model, folder, None, {})
    return model


def bare(weights):
    return {name.removeprefix("bert."): x for name, x in weights.items() if name[:5] == "bert."}


PREFIXES = "module. model. _orig_mod. module.model. bert. encoder. 0.auto_model. x.".split()


@pytest.mark.parametrize("prefix", ["", *PREFIXES])
@pytest.mark.parametrize("is_bare", [False, True])
def test_hugging_faces_weights_are_found_under_any_prefix(tmp_path, prefix, is_bare):
    folder = tmp_path / "hf"
    expected = saved(huggingface, "huggingface", folder)
    edit_weights(
        folder,
        lambda weights: {prefix + n: x for n, x in (bare(weights) if is_bare else weights).items()},
    )
    checkpoint = huggingface.describe(folder)
    model = model_of(checkpoint)
    if not prefix or (is_bare and prefix == "bert."):  # the usual names
        assert "prefix" not in checkpoint.description
    else:
        assert repr(prefix) in checkpoint.description
    assert model.missing_heads == ({"mlm", "nsp"} if is_bare else set())
    if not is_bare:
        assert_same_weights(model, expected)
    np.testing.assert_array_equal(
        model.encoder.blks[0].ffn.dense1.kernel, expected.encoder.blks[0].ffn.dense1.kernel
    )


def test_two_models_in_a_file_and_weights_outside_of_the_wrapper_are_named(tmp_path):
    folder = tmp_path / "hf"
    saved(huggingface, "huggingface", folder)
    one = safetensors.numpy.load_file(folder / "model.safetensors")
    edit_weights(folder, lambda weights: {f"{n}.{k}": weights[k] for k in weights for n in "qp"})
    with pytest.raises(ValueError, match=r"2 models, with the prefixes 'p\.', 'q\.'"):
        huggingface.describe(folder)
    outside = {"pooler.dense.weight": np.zeros((6, 6), "f4")}
    edit_weights(folder, lambda _: {f"encoder.{n}": x for n, x in bare(one).items()} | outside)
    with pytest.raises(ValueError, match=r"does not have: pooler\.dense\.weight"):
        model_of(huggingface.describe(folder))


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "net.bert."])
def test_a_state_dict_is_found_under_a_prefix(tmp_path, prefix):
    folder = tmp_path / "book"
    expected = saved(state_dicts, "d2l-torch", folder)
    name = "pretrained.safetensors"
    edit_weights(folder, lambda w: {prefix + n: x for n, x in w.items()}, name, {"num_heads": "2"})
    assert state_dicts.recognizes(folder / name)
    checkpoint = state_dicts.describe(folder / name)
    assert repr(prefix) in checkpoint.description
    assert_same_weights(model_of(checkpoint), expected)


@pytest.mark.parametrize("prefix", ["module/", "model/tower/"])
def test_googles_variables_are_found_under_a_prefix(tmp_path, prefix):
    folder = tmp_path / "google"
    expected = random_model(BERTConfig.preset("google", ffn_num_hiddens=10, **SIZES))
    write_google(expected, folder)
    reader = tf.train.load_checkpoint(str(folder / google.PREFIX))
    arrays = {prefix + n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
    arrays["global_step"] = np.int64(3)
    save_tensors(folder / google.PREFIX, arrays)
    checkpoint = google.describe(folder)
    assert repr(prefix) in checkpoint.description
    assert_same_weights(model_of(checkpoint), expected)
