"""Small models of each kind, their exported versions, and a server."""

import contextlib
import functools
import json
import shutil

import keras
import pytest
import tensorflow as tf
import urllib3

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served import Limits
from keras_bert_d2l.serving.server.served_model import ServedModel
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.rerank.model import Reranker
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
CALIBRATED = {"temperature": 1.7, "thresholds": [0.3, 0.6]}
PAIRS = "pairs of any labels"  # name of the pair model in `task_models`
NAMES = ("demo", "classifier", PAIRS, "regressor", "tagger", "answerer", "embedder", "reranker")
INPUTS = {  # of the signature for strings, by the name of the model
    "classifier": ("text",),
    PAIRS: ("text", "text_b"),
    "regressor": ("text",),
    "tagger": ("text",),
    "answerer": ("question", "context"),
    "embedder": ("text",),
    "reranker": ("text", "text_b"),
}
HTTP_SECONDS = 60
MAX_BODY = 2**16


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
def export(request, tokenizer, tmp_path_factory):
    """A function that exports the model with one of the `NAMES`, once, and returns its folder."""
    path = tmp_path_factory.mktemp("saved_models")

    @functools.cache
    def export(name):
        is_task = name != "demo"
        model = request.getfixturevalue("task_models" if is_task else "model")
        model = model[name] if is_task else model
        options = {"pairs": name == PAIRS, "top_k": TOP_K}
        return export_saved_model(model, path / name, tokenizer=tokenizer, **options)

    return export


@pytest.fixture(scope="session")
def load(export):
    """A function that loads one of the exports as the local server does."""
    return functools.cache(lambda name: ServedModel(export(name)))


@pytest.fixture(scope="session")
def exported(export):
    """The folder of an exported `BERTModel`."""
    return export("demo")


@pytest.fixture(scope="session")
def served(load):
    """A function that calls a signature of the exported `BERTModel`."""
    signatures = load("demo").model.signatures

    def ask(signature, **arguments):
        tensors = {name: tf.constant(argument) for name, argument in arguments.items()}
        return {k: v.numpy() for k, v in signatures[signature](**tensors).items()}

    return ask


@pytest.fixture(scope="session")
def demo_url(load):
    """The URL of a development server with the exported `BERTModel`, as the model `demo`."""
    with running(LocalServer(load("demo"), limits=Limits(max_bytes=MAX_BODY))) as url:
        yield url


@pytest.fixture
def quick_export(exported, monkeypatch):
    """Let exports contain the graph of `exported`, because tracing and saving one takes seconds."""
    monkeypatch.setattr(
        "keras_bert_d2l.serving.saved_model._save",
        lambda signatures, tokenizer, folder: shutil.copy(exported / "saved_model.pb", folder),
    )


@contextlib.contextmanager
def functions_run_eagerly():
    """Run signatures eagerly, because tracing one takes seconds."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.fixture
def eager_functions():
    with functions_run_eagerly():
        yield


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
        "classifier": SequenceClassifier(bert, ["bad", "gut", "très bien"], temperature=1.7),
        PAIRS: SequenceClassifier(bert, ["x", "y"], multi_label=True, **CALIBRATED),
        "regressor": SequenceRegressor(bert, pooling="mean"),
        "tagger": TokenClassifier(bert, ["O", "B-É", "I-É"], temperature=0.6),
        "answerer": QuestionAnswerer(bert),
        "embedder": TextEmbedder(bert, "max"),
        "reranker": Reranker(bert, max_len=20),
    }
    for model in models.values():
        model.tokenizer = tokenizer
        if model.has_head:
            model.head.kernel.assign(2 * keras.random.normal(model.head.kernel.shape, seed=3))
    return models
