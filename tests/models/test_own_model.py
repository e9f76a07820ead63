"""Keras models of one's own: which of their layers are a BERT, and which are not."""

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.models.own_model import shared_bert
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


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("nested", [False, True])
def test_the_shared_encoder_gives_the_vectors_of_the_model(nested, dtype, tmp_path):
    keras.config.set_dtype_policy(dtype)
    model = own_model(V, nested=nested)
    bert = shared_bert(model)
    assert shared_bert(model) is bert
    assert bert.missing_heads == {"mlm", "nsp", "pooler"}
    heads = {name: model.get_layer(name) for name in ("mlm", "nsp", "pooler")}
    with_heads = kb.BERTModel.from_layers(bert.encoder, **heads)
    expected = model({**BATCH, "numbers": np.ones((2, 3), "int32")})
    encoded_X, mlm, nsp = with_heads(**BATCH)
    np.testing.assert_array_equal(mlm, expected["mlm"])
    np.testing.assert_array_equal(nsp, expected["nsp"])
    kb.save_pretrained(model, tmp_path / "own")
    loaded = kb.load_pretrained(tmp_path / "own").model
    np.testing.assert_array_equal(loaded(**BATCH)[0], encoded_X)


def test_a_bert_in_a_model_is_used_with_its_heads():
    bert = kb.BERTModel(V, *SIZES)
    bert.missing_heads = {"mlm"}
    inputs = {name: keras.Input(x.shape[1:], name=name) for name, x in BATCH.items()}
    model = keras.Model(inputs, keras.layers.Dense(3)(bert(inputs)["nsp"]))
    assert shared_bert(model).usable_heads == bert.usable_heads
    task = kb.SequenceClassifier(model, ["a", "b"])
    assert (task.encoder, task.hidden) == (bert.encoder, bert.hidden)


def test_a_layer_of_ones_own_may_have_the_name_by_which_the_book_calls_the_pooler(tmp_path):
    bert = kb.BERTModel(V, *SIZES)
    pooled = bert.hidden(bert.encoder(TOKENS, 0 * TOKENS)[:, 0])
    model = keras.Model(TOKENS, keras.layers.Dense(3, name="hidden")(pooled))
    model.save(tmp_path / "own.keras")
    loaded = keras.models.load_model(tmp_path / "own.keras")
    np.testing.assert_array_equal(loaded(BATCH["tokens"]), model(BATCH["tokens"]))
    bert.enable_lora(2, lora_layers=["hidden"])
    assert bert.lora_layers == [bert.hidden]


def test_heads_of_ones_own_are_passed_one_by_one():
    with pytest.raises(ValueError, match=r"pass `BERTModel.from_layers\(encoder, mlm=mlm"):
        check_head(shared_bert(own_model(V)), "mlm")


def test_layers_of_a_subclassed_model_are_passed_one_by_one():
    model = Subclassed(V)
    expected = model(BATCH)
    bert = kb.BERTModel.from_layers(model.encoder, mlm=model.mlm)
    assert bert.missing_heads == {"pooler", "nsp"}
    np.testing.assert_allclose(bert(BATCH)["mlm"], expected, atol=1e-6)
    two_encoders = Subclassed(V)
    two_encoders.second = kb.BERTEncoder(V, *SIZES)
    with pytest.raises(ValueError, match=r"a Subclassed. .*`BERTModel.from_layers\(encoder\)`"):
        kb.fill_mask(two_encoders, "[MASK]")


def test_layers_of_other_sizes_or_kinds_are_rejected():
    encoder = kb.BERTEncoder(V, *SIZES)
    with pytest.raises(ValueError, match=r"sizes, MaskLM\(12, 8\).*It is MaskLM\(13, 8\)"):
        kb.BERTModel.from_layers(encoder, mlm=kb.MaskLM(V + 1, 8))
    with pytest.raises(ValueError, match=r"`pooler` must be Dense\(8, activation='tanh'"):
        kb.BERTModel.from_layers(encoder, pooler=keras.layers.Dense(8))
    sequential = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"`bert` must be a `BERTModel`.*from_layers\(encoder\)"):
        kb.TextEmbedder(sequential)
    with pytest.raises(ValueError, match=r"a Sequential. Load .*from_layers\(encoder\)"):
        kb.save_pretrained(sequential, "a")


def test_a_head_with_other_options_predicts_but_is_not_saved(tmp_path):
    encoder = kb.BERTEncoder(V, *SIZES)
    other = keras.layers.ReversibleEmbedding(V, 8)
    heads = {"'activation'": {"activation": "gelu"}, "token_embedding": {"token_embedding": other}}
    for option, options in heads.items():
        bert = kb.BERTModel.from_layers(encoder, mlm=kb.MaskLM(V, 8, **options))
        assert bert(BATCH)["mlm"].shape == (2, 2, V)
        for save in (bert.get_config, lambda bert=bert: kb.save_pretrained(bert, tmp_path / "a")):
            with pytest.raises(ValueError, match=f"different .*{option}"):
                save()
    kb.save_pretrained(kb.BERTModel.from_layers(encoder), tmp_path / "a")
    assert kb.load_pretrained(tmp_path / "a").config == encoder.config
