"""A small text about six topics, options for a short training run, and what stops a run."""

import contextlib
import io
import os
import random
import shutil
import signal
from types import SimpleNamespace

import keras
import pytest

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from tests.eager import running_eagerly

TOPICS = [[f"{letter}{n}" for n in range(8)] for letter in "abcdef"]
VOCAB = Vocab([*GOOGLE_SPECIALS, *(word for topic in TOPICS for word in topic)])
CONFIG = BERTConfig(len(VOCAB), 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=24)


def training_eagerly():
    """Run small models without a graph, because tracing it takes longer than running them."""
    is_tensorflow = keras.backend.backend() == "tensorflow"
    return running_eagerly() if is_tensorflow else contextlib.nullcontext()


@pytest.fixture
def eager():
    with training_eagerly():
        yield


class AfterSteps(keras.callbacks.Callback):
    """Calls `action` after a number of steps in this process."""

    def __init__(self, steps, action):
        super().__init__()
        self.steps = steps
        self.action = action

    def on_train_batch_end(self, batch, logs=None):
        self.steps -= 1
        if self.steps == 0:
            self.action()


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def kept(run, copy, step):
    """Return a callback that copies the folder of a run after a step, as a kill would leave it."""
    return AfterSteps(step, lambda: shutil.copytree(run, copy))


def without_speed(metrics):
    """Return the metrics that do not depend on time."""
    return [{k: v for k, v in line.items() if not k.endswith("/s")} for line in metrics]


def write_text(path, num_documents=36, seed=0):
    """Write documents with one sentence per line, each about one topic."""
    choose = random.Random(seed)
    documents = [
        "\n".join(" ".join(choose.choices(topic, k=choose.randint(3, 6))) for _ in range(8))
        for topic in (TOPICS[n % len(TOPICS)] for n in range(num_documents))
    ]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "topics.txt")


@pytest.fixture(scope="session")
def options(tmp_path_factory):
    """Options of `pretrain`: 7 steps with an evaluation every 3 steps."""
    return {
        "vocab": VOCAB,
        "bert_config": CONFIG,
        "layout": "lines",
        "steps": 7,
        "evaluate_every": 3,
        "batch_size": 8,
        "max_len": 24,
        "learning_rate": 1e-2,
        "held_out": 0.1,
        "cache_dir": tmp_path_factory.mktemp("cache"),
        "verbose": 0,
    }


@pytest.fixture(scope="session")
def finished(text, options, tmp_path_factory):
    """An uninterrupted run: its folder, its result, what it printed, and its folder at step 5."""
    folder, printed = tmp_path_factory.mktemp("finished"), io.StringIO()
    run, killed = folder / "run", folder / "killed"
    with contextlib.redirect_stdout(printed):
        steps = kept(run, killed, 5)
        result = pretrain(text, run, callbacks=[steps], **{**options, "verbose": 2})
    return SimpleNamespace(run=run, result=result, printed=printed.getvalue(), killed=killed)
