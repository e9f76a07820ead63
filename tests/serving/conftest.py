"""A small exported model, requests to each of its signatures, and what they have to be answered."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.export import export_saved_model
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

WORDS = ("red", "green", "blue", "##ish")
MAX_LEN = 24
TOP_K = 3
SMALL = {
    "num_hiddens": 8,
    "ffn_num_hiddens": 16,
    "num_heads": 2,
    "num_blks": 2,
    "dropout": 0.5,
    "max_len": MAX_LEN,
}
TEXTS = (
    "red [MASK]",
    "",
    "[MASK] blue [MASK]ish green",
    "Reddish, green",
    "Ünïcödé 日本 🙂\tblue [SEP] \x7f",
    "red green " * 12 + "[MASK]",
)
TOLERANCE = 1e-5


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


@pytest.fixture(scope="session")
def make_model():
    """A function: fields of the configuration in, a model with scores far apart out."""

    def make_model(dtype="float32", **fields):
        keras.utils.set_random_seed(1)
        fields = {**SMALL, **fields}
        config = BERTConfig(len(GOOGLE_SPECIALS) + len(WORDS), **fields)
        model = BERTModel.from_bert_config(config, dtype=dtype)
        kernel = model.mlm.mlp.layers[-1].kernel
        kernel.assign(keras.random.normal(kernel.shape))
        return model

    return make_model


@pytest.fixture(scope="session")
def model(make_model):
    model = make_model()
    model.compile(optimizer="adam")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="session")
def exported(model, tokenizer, tmp_path_factory):
    """The folder of an exported version."""
    path = tmp_path_factory.mktemp("saved_models") / "demo"
    return export_saved_model(model, path, tokenizer, top_k=TOP_K)


@pytest.fixture(scope="session")
def served(exported):
    """A function: signature and arguments in, arrays out."""
    loaded = tf.saved_model.load(str(exported))

    def ask(signature, **arguments):
        tensors = {name: tf.constant(argument) for name, argument in arguments.items()}
        return {k: v.numpy() for k, v in loaded.signatures[signature](**tensors).items()}

    return ask


@pytest.fixture(scope="session")
def requests(tokenizer):
    """Requests to every signature, in several batch sizes: (signature, arrays by name)."""
    batches = [as_array(TEXTS), as_array([]), *(as_array([text]) for text in TEXTS[:3])]
    requests = []
    for text in batches:
        for signature in ("serving_default", "embed", "fill_mask"):
            requests.append((signature, {"text": text}))
        requests.append(("nsp", {"text": text, "text_b": text[::-1]}))
        requests.append(("tf_example", {"examples": as_examples(text)}))
        tokens = {name: tensor.numpy() for name, tensor in batch_of(tokenizer, text).items()}
        for num_predictions in (0, 2):
            positions = np.tile(np.int32([1, 0]), (len(text), 1))[:, :num_predictions]
            requests.append(("tokens", {**tokens, "pred_positions": positions}))
    return requests


@pytest.fixture(scope="session")
def expected(model, tokenizer, requests):
    """The answers to `requests`, of the model itself."""
    return [answer(model, tokenizer, *request) for request in requests]


@pytest.fixture(scope="session")
def requests_file(requests, tmp_path_factory):
    """The requests as tests/serving/ask.py reads them."""
    written = [
        [signature, {name: as_json(array) for name, array in inputs.items()}]
        for signature, inputs in requests
    ]
    path = tmp_path_factory.mktemp("requests") / "requests.json"
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def assert_answers(requests, expected):
    """A function that compares answers with `expected` and prints the largest differences."""

    def assert_answers(answers, title):
        differences = dict.fromkeys((signature for signature, _ in requests), 0.0)
        for (signature, _), given, right in zip(requests, answers, expected, strict=True):
            assert given.keys() == right.keys(), signature
            for name, array in right.items():
                assert given[name].shape == array.shape, (signature, name)
                if array.dtype != np.float32:
                    np.testing.assert_array_equal(given[name], array, f"{signature} {name}")
                elif array.size:
                    difference = float(np.abs(given[name] - array).max())
                    assert difference <= TOLERANCE, (signature, name, difference)
                    differences[signature] = max(differences[signature], difference)
        print(title, {name: f"{value:.1e}" for name, value in differences.items()})

    return assert_answers


def as_array(texts):
    return np.array([text.encode() for text in texts], object)


def as_examples(texts):
    return np.array([example(text).SerializeToString() for text in texts], object)


def example(text):
    value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
    return tf.train.Example(features=tf.train.Features(feature={"text": value}))


def as_json(array):
    values = array.ravel().tolist()
    if array.dtype != object:
        return [array.dtype.name, array.shape, values]
    return ["string", array.shape, [value.decode("latin-1") for value in values]]


def batch_of(tokenizer, text, text_b=None):
    """Rows that all are as long as the model allows: not what the signatures make."""
    pair = None if text_b is None else tf.constant(text_b, tf.string)
    return tokenizer(tf.constant(text, tf.string), pair, max_len=MAX_LEN)


def answer(model, tokenizer, signature, inputs):
    """A twin of the signatures, in NumPy from the logits on."""
    if signature == "tokens":
        encoded, mlm_logits, nsp_logits = (tensor.numpy() for tensor in model(**inputs))
        pooled = model.hidden(encoded[:, 0]).numpy()
        outputs = {"encoded": encoded, "mlm_logits": mlm_logits, "nsp_logits": nsp_logits}
        return {**outputs, "pooled": pooled}
    if signature == "tf_example":
        features = [tf.train.Example.FromString(bytes_) for bytes_ in inputs["examples"]]
        texts = [feature.features.feature["text"].bytes_list.value[0] for feature in features]
        inputs = {"text": np.array(texts, object)}
    text, text_b = inputs["text"], inputs.get("text_b")
    batch = {name: tensor.numpy() for name, tensor in batch_of(tokenizer, text, text_b).items()}
    truncated = needed(tokenizer, text, text_b) > MAX_LEN
    if signature == "fill_mask":
        return {**filled(model, tokenizer, batch), "truncated": truncated}
    encoded, _, nsp_logits = model(**batch)
    encoded, lengths = encoded.numpy(), batch["valid_lens"]
    means = [row[:length].mean(axis=0) for row, length in zip(encoded, lengths, strict=True)]
    outputs = {
        "embedding": np.float32(means).reshape(len(text), encoded.shape[2]),
        "nsp": softmax(nsp_logits.numpy()),
        "pooled": model.hidden(encoded[:, 0]).numpy(),
    }
    kept = {"embed": ("embedding",), "nsp": ("nsp",)}.get(signature, tuple(outputs))
    return {"truncated": truncated, **{name: outputs[name] for name in kept}}


def needed(tokenizer, text, text_b):
    """Tokens that each row would have, if all had room."""
    lengths = tokenizer.tokenize(text).row_lengths().numpy() + 2
    return lengths if text_b is None else lengths + tokenizer.tokenize(text_b).row_lengths() + 1


def filled(model, tokenizer, batch):
    masks = [np.flatnonzero(row == tokenizer.vocab.mask_id) for row in batch["tokens"]]
    shape = (len(masks), max(map(len, masks), default=0))
    positions = np.zeros(shape, np.int32)
    for row, places in enumerate(masks):
        positions[row, : len(places)] = places
    probabilities = softmax(model(**batch, pred_positions=positions)[1].numpy())
    ids = np.argsort(-probabilities, axis=-1)[..., :TOP_K].astype(np.int32)
    scores = np.take_along_axis(probabilities, ids, axis=-1)
    tokens = np.array([token.encode() for token in tokenizer.vocab.tokens])[ids]
    is_there = (positions > 0)[..., None]
    return {
        "tokens": np.where(is_there, tokens, b""),
        "scores": np.where(is_there, scores, np.float32(0)),
        "ids": np.where(is_there, ids, np.int32(0)),
        "positions": positions,
    }


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
