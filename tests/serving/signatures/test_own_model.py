"""Exports of Keras models of one's own: strings in, the outputs of the model out."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTEncoder
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from tests.own_model import MAX_LEN, SIZES, Subclassed, own_model

TEXTS = ["red [MASK] [MASK]ish", "green [MASK]", "blue " * MAX_LEN]
NUMBERS = np.array([[1, 2, 3], [-4, 5, 6], [0, 0, 1]], "int32")
# 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 [MASK], 5 red, 6 green, 7 blue
ROWS = [[2, 5, 4, 4, 1, 3, *[0] * 10], [2, 6, 4, 3, *[0] * 12], [2, *[7] * 14, 3]]
BATCH = {
    "tokens": np.array(ROWS, "int32"),
    "segments": np.zeros((3, MAX_LEN), "int32"),
    "valid_lens": np.array([6, 4, MAX_LEN], "int32"),
    "pred_positions": np.array([[2, 3], [2, 0], [0, 0]], "int32"),
    "numbers": NUMBERS,
}


def signatures(model, tokenizer, pairs=False):
    """Return the functions that would be exported, by name."""
    found = model_signatures(model, tokenizer, TextOptions(pairs, 3, None))
    return {name: signature.function for name, signature in found.items()}


def assert_close(given, expected, atol=1e-5):
    assert given.keys() == expected.keys()
    for name, array in expected.items():
        assert given[name].dtype == tf.float32
        np.testing.assert_allclose(given[name], array, atol=atol, err_msg=name)


@pytest.mark.parametrize(
    ("dtype", "atol"),
    [
        pytest.param("float32", 1e-5, marks=pytest.mark.slow),
        pytest.param("mixed_float16", 1e-2, marks=pytest.mark.long),
    ],
)
def test_an_export_answers_texts_and_numbers(dtype, atol, tokenizer, tmp_path):
    keras.config.set_dtype_policy(dtype)
    model = own_model(len(tokenizer.vocab))
    model.tokenizer = tokenizer
    folder = export_saved_model(model, tmp_path / "own")
    loaded = tf.saved_model.load(str(folder)).signatures
    assert {*loaded} == {"serving_default", "tokens", "embed"}
    answer = loaded["serving_default"](text=tf.constant(TEXTS), numbers=tf.constant(NUMBERS))
    assert answer.pop("truncated").numpy().tolist() == [False, False, True]
    expected = model.predict(BATCH, verbose=0)
    assert_close(answer, expected, atol)
    batch = {name: tf.constant(x) for name, x in BATCH.items()}
    assert_close(loaded["tokens"](**batch), expected, atol)
    for wrong in ({"tokens": batch["tokens"] + 99}, {"numbers": batch["numbers"][:1]}):
        with pytest.raises(tf.errors.InvalidArgumentError, match="`tokens` must be|same number of"):
            loaded["tokens"](**{**batch, **wrong})
    card = json.loads((folder / "model_card.json").read_text(encoding="utf-8"))
    assert card["signatures"]["serving_default"]["inputs"]["numbers"]["shape"] == [None, 3]


@pytest.mark.slow
@pytest.mark.usefixtures("eager_functions")
def test_inputs_may_have_fixed_sizes_and_a_model_around_them_renames_them(tokenizer):
    model = own_model(len(tokenizer.vocab), sizes=(MAX_LEN, 1), tokens="input_ids")
    with pytest.raises(ValueError, match=r"`model` .*an input named 'tokens'.*'input_ids'"):
        signatures(model, tokenizer)
    inputs = {x.name: keras.Input(x.shape[1:], dtype=x.dtype, name=x.name) for x in model.inputs}
    inputs["input_ids"] = keras.Input((MAX_LEN,), dtype="int32", name="tokens")
    renamed = keras.Model([*inputs.values()], model([*inputs.values()]))
    found = signatures(renamed, tokenizer)
    answer = found["serving_default"](tf.constant(TEXTS), tf.constant(NUMBERS))
    assert answer.pop("truncated").numpy().tolist() == [True, False, True]  # too many masks
    batch = {**BATCH, "pred_positions": BATCH["pred_positions"][:, :1]}
    batch["input_ids"] = batch.pop("tokens")
    assert_close(answer, model(batch))


@pytest.mark.slow
@pytest.mark.usefixtures("eager_functions")
def test_pairs_have_two_segments(tokenizer):
    model = own_model(len(tokenizer.vocab))
    answer = signatures(model, tokenizer, pairs=True)["serving_default"](
        tf.constant(["red"]), tf.constant(["blue [MASK]"]), tf.constant(NUMBERS[:1])
    )
    batch = {"tokens": [[2, 5, 3, 7, 4, 3]], "segments": [[0, 0, 0, 1, 1, 1]], "valid_lens": [6]}
    batch |= {"pred_positions": [[4]], "numbers": NUMBERS[:1]}
    batch = {name: np.array(x, "int32") for name, x in batch.items()}
    del answer["truncated"]
    assert_close(answer, model(batch))


@pytest.mark.slow
def test_models_and_names_that_cannot_be_served_are_rejected(tokenizer):
    with pytest.raises(ValueError, match="different names, other than .'text', 'text_b'"):
        signatures(own_model(len(tokenizer.vocab), numbers="text"), tokenizer)
    with pytest.raises(ValueError, match=r"functional.*Export `keras.Model\(inputs, model\(inputs"):
        signatures(Subclassed(len(tokenizer.vocab)), tokenizer)
    with pytest.raises(ValueError, match="the 10 tokens that the model was made for"):
        signatures(own_model(10), tokenizer)
    assert [*signatures(own_model(10), None)] == ["tokens"]


@pytest.mark.slow
@pytest.mark.usefixtures("eager_functions")
def test_an_attention_mask_is_made_from_the_text(tokenizer):
    names = ("tokens", "segments", "attention_mask")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    encoded_X = BERTEncoder(len(tokenizer.vocab), *SIZES)(**inputs)
    model = keras.Model(inputs, {"first": encoded_X[:, 0]})
    answer = signatures(model, tokenizer)["serving_default"](tf.constant(TEXTS))
    del answer["truncated"]
    mask = np.arange(MAX_LEN) < BATCH["valid_lens"][:, None]
    expected = model(
        {"tokens": BATCH["tokens"], "segments": BATCH["segments"], "attention_mask": mask}
    )
    assert_close(answer, expected)
