"""Tests of exported task models. See tests/serving/loaders for more comparisons."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving import saved_model
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from tests.serving.conftest import INPUTS, PAIRS


@pytest.mark.parametrize("name", INPUTS)
def test_a_task_has_the_documented_signatures(name, task_models, tokenizer):
    signatures = model_signatures(task_models[name], tokenizer, TextOptions(name == PAIRS, 3, None))
    own = {"embedder": ["embed"], "reranker": ["rerank"]}
    own["tagger"] = ["entities", "words", "word_entities"]
    assert set(signatures) == {"serving_default", "tokens", *own.get(name, ())}
    assert tuple(spec.name for spec in signatures["serving_default"].specs) == INPUTS[name]


@pytest.mark.usefixtures("quick_export")
def test_the_model_card_describes_the_task(task_models, tmp_path):
    card = read_card(export_saved_model(task_models[PAIRS], tmp_path, pairs=True))
    assert card["task"] == {
        "kind": "SequenceClassifier",
        **task_models[PAIRS].task_config(),
        "pairs": True,
        "null_threshold": None,
    }
    assert card["embedding"] is None


def read_card(folder):
    return json.loads((folder / "model_card.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.usefixtures("eager_functions")
def test_long_texts_are_read_in_windows(make_model, tokenizer):
    model = SequenceRegressor(make_model(), long_texts="mean", tokenizer=tokenizer)
    texts = ["red", "red " * 80 + "blue " * 30, "blue greenish " * 400]
    signatures = model_signatures(model, tokenizer, TextOptions(False, 3, None))
    answers = signatures["serving_default"].function(tf.constant(texts))
    np.testing.assert_allclose(answers["scores"], model(texts), atol=1e-5)
    assert answers["truncated"].numpy().tolist() == [False, False, True]


@pytest.mark.usefixtures("quick_export")
def test_the_threshold_of_the_run_is_exported(task_models, tmp_path, monkeypatch):
    thresholds = []

    def recorded(model, tokenizer, options, **more):
        thresholds.append(options.null_threshold)
        return model_signatures(model, tokenizer, options, **more)

    monkeypatch.setattr(saved_model, "model_signatures", recorded)
    metrics = {"best": {"step": 4, "val_null_threshold": -99.0}}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    folder = export_saved_model(task_models["answerer"], tmp_path / "out", run_dir=tmp_path)
    card = read_card(folder)
    assert thresholds == [-99]
    assert card["task"]["null_threshold"] == -99
    assert card["training"] == {"run": str(tmp_path), "best": metrics["best"]}
