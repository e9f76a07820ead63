"""A `BERTModel` and its layers in Keras models of one's own."""

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.own_model import SIZES, Subclassed, own_model

pytestmark = pytest.mark.slow

V = 12
TOKENS = keras.Input((None,), dtype="int32")
BATCH = {
    "tokens": np.array([[2, 5, 4, 7, 3], [2, 4, 3, 0, 0]], "int32"),
    "segments": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], "int32"),
    "valid_lens": np.array([5, 3], "int32"),
    "pred_positions": np.array([[2, 3], [1, 0]], "int32"),
}


def test_a_model_around_a_bert_is_saved_and_cloned_and_its_bert_is_asked(tmp_path):
    model = own_model(V)
    batch = {**BATCH, "numbers": np.ones((2, 3), "int32")}
    expected = model(batch)
    model.save(tmp_path / "own.keras")
    loaded = keras.models.load_model(tmp_path / "own.keras")
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    for other in (loaded, cloned):
        assert other.count_params() == model.count_params()
        for name, array in other(batch).items():
            np.testing.assert_allclose(array, expected[name], atol=1e-6)
    kb.save_pretrained(loaded.get_layer("bert"), tmp_path / "bert")
    outputs = kb.load_pretrained(tmp_path / "bert").model(BATCH)
    np.testing.assert_allclose(outputs["mlm"], expected["mlm"], atol=1e-6)


def test_a_layer_of_ones_own_may_have_the_name_by_which_the_book_calls_the_pooler(tmp_path):
    bert = kb.BERTModel(V, *SIZES)
    pooled = bert.hidden(bert.encoder(TOKENS, 0 * TOKENS)[:, 0])
    model = keras.Model(TOKENS, keras.layers.Dense(3, name="hidden")(pooled))
    model.save(tmp_path / "own.keras")
    loaded = keras.models.load_model(tmp_path / "own.keras")
    np.testing.assert_array_equal(loaded(BATCH["tokens"]), model(BATCH["tokens"]))
    bert.enable_lora(2, lora_layers=["hidden"])
    assert bert.lora_layers == [bert.hidden]


def test_layers_of_a_subclassed_model_are_passed_one_by_one():
    model = Subclassed(V)
    expected = model(BATCH)
    bert = kb.BERTModel.from_layers(model.encoder, mlm=model.mlm)
    assert bert.missing_heads == {"pooler", "nsp"}
    np.testing.assert_allclose(bert(BATCH)["mlm"], expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"a Subclassed. .*`BERTModel.from_layers\(encoder\)`"):
        kb.fill_mask(model, "[MASK]")


def test_layers_of_other_sizes_options_or_kinds_are_rejected():
    encoder, other = kb.BERTEncoder(V, *SIZES), keras.layers.ReversibleEmbedding(V, 8)
    for mlm, message in (
        (kb.MaskLM(V + 1, 8), r"sizes, MaskLM\(12, 8\).*It is MaskLM\(13, 8\)"),
        (kb.MaskLM(V, 8, activation="gelu"), r"like the encoder's.*Change its \['activation'\]"),
        (kb.MaskLM(V, 8, token_embedding=other), "must be untied, or tied to the token embedding"),
    ):
        with pytest.raises(ValueError, match=message):
            kb.BERTModel.from_layers(encoder, mlm=mlm)
    with pytest.raises(ValueError, match=r"`pooler` must be Dense\(8, activation='tanh'"):
        kb.BERTModel.from_layers(encoder, pooler=keras.layers.Dense(8))
    sequential = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"`bert` must be a `BERTModel`.*from_layers\(encoder\)"):
        kb.TextEmbedder(sequential)


def test_an_encoder_alone_is_saved(tmp_path):
    encoder = kb.BERTEncoder(V, *SIZES)
    kb.save_pretrained(kb.BERTModel.from_layers(encoder), tmp_path / "a")
    assert kb.load_pretrained(tmp_path / "a").config == encoder.config
