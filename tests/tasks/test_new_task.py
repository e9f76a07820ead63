"""A task that this module defines: which of two sentences comes first."""

import importlib.util
import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.cli import main
from keras_bert_d2l.cli.commands.finetune import _tasks_in_words
from keras_bert_d2l.contract import task as registry
from keras_bert_d2l.serving.server import local_server

ORDERS = ("right", "swapped")
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] he wakes sleeps up . then she eats and leaves".split()


@keras.saving.register_keras_serializable("tests")
class SentenceOrderer(kb.LabeledTask):
    task, pools, fields = "order", True, ("labels", "dropout", "pooling")


class OrderTask(kb.TextTask):
    """The order of two sentences."""

    name, model, needs_text_b = "order", SentenceOrderer, True
    columns = types.MappingProxyType({"text": "first", "text_b": "second", "label": "order"})


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_TASKS", registry.tasks())
    kb.register_task(OrderTask())


@pytest.mark.long
def test_a_task_of_another_module_is_trained_evaluated_reported_exported_and_asked(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert _tasks_in_words().endswith("answer a query), order (the order of two sentences).")
    texts = ("he wakes up .", "then she eats ."), ("then she leaves .", "he wakes .")
    rows = list(zip(*texts, ORDERS, strict=True)) * 16
    lines = map("\t".join, [("first", "second", "order"), *rows])
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    bert = kb.BERTModel(len(WORDS), 16, 32, num_heads=2, num_blks=1, dropout=0.0, max_len=16)
    kb.save_pretrained(bert, "bert", tokenizer=kb.Tokenizer(kb.Vocab(WORDS)))
    options = {"precision": "float32", "learning_rate": 0.01, "epochs": 4, "verbose": 0}
    files = {"model": "bert", "train": "train.tsv", "dev": "train.tsv"}
    model, metrics = kb.finetune_files("run", task="order", **files, **options)
    assert metrics["best"]["val_accuracy"] == 1
    assert kb.evaluate(model, "train.tsv").metrics["accuracy"] == 1
    assert "then she eats . | he wakes ." in (tmp_path / "run/report.html").read_text()
    folder = kb.export_saved_model(model, "export")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    asked = {"text": tf.constant(texts[0]), "text_b": tf.constant(texts[1])}
    answers = served(**asked)
    assert answers["label"].numpy().tolist() == [b"right", b"swapped"]
    if importlib.util.find_spec("tokenizers") and importlib.util.find_spec("onnx"):
        kb.export_onnx(model, "onnx")
        found = local_server.load("onnx").ask(
            "serving_default", {k: v.numpy() for k, v in asked.items()}
        )
        assert found["label"].tolist() == [b"right", b"swapped"]
        np.testing.assert_allclose(found["scores"], answers["scores"], atol=1e-5)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["predict", "train.tsv", "--model", "run"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["label"] for record in found] == [*ORDERS] * 16
    assert [record["id"] for record in found] == list(map(str, range(2, 34)))  # lines
