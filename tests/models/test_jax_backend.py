"""The same model with the JAX backend, in a separate process."""

import importlib.util

import numpy as np
import pytest

from keras_bert_d2l import BERTAdamW, BERTConfig, BERTModel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None,
        reason='needs JAX: pip install "keras-bert-d2l[jax]", or make test-peers',
    ),
]

JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
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


@pytest.fixture
def files(tmp_path):
    """Write config, weights, a batch, its outputs and the losses of three TensorFlow steps."""
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
    outputs = model.predict(features, verbose=0)
    model.compile(BERTAdamW(1e-3))
    labels = {name: arrays[f"{name}_labels"] for name in ("mlm", "nsp")}
    weights = {"mlm": arrays["mlm_weights"].astype("float32"), "nsp": np.ones(4, "float32")}
    history = model.fit(features, labels, sample_weight=weights, batch_size=4, epochs=3, verbose=0)
    losses = history.history["loss"]
    np.savez(
        tmp_path / "batch.npz", **arrays, mlm=outputs["mlm"], nsp=outputs["nsp"], losses=losses
    )
    return tmp_path


LOAD = """
import sys
import keras
import numpy as np
import keras_bert_d2l

folder = sys.argv[1]
arrays = dict(np.load(f"{folder}/batch.npz"))
features = {name: arrays[name] for name in ("tokens", "segments", "valid_lens", "pred_positions")}
config = keras_bert_d2l.BERTConfig.from_json(f"{folder}/config.json")
model = keras_bert_d2l.BERTModel.from_bert_config(config)
model.load_weights(f"{folder}/model.weights.h5")
assert keras.backend.backend() == "jax"
"""


def test_outputs_are_the_same_under_jax_and_tensorflow(files, fresh_process):
    fresh_process(
        LOAD
        + """
outputs = model.predict(features, verbose=0)
for name in ("mlm", "nsp"):
    np.testing.assert_allclose(outputs[name], arrays[name], atol=1e-5, err_msg=name)
""",
        files,
        **JAX,
    )


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_three_training_steps_are_the_same_under_jax_and_tensorflow(
    files, fresh_process, micro_batches
):
    fresh_process(
        LOAD
        + """
labels = {name: arrays[f"{name}_labels"] for name in ("mlm", "nsp")}
weights = {"mlm": arrays["mlm_weights"].astype("float32"), "nsp": np.ones(4, "float32")}
model.compile(keras_bert_d2l.BERTAdamW(1e-3), micro_batches=int(sys.argv[2]))
history = model.fit(features, labels, sample_weight=weights, batch_size=4, epochs=3, verbose=0)
losses = history.history["loss"]
assert losses[2] < losses[1] < losses[0], losses
np.testing.assert_allclose(losses, arrays["losses"], rtol=1e-5)
""",
        files,
        micro_batches,
        **JAX,
    )


def test_values_out_of_range_are_named_under_jax(files, fresh_process):
    said = fresh_process(
        LOAD
        + """
import tensorflow as tf
labels = {name: arrays[f"{name}_labels"] for name in ("mlm", "nsp")}
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
        print(str(error).count("`tokens` must be from 0 to 49. Received: 50."))
""",
        files,
        **JAX,
    )
    assert said.split() == ["1"] * 4


ASK = """
specials = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
words = [f"w{number}" for number in range(VOCAB_SIZE - 5)]
tokenizer = keras_bert_d2l.Tokenizer(keras_bert_d2l.Vocab([*specials, *words]))
texts = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1"]
answers = {
    "vectors": embed(model, texts, tokenizer=tokenizer),
    "next": next_sentence_score(model, texts, texts[::-1], tokenizer=tokenizer),
    "perplexities": [
        one.perplexity for one in pseudo_perplexity(model, texts, tokenizer=tokenizer)
    ],
}
"""
IMPORTS = """
import keras_bert_d2l
from keras_bert_d2l.tasks.embed.predictions import embed
from keras_bert_d2l.inference.pretraining.perplexity import pseudo_perplexity
from keras_bert_d2l.inference.pretraining.sentence_pairs import next_sentence_score
"""


def test_inference_on_strings_and_task_training_work_under_jax(files, fresh_process):
    names = {"model": BERTModel.from_bert_config(BERTConfig.from_json(files / "config.json"))}
    names["model"].load_weights(files / "model.weights.h5")
    names["VOCAB_SIZE"] = VOCAB_SIZE
    exec(IMPORTS + ASK, names)  # with TensorFlow
    np.savez(files / "answers.npz", **names["answers"])
    fresh_process(
        f"VOCAB_SIZE = {VOCAB_SIZE}"
        + LOAD
        + IMPORTS
        + ASK
        + """
for name, expected in np.load(f"{folder}/answers.npz").items():
    np.testing.assert_allclose(answers[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
task = keras_bert_d2l.TokenClassifier(model, ["a", "b"], dropout=0.0, tokenizer=tokenizer)
task.compile(keras_bert_d2l.BERTAdamW(1e-3))
labels = [["a", "b", "a"], ["b"], ["a"] * 6]
history = task.fit([text.split() for text in texts], labels, epochs=3, verbose=0)
assert history.history["loss"][2] < history.history["loss"][0]
""",
        files,
        **JAX,
    )
