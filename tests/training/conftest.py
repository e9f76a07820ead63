"""A small text about six topics and options for a one-second training run."""

import random

import pytest

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

TOPICS = [[f"{letter}{n}" for n in range(8)] for letter in "abcdef"]
VOCAB = Vocab([*GOOGLE_SPECIALS, *(word for topic in TOPICS for word in topic)])
CONFIG = BERTConfig(len(VOCAB), 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=24)


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
        "batch_size": 4,
        "max_len": 24,
        "learning_rate": 1e-2,
        "held_out": 0.2,
        "cache_dir": tmp_path_factory.mktemp("cache"),
        "verbose": 0,
    }
