"""Whole runs with the JAX backend, in a separate process, compared with runs with TensorFlow."""

import csv
import json

import numpy as np
import pytest

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    SequenceClassifier,
    Tokenizer,
    finetune_files,
    load_pretrained,
    pretrain,
    save_pretrained,
)
from tests.jax_backend import JAX, needs_jax
from tests.training.conftest import CONFIG, TOPICS, VOCAB

pytestmark = [pytest.mark.slow, needs_jax]

STEPS = {
    "steps": 12,
    "evaluate_every": 2,
    "batch_size": 8,
    "max_len": 24,
    "learning_rate": 1e-3,
    "held_out": 0.2,
    "layout": "lines",
    "verbose": 0,
}
RUNS = {
    "adamw": {},
    "packed": {"rows": "packed"},
    "muon": {"optimizer": "muon", "short_steps": 8, "short_len": 12},
}
LABELS = ["early", "late"]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder with a BERT and a classifier without dropout, and labeled texts."""
    folder = tmp_path_factory.mktemp("start")
    bert = BERTModel.from_bert_config(BERTConfig.from_dict({**CONFIG.to_dict(), "dropout": 0.0}))
    save_pretrained(bert, folder / "bert", tokenizer=Tokenizer(VOCAB))
    classifier = SequenceClassifier(bert, LABELS, dropout=0.0, tokenizer=Tokenizer(VOCAB))
    save_pretrained(classifier, folder / "classifier")
    texts = [" ".join(topic[n : n + 4]) for topic in TOPICS for n in range(4)]
    rows = [(text, LABELS[text[0] > "c"]) for text in texts]
    with open(folder / "texts.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return folder


def assert_same_metrics(lines, expected):
    """Compare metrics line by line, except for those that depend on time."""
    assert len(lines) == len(expected)
    for ours, theirs in zip(lines, expected, strict=True):
        assert {k: v for k, v in ours.items() if not k.endswith("/s")} == pytest.approx(
            {k: v for k, v in theirs.items() if not k.endswith("/s")}, abs=1e-4
        )


def test_pretraining_is_the_same_under_jax_and_tensorflow(
    start, text, options, tmp_path, fresh_process
):
    base = {**STEPS, "init": str(start / "bert"), "cache_dir": str(options["cache_dir"])}
    code = """
        import json, sys
        from keras_bert_d2l import pretrain
        base, runs = json.loads(sys.argv[3])
        for name, options in runs.items():
            pretrain(sys.argv[1], f"{sys.argv[2]}/{name}", **base, **options)
    """
    fresh_process(code, text, tmp_path / "jax", json.dumps([base, RUNS]), **JAX)
    for name, further in RUNS.items():
        model, _, metrics = pretrain(text, tmp_path / name, **base, **further)
        run = tmp_path / "jax" / name
        lines = (run / "metrics.jsonl").read_text().splitlines()
        assert_same_metrics([json.loads(line) for line in lines], metrics)
        trained = load_pretrained(run / "last").model
        for ours, theirs in zip(trained.weights, model.weights, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4, err_msg=f"{name}: {ours.path}")
    with pytest.raises(ValueError, match="was started with backend='jax'.*KERAS_BACKEND"):
        pretrain(None, run, resume=True)


def test_fine_tuning_is_the_same_under_jax_and_tensorflow(start, tmp_path, fresh_process):
    given = {"task": "classify", "model": str(start / "classifier"), "learning_rate": 1e-2}
    given |= {"epochs": 3, "batch_size": 7, "verbose": 0}
    given |= {"train": str(start / "texts.csv"), "dev": str(start / "texts.csv")}
    code = """
        import json, sys
        import keras
        del sys.modules["sklearn"]  # the metrics need it
        from keras_bert_d2l import finetune_files
        finetune_files(sys.argv[1], **json.loads(sys.argv[2]))
    """
    fresh_process(code, tmp_path / "jax", json.dumps(given), **JAX)
    metrics = json.loads((tmp_path / "jax" / "metrics.json").read_text())
    expected = finetune_files(tmp_path / "tensorflow", **given).metrics
    assert_same_metrics(metrics["history"], expected["history"])
    assert metrics["best_epoch"] == expected["best_epoch"]
    trained = load_pretrained(tmp_path / "jax").model
    for ours, theirs in zip(
        trained.weights, load_pretrained(tmp_path / "tensorflow").model.weights, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-4, err_msg=ours.path)
