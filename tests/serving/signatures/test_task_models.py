"""Tests of exported task models. See tests/serving/loaders for more comparisons."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.audit import audit_saved_model, read_saved_model
from keras_bert_d2l.serving.model_card import describe_signatures
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.serving.signatures.signature import CLASSIFY, PREDICT, REGRESS
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

PAIRS = "pairs of any labels"
INPUTS = {
    "classifier": ("text",),
    PAIRS: ("text", "text_b"),
    "regressor": ("text",),
    "tagger": ("text",),
    "answerer": ("question", "context"),
    "embedder": ("text",),
}
TOP_K = 3
METHODS = {"classifier": CLASSIFY, PAIRS: CLASSIFY, "regressor": REGRESS}


@pytest.mark.parametrize("name", INPUTS)
def test_a_task_has_the_documented_signatures_whose_ops_the_server_supports(name, task_folders):
    signatures = describe_signatures(task_folders[name])
    embed = {"embed"} if name == "embedder" else set()
    assert set(signatures) == {"serving_default", "tf_example", "tokens", *embed}
    assert set(signatures["serving_default"]["inputs"]) == set(INPUTS[name])
    definitions = read_saved_model(task_folders[name]).meta_graphs[0].signature_def
    methods = {signature: definitions[signature].method_name for signature in signatures}
    expected = dict.fromkeys(signatures, PREDICT)
    assert methods == {**expected, "tf_example": METHODS.get(name, PREDICT)}
    assert audit_saved_model(task_folders[name]) == []


def test_the_model_card_describes_the_task(task_folders, task_models):
    card = json.loads((task_folders[PAIRS] / "model_card.json").read_text(encoding="utf-8"))
    assert card["task"] == {
        "kind": "SequenceClassifier",
        **task_models[PAIRS].task_config(),
        "pairs": True,
        "null_threshold": None,
    }
    assert set(card["signatures"]["serving_default"]["inputs"]) == {"text", "text_b"}
    assert card["embedding"] is None
    card = json.loads((task_folders["embedder"] / "model_card.json").read_text(encoding="utf-8"))
    assert card["embedding"] == {"pooling": "max", "normalize": True, "long_texts": "cut"}


@pytest.mark.long
def test_long_texts_are_read_in_windows(make_model, tokenizer, tmp_path):
    model = SequenceRegressor(make_model(), long_texts="mean", tokenizer=tokenizer)
    folder = export_saved_model(model, tmp_path / "windows")
    texts = ["red", "red " * 80 + "blue " * 30, "blue greenish " * 400]
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answers = served(text=tf.constant(texts))
    np.testing.assert_allclose(answers["scores"], model(model.text_batch(texts)), atol=1e-5)
    assert answers["truncated"].numpy().tolist() == [False, False, True]
    assert audit_saved_model(folder) == []


@pytest.mark.slow
def test_a_threshold_requires_a_question_answerer_with_a_tokenizer(
    task_models, make_model, tmp_path
):
    message = "requires a QuestionAnswerer with a tokenizer. Received: a "
    for model in (task_models["classifier"], make_model()):
        with pytest.raises(ValueError, match=message + type(model).__name__):
            export_saved_model(model, tmp_path, null_threshold=0.0)
    with pytest.raises(ValueError, match="QuestionAnswerer without a tokenizer. Omit"):
        export_saved_model(QuestionAnswerer(make_model()), tmp_path, null_threshold=0.0)
    for threshold in (float("nan"), float("inf"), True, "1"):
        with pytest.raises(ValueError, match="must be a finite number, or None"):
            export_saved_model(task_models["answerer"], tmp_path, null_threshold=threshold)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ids_and_positions_out_of_range_are_rejected(task_folders):
    tokens = tf.saved_model.load(str(task_folders["regressor"])).signatures["tokens"]
    zeros = tf.zeros((1, 2), tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`tokens` must be from 0 to 8"):
        tokens(tokens=zeros + 9, segments=zeros, valid_lens=tf.constant([2]))


@pytest.mark.slow
def test_without_a_tokenizer_a_task_model_only_accepts_token_ids(make_model, tmp_path):
    model = SequenceRegressor(make_model(), ["a", "b"])
    folder = export_saved_model(model, tmp_path)
    signatures = describe_signatures(folder)
    assert set(signatures) == {"serving_default", "tokens"}
    assert signatures["tokens"]["outputs"]["logits"]["shape"] == [None, 2]


@pytest.mark.long
def test_a_regressor_with_several_scores_only_supports_predict(make_model, tokenizer, tmp_path):
    model = SequenceRegressor(make_model(), ["a", "b"], tokenizer=tokenizer)
    folder = export_saved_model(model, tmp_path, pairs=True)
    definition = read_saved_model(folder).meta_graphs[0].signature_def["tf_example"]
    assert definition.method_name == PREDICT
    assert set(definition.inputs) == {"examples"}
    assert set(definition.outputs) == {"labels", "scores", "truncated"}


def test_pairs_are_rejected_for_other_tasks(task_models, make_model, tmp_path):
    message = "SequenceClassifier or a SequenceRegressor with a tokenizer. Received: a "
    for model in (task_models["tagger"], task_models["embedder"], make_model()):
        with pytest.raises(ValueError, match=message + type(model).__name__):
            export_saved_model(model, tmp_path, pairs=True)
    with pytest.raises(ValueError, match="SequenceClassifier without a tokenizer. Omit `pairs`"):
        export_saved_model(SequenceClassifier(make_model(), ["a", "b"]), tmp_path, pairs=True)
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_of_the_wrong_size_is_rejected_for_a_task(task_models, tmp_path):
    other = Tokenizer(Vocab([*GOOGLE_SPECIALS, "red"]))
    with pytest.raises(ValueError, match="9 tokens that the model was made for.*6 tokens"):
        export_saved_model(task_models["classifier"], tmp_path, tokenizer=other)


def test_fewer_than_one_answer_is_rejected(task_models, tmp_path):
    with pytest.raises(
        ValueError, match="`top_k` must be an integer of at least 1. Received: top_k=0"
    ):
        export_saved_model(task_models["answerer"], tmp_path, top_k=0)


def test_an_object_that_is_not_a_model_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="must be a BERTModel or a TaskModel. Received: 3"):
        export_saved_model(3, tmp_path)


@pytest.mark.slow
def test_the_threshold_of_the_run_is_exported(task_models, tmp_path):
    metrics = {"options": {"epochs": 2}, "best": {"step": 4, "val_null_threshold": -99.0}}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    folder = export_saved_model(task_models["answerer"], tmp_path / "out", run_dir=tmp_path)
    card = json.loads((folder / "model_card.json").read_text(encoding="utf-8"))
    assert card["task"]["null_threshold"] == -99
    assert card["training"] == metrics
    assert audit_saved_model(folder) == []
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = served(question=tf.constant(["red"]), context=tf.constant(["blue red"]))
    assert found["answer"].numpy().tolist() == [b""]
