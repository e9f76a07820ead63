"""Keras models of one's own: which of their layers are a BERT, and which are not."""

import keras
import numpy as np
import pytest
from keras import ops

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
def test_the_shared_layers_give_the_outputs_of_the_model(nested, dtype, tmp_path):
    keras.config.set_dtype_policy(dtype)
    model = own_model(V, between=keras.layers.Dropout(0.5), nested=nested)
    bert = shared_bert(model)
    assert shared_bert(model) is bert
    assert not bert.missing_heads
    expected = model({**BATCH, "numbers": np.ones((2, 3), "int32")})
    encoded_X, mlm, nsp = bert(**BATCH)
    np.testing.assert_array_equal(mlm, expected["mlm"])
    np.testing.assert_array_equal(nsp, expected["nsp"])
    kb.save_pretrained(model, tmp_path / "own")
    loaded = kb.load_pretrained(tmp_path / "own").model
    for found, same in zip(loaded(**BATCH), (encoded_X, mlm, nsp), strict=True):
        np.testing.assert_array_equal(found, same)


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


def masked(tokens):
    """Return logits of a model that hides some tokens from the encoder."""
    encoded_X = kb.BERTEncoder(V, *SIZES)(tokens, 0 * tokens, attention_mask=tokens > 5)
    return kb.MaskLM(V, 8)(encoded_X)


def of_one_segment(*inputs):
    """Return the next-sentence output of an encoder for which all texts are first texts."""
    return kb.NextSentencePred()(kb.BERTEncoder(V, *SIZES)(*inputs)[:, 0])


def test_an_mlm_head_is_used_if_the_model_has_no_segments():
    model = keras.Model(TOKENS, kb.MaskLM(V, 8)(kb.BERTEncoder(V, *SIZES)(TOKENS)))
    bert = shared_bert(model)
    assert "mlm" not in bert.missing_heads
    every = np.arange(5)[None].repeat(2, axis=0)
    _, mlm, _ = bert(BATCH["tokens"], pred_positions=every)
    np.testing.assert_allclose(mlm, model(BATCH["tokens"]), atol=1e-6)


@pytest.mark.parametrize(
    ("head", "make"),
    [
        ("mlm", lambda: own_model(V, between=keras.layers.Dense(8))),
        ("mlm", lambda: own_model(V, between=lambda X: X + X[:, :1])),
        ("mlm", lambda: own_model(V, before=lambda tokens: ops.where(tokens == 5, 4, tokens))),
        ("nsp", lambda: keras.Model(TOKENS, of_one_segment(TOKENS, 0 * TOKENS))),
        ("nsp", lambda: keras.Model(TOKENS, of_one_segment(TOKENS))),
        ("nsp", lambda: own_model(V, first=lambda X: X[:, 1])),
        ("nsp", lambda: own_model(V, first=lambda X: keras.layers.Dense(8)(X[:, 0]))),
        ("nsp", lambda: own_model(V, first=lambda X: keras.layers.GlobalMaxPooling1D()(inputs=X))),
        ("mlm", lambda: keras.Model(TOKENS, masked(TOKENS))),
        ("mlm", lambda: Subclassed(V)),
    ],
)
def test_a_head_that_reads_something_else_is_not_used(head, make):
    bert = shared_bert(make())
    assert head in bert.missing_heads
    with pytest.raises(ValueError, match=rf"pass `BERTModel.from_layers\(encoder, {head}={head}"):
        check_head(bert, head)


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
