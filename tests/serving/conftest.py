"""Small models of each kind and their exported versions."""

import json

import keras
import pytest
import tensorflow as tf
import urllib3

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.serving.server.served_model import ServedModel
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
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
PAIRS = "pairs of any labels"  # name of the pair model in `task_models`
HTTP_SECONDS = 60


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


@pytest.fixture(scope="session")
def make_model():
    """A function that builds a model with distinct scores from config fields."""

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
    return export_saved_model(model, path, tokenizer=tokenizer, top_k=TOP_K)


@pytest.fixture(scope="session")
def served(exported):
    """A function that calls a signature of the exported model."""
    loaded = tf.saved_model.load(str(exported))

    def ask(signature, **arguments):
        tensors = {name: tf.constant(argument) for name, argument in arguments.items()}
        return {k: v.numpy() for k, v in loaded.signatures[signature](**tensors).items()}

    return ask


@pytest.fixture(scope="session")
def http():
    """A function that returns the status and JSON of a response and fails on NaN or Infinity."""
    with urllib3.PoolManager(retries=False, timeout=HTTP_SECONDS, maxsize=8) as pool:

        def http(url, body=None):
            method = "GET" if body is None else "POST"
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            reply = pool.request(method, url, body=data)
            assert reply.headers["content-type"] == "application/json"
            return reply.status, json.loads(reply.data, parse_constant=pytest.fail)

        yield http


@pytest.fixture(scope="session")
def task_models(make_model, tokenizer):
    """One model per task by name, with distinct scores."""
    bert = make_model()
    models = {
        "classifier": SequenceClassifier(bert, ["bad", "gut", "très bien"]),
        PAIRS: SequenceClassifier(bert, ["x", "y"], multi_label=True),
        "regressor": SequenceRegressor(bert, pooling="mean"),
        "tagger": TokenClassifier(bert, ["O", "B-É", "I-É"]),
        "answerer": QuestionAnswerer(bert),
        "embedder": TextEmbedder(bert, "max"),
    }
    for model in models.values():
        model.tokenizer = tokenizer
        if model.has_head:
            model.head.kernel.assign(2 * keras.random.normal(model.head.kernel.shape, seed=3))
    return models


@pytest.fixture(scope="session")
def task_folders(task_models, tmp_path_factory):
    """The exported version folder of each of the `task_models`."""
    path = tmp_path_factory.mktemp("saved_models")
    return {
        name: export_saved_model(model, path / name, pairs=name == PAIRS, top_k=TOP_K)
        for name, model in task_models.items()
    }


@pytest.fixture(scope="session")
def task_exports(task_folders):
    """The exports of the `task_models`, loaded as the local server does."""
    return {name: ServedModel(folder) for name, folder in task_folders.items()}
