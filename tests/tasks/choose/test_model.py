"""MultipleChoice: scores of rows, strings, checks, and saving."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTAdamW, BERTModel, MultipleChoice, Tokenizer, Vocab

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] she opens the door sky".split())
RNG = np.random.default_rng(0)
BATCH = {
    "tokens": RNG.integers(0, 10, (2, 3, 6), "int32"),
    "segments": RNG.integers(0, 2, (2, 3, 6), "int32"),
    "valid_lens": RNG.integers(1, 7, (2, 3), "int32"),
}
TEXTS = {"texts": ["she opens", "the"], "choices": [["the door", "sky"], ["opens", "sky door sky"]]}


@pytest.fixture(scope="module")
def model():
    """An eager model for tests that do not train it."""
    model = make_model()
    model.compile(run_eagerly=True)
    return model


def make_model():
    keras.utils.set_random_seed(0)
    bert = BERTModel(len(VOCAB), 8, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=8)
    return MultipleChoice(bert, tokenizer=Tokenizer(VOCAB))


def test_each_row_is_scored_on_its_own(model):
    scores = model(BATCH)
    assert scores.shape == (2, 3)
    rows = {name: x.reshape(6, *x.shape[2:]) for name, x in BATCH.items()}
    np.testing.assert_allclose(model(rows), np.reshape(scores, 6), rtol=0, atol=1e-6)
    states = model({k: v for k, v in BATCH.items() if k != "valid_lens"}, return_hidden_states=True)
    assert states["output"].shape == (2, 3)
    mask = np.arange(6) < BATCH["valid_lens"][..., None]
    of_mask = model(BATCH["tokens"], BATCH["segments"], attention_mask=mask)
    np.testing.assert_allclose(of_mask, scores, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_loss_is_the_cross_entropy_of_the_choices(model):
    scores = np.asarray(model(BATCH), np.float64)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    found = model.evaluate(BATCH, np.array([2, 0]), verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(-(logs[0, 2] + logs[1, 0]) / 2, abs=1e-5)


@pytest.mark.long
def test_it_learns_from_strings():
    model = make_model()
    model.compile(BERTAdamW(1e-2), run_eagerly=True)
    model.fit(TEXTS, [0, 1], epochs=8, verbose=0)
    model.fit(tf.data.Dataset.from_tensors((TEXTS, [0, 1])).repeat(8), verbose=0)
    scores = model.predict(TEXTS, verbose=0)
    assert scores.argmax(axis=1).tolist() == [0, 1]
    tokens = model.tokenizer(["she opens"] * 2, TEXTS["choices"][0])
    np.testing.assert_allclose(scores[0], model(tokens), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (BATCH, [3, 0], "labels.*0.*2.*Received: 3"),
        ({**BATCH, "tokens": BATCH["tokens"] + 9}, [0, 0], "tokens"),
        ({**BATCH, "segments": BATCH["segments"][:, :2]}, [0, 0], "segments"),
        ({**TEXTS, "choices": [["a"], ["a", "b"]]}, [0, 0], "same number of choices"),
        ({"texts": ["a"]}, [0], "takes strings as .*choices"),
    ],
)
def test_data_out_of_range_are_rejected(model, x, y, message):
    with pytest.raises(ValueError, match=message):
        model.fit(x, np.array(y) if x is not TEXTS else y, verbose=0)


@pytest.mark.parametrize(
    ("y", "received"), [([2, 1], "2"), ([-1, 1], "-1"), (np.array([0.7, 0.2]), "0.7")]
)
def test_labels_of_strings_must_be_positions_of_choices(model, y, received):
    with pytest.raises(ValueError, match=f"`labels` must be from 0 to 1.*Received: {received}"):
        model.evaluate(TEXTS, y, verbose=0)


def test_every_text_needs_a_list_of_choices(model):
    with pytest.raises(ValueError, match=r"takes strings as .*choices=\["):
        model.preprocessor({"texts": ["she", "the"], "choices": ["door", "sky"]})
