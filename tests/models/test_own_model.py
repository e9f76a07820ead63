"""Keras models of one's own: which of their layers are a BERT, and which are not."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.checks import check_head
from keras_bert_d2l.models.own_model import shared_bert
from tests.own_model import MAX_LEN, SIZES, Subclassed, own_inputs, own_model, randomized

pytestmark = pytest.mark.slow

V = 12
BATCH = {
    "tokens": np.array([[2, 5, 4, 7, 3], [2, 4, 3, 0, 0]], "int32"),
    "segments": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], "int32"),
    "valid_lens": np.array([5, 3], "int32"),
    "pred_positions": np.array([[2, 3], [1, 0]], "int32"),
}
NUMBERS = {"numbers": np.ones((2, 3), "float32")}


def nested(vocab_size):
    """A model in which another model contains the encoder."""
    inputs = own_inputs()
    del inputs["numbers"]
    encoder = kb.BERTEncoder(vocab_size, **SIZES, max_len=MAX_LEN)
    features = [inputs[name] for name in ("tokens", "segments", "valid_lens")]
    backbone = keras.Model(features, encoder(*features))
    encoded_X = keras.layers.Dropout(0.5)(backbone(features))
    mlm = kb.MaskLM(vocab_size, 8, mlm_head="linear")(encoded_X, inputs["pred_positions"])
    nsp = kb.NextSentencePred()(encoded_X[:, 0, :])
    return randomized(keras.Model(inputs, {"mlm": mlm, "nsp": nsp}))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("make", [own_model, nested])
def test_the_shared_layers_give_the_outputs_of_the_model(make, dtype):
    keras.config.set_dtype_policy(dtype)
    model = make(V)
    bert = shared_bert(model)
    assert shared_bert(model) is bert
    assert not bert.missing_heads
    expected = model({name: x for name, x in {**BATCH, **NUMBERS}.items() if name in model.input})
    encoded_X, mlm, nsp = bert(**BATCH)
    assert encoded_X.dtype == bert.compute_dtype
    np.testing.assert_array_equal(mlm, expected["mlm"])
    np.testing.assert_array_equal(nsp, expected["nsp"])


def test_a_bert_in_a_model_is_used_with_its_heads():
    bert = kb.BERTModel(V, **SIZES, max_len=MAX_LEN)
    bert.missing_heads = {"nsp"}
    inputs = {name: x for name, x in own_inputs().items() if name != "numbers"}
    model = keras.Model(inputs, keras.layers.Dense(3)(bert(inputs)["nsp"]))
    shared = shared_bert(model)
    assert shared.encoder is bert.encoder
    assert shared.usable_heads == bert.usable_heads
    task = kb.SequenceClassifier(model, ["a", "b"])
    assert task.encoder is bert.encoder
    assert task.hidden is bert.hidden


def hidden_states(vocab_size):
    inputs = own_inputs()
    encoder = kb.BERTEncoder(vocab_size, **SIZES, max_len=MAX_LEN)
    hidden = encoder(inputs["tokens"], inputs["segments"], return_hidden_states=True)
    return keras.Model(inputs, kb.MaskLM(vocab_size, 8)(hidden["hidden_states"][0]))


def two_heads(vocab_size):
    model = own_model(vocab_size)
    other = kb.MaskLM(vocab_size, 8)(model.get_layer("encoder").output)
    return keras.Model(model.input, [model.output, other])


def masked(vocab_size):
    inputs = own_inputs()
    encoder = kb.BERTEncoder(vocab_size, **SIZES, max_len=MAX_LEN)
    is_known = inputs["tokens"] > 5
    encoded_X = encoder(inputs["tokens"], inputs["segments"], attention_mask=is_known)
    return keras.Model(inputs, kb.MaskLM(vocab_size, 8)(encoded_X))


@pytest.mark.parametrize(
    "make",
    [
        lambda: own_model(V, between=keras.layers.Dense(8)),
        lambda: own_model(V, before=lambda tokens: ops.where(tokens == 5, 4, tokens)),
        lambda: hidden_states(V),
        lambda: two_heads(V),
        lambda: masked(V),
        lambda: Subclassed(V),
    ],
)
def test_a_head_that_reads_something_else_is_not_used(make):
    bert = shared_bert(make())
    assert "mlm" in bert.missing_heads
    with pytest.raises(ValueError, match=r"pass `BERTModel.from_layers\(encoder, mlm=mlm\)`"):
        check_head(bert, "mlm")


def test_a_next_sentence_head_needs_the_first_token_or_a_pooler():
    for read in (
        lambda X: X[:, 1],
        lambda X: ops.mean(X, axis=1),
        lambda X: keras.layers.Dense(8)(X[:, 0]),
        lambda X: X[:, 0] + X[:, 1],
    ):
        inputs = own_inputs()
        encoder = kb.BERTEncoder(V, **SIZES, max_len=MAX_LEN)
        encoded_X = encoder(inputs["tokens"], inputs["segments"])
        bert = shared_bert(keras.Model(inputs, kb.NextSentencePred()(read(encoded_X))))
        assert "nsp" in bert.missing_heads


def test_layers_of_a_subclassed_model_are_passed_one_by_one():
    model = Subclassed(V)
    expected = model(BATCH)
    bert = kb.BERTModel.from_layers(model.encoder, mlm=model.mlm)
    assert bert.missing_heads == {"pooler", "nsp"}
    np.testing.assert_allclose(bert(BATCH)["mlm"], expected, atol=1e-6)
    two_encoders = Subclassed(V)
    two_encoders.second = kb.BERTEncoder(V, **SIZES, max_len=MAX_LEN)
    with pytest.raises(ValueError, match=r"a Subclassed; pass `BERTModel.from_layers\(enc"):
        kb.fill_mask(two_encoders, "[MASK]")


def test_layers_of_other_sizes_or_kinds_are_rejected():
    encoder = kb.BERTEncoder(V, **SIZES)
    with pytest.raises(ValueError, match=r"sizes, MaskLM\(12, 8\)"):
        kb.BERTModel.from_layers(encoder, mlm=kb.MaskLM(V + 1, 8))
    with pytest.raises(ValueError, match=r"`pooler` must be Dense\(8, activation='tanh'"):
        kb.BERTModel.from_layers(encoder, pooler=keras.layers.Dense(8))
    with pytest.raises(ValueError, match="`encoder` must be a `BERTEncoder`"):
        kb.BERTModel.from_layers(Subclassed(V))
    with pytest.raises(ValueError, match=r"`bert` must be a `BERTModel`.*from_layers\(encoder\)"):
        kb.TextEmbedder(keras.Sequential([keras.layers.Dense(2)]))


def test_a_head_with_other_options_predicts_but_is_not_saved(tmp_path):
    encoder = kb.BERTEncoder(V, **SIZES)
    bert = kb.BERTModel.from_layers(encoder, mlm=kb.MaskLM(V, 8, activation="gelu"))
    assert bert(BATCH, training=False)["mlm"].shape == (2, 2, V)
    for save in (bert.get_config, lambda: kb.save_pretrained(bert, tmp_path / "a")):
        with pytest.raises(ValueError, match=r"different \['activation'\]. Create"):
            save()
    other = keras.layers.ReversibleEmbedding(V, 8)
    tied = kb.BERTModel.from_layers(encoder, mlm=kb.MaskLM(V, 8, token_embedding=other))
    with pytest.raises(ValueError, match="different token_embedding"):
        kb.save_pretrained(tied, tmp_path / "a")
    kb.save_pretrained(kb.BERTModel.from_layers(encoder), tmp_path / "a")
    assert kb.load_pretrained(tmp_path / "a").config == encoder.config
