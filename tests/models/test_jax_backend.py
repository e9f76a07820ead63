"""The same model with the JAX backend, in one separate process."""

import keras
import numpy as np
import pytest

import keras_bert_d2l
from keras_bert_d2l import BERTAdamW, BERTConfig, BERTEncoder, BERTModel, MaskLM
from tests.jax_backend import JAX, needs_jax

pytestmark = [pytest.mark.slow, needs_jax]

VOCAB_SIZE = 50


def batch(batch_size=4, num_tokens=12, num_predictions=3):
    rng = np.random.default_rng(0)
    positions = [rng.choice(num_tokens, num_predictions, replace=False) for _ in range(batch_size)]
    arrays = {
        "tokens": rng.integers(5, VOCAB_SIZE, (batch_size, num_tokens)),
        "segments": rng.integers(0, 2, (batch_size, num_tokens)),
        "valid_lens": rng.integers(num_predictions, num_tokens + 1, batch_size),
        "pred_positions": np.sort(positions),
        "mlm_labels": rng.integers(5, VOCAB_SIZE, (batch_size, num_predictions)),
        "nsp_labels": rng.integers(0, 2, batch_size),
        "mlm_weights": rng.integers(0, 2, (batch_size, num_predictions)),
    }
    return {name: array.astype("int32") for name, array in arrays.items()}


ASK = """
from keras_bert_d2l.inference.perplexity import pseudo_perplexity
from keras_bert_d2l.inference.heads import next_sentence_score
from keras_bert_d2l.tasks.embed.predictions import embed

specials = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
words = [f"w{number}" for number in range(45)]
tokenizer = keras_bert_d2l.Tokenizer(keras_bert_d2l.Vocab([*specials, *words]))
texts = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1"]
perplexities = pseudo_perplexity(model, texts, tokenizer=tokenizer)
answers = {
    "vectors": embed(model, texts, tokenizer=tokenizer),
    "next": next_sentence_score(model, texts, texts[::-1], tokenizer=tokenizer),
    "perplexities": [one.perplexity for one in perplexities],
}
"""
UNDER_JAX = (
    """
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_bert_d2l
from tests.models.test_remat import check_same

assert keras.backend.backend() == "jax"
arrays = dict(np.load("batch.npz"))
features = {name: arrays[name] for name in ("tokens", "segments", "valid_lens", "pred_positions")}
labels = {name: arrays[f"{name}_labels"] for name in ("mlm", "nsp")}
weights = {"mlm": arrays["mlm_weights"].astype("float32"), "nsp": np.ones(4, "float32")}
config = keras_bert_d2l.BERTConfig.from_json("config.json")


def load():
    model = keras_bert_d2l.BERTModel.from_bert_config(config)
    model.load_weights("model.weights.h5")
    return model


model = load()
outputs = model.predict(features, verbose=0)
for name in ("mlm", "nsp"):
    np.testing.assert_allclose(outputs[name], arrays[name], atol=1e-5, err_msg=name)
"""
    + ASK
    + """
for name, expected in np.load("answers.npz").items():
    np.testing.assert_allclose(answers[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)

# Three steps are those of TensorFlow.
trained = load()
trained.compile(keras_bert_d2l.BERTAdamW(1e-3))
options = {"sample_weight": weights, "batch_size": 4, "epochs": 3, "verbose": 0}
losses = trained.fit(features, labels, **options).history["loss"]
assert losses[2] < losses[1] < losses[0], losses
np.testing.assert_allclose(losses, arrays["losses"], rtol=1e-5)
try:
    trained.compile(micro_batches=2)
except ValueError as error:
    assert "unless the backend is TensorFlow" in str(error)
else:
    raise AssertionError("no error")

task = keras_bert_d2l.TokenClassifier(model, ["a", "b"], dropout=0.0, tokenizer=tokenizer)
task.compile(keras_bert_d2l.BERTAdamW(1e-3))
of_words = [["a", "b", "a"], ["b"], ["a"] * 6]
history = task.fit([text.split() for text in texts], of_words, epochs=3, verbose=0)
assert history.history["loss"][2] < history.history["loss"][0]
expected = task.evaluate([text.split() for text in texts], of_words, verbose=0)
batches = (([text.split()], [labels]) for text, labels in zip(texts, of_words))
found = task.evaluate(batches, verbose=0, steps=3)
np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-5)  # metrics, which count labels

# Activation checkpointing does not change a step.
tokens = np.arange(48).reshape(3, 16)
data = (
    {"tokens": tokens, "segments": 0 * tokens, "pred_positions": tokens[:, :4] % 16},
    {"mlm": tokens[:, 4:8], "nsp": np.array([0, 1, 1])},
    {"mlm": np.ones((3, 4), "float32"), "nsp": np.ones(3, "float32")},
)
check_same(data, jit_compile=True)

# Weight decay does not change a pooler that no head reads.
lone = keras_bert_d2l.BERTModel(**{**config.to_dict(), "next_sentence": False})
lone.compile(keras_bert_d2l.BERTAdamW(1e-3))
before = keras.ops.convert_to_numpy(lone.hidden.kernel)
lone.fit(features, {"mlm": labels["mlm"]}, verbose=0)
np.testing.assert_array_equal(keras.ops.convert_to_numpy(lone.hidden.kernel), before)

# A functional model has inputs of any length, and loads.
loaded = keras.models.load_model("own.keras")
np.testing.assert_allclose(loaded(arrays["tokens"]), arrays["own"], atol=1e-5)

# Values out of range are named.
model.compile("sgd")
features["tokens"][0, 0] = 50
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(4)
for call in (
    lambda: model.predict(features, verbose=0),
    lambda: model.fit(dataset, shuffle=False, verbose=0),
    lambda: model.train_on_batch(features, labels),
    lambda: model.encoder(features["tokens"], features["segments"]),
):
    try:
        call()
    except ValueError as error:
        assert str(error).count("`tokens` must be from 0 to 49. Received: 50.") == 1
    else:
        raise AssertionError("no error")
"""
)


def test_outputs_and_steps_are_the_same_under_jax_and_tensorflow(tmp_path, fresh_process):
    config = BERTConfig.preset(
        "tiny", vocab_size=VOCAB_SIZE, max_len=16, dropout=0.0, embedding_dropout=0.0
    )
    config.to_json(tmp_path / "config.json")
    model = BERTModel.from_bert_config(config)
    model.save_weights(tmp_path / "model.weights.h5")
    arrays = batch()
    features = {
        name: arrays[name] for name in ("tokens", "segments", "valid_lens", "pred_positions")
    }
    outputs = {name: np.asarray(x) for name, x in model(features).items()}
    names = {"model": model, "keras_bert_d2l": keras_bert_d2l}
    exec(ASK, names)  # with TensorFlow
    np.savez(tmp_path / "answers.npz", **names["answers"])
    model.compile(BERTAdamW(1e-3), run_eagerly=True)
    labels = {name: arrays[f"{name}_labels"] for name in ("mlm", "nsp")}
    weights = {"mlm": arrays["mlm_weights"].astype("float32"), "nsp": np.ones(4, "float32")}
    history = model.fit(features, labels, sample_weight=weights, batch_size=4, epochs=3, verbose=0)
    tokens = keras.Input((None,), dtype="int32")
    encoder = BERTEncoder(VOCAB_SIZE, 16, 32, 2, 1, 0.0, max_len=16)
    own = keras.Model(tokens, MaskLM(VOCAB_SIZE, 16)(encoder(tokens, tokens - tokens)))
    own.save(tmp_path / "own.keras")
    arrays["own"] = own(arrays["tokens"])
    np.savez(tmp_path / "batch.npz", **arrays, **outputs, losses=history.history["loss"])
    fresh_process(UNDER_JAX, **JAX)
