"""Tests of exported task models. See tests/serving/loaders for more comparisons."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.export.audit import audit_saved_model, read_saved_model
from keras_bert_d2l.serving.export.model_card import describe_signatures
from keras_bert_d2l.serving.export.saved_model import export_saved_model
from keras_bert_d2l.serving.signatures.signature import CLASSIFY, PREDICT, REGRESS
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import answer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.predictions import tag
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from tests.nightly import nightly_except

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
MAX_QUESTION_LEN = 12  # of 24 tokens


@pytest.fixture(scope="session")
def ask(task_folders):
    """A function that calls a signature of a model by name, with lists of strings."""
    loaded = {}

    def ask(name, signature="serving_default", **arguments):
        if name not in loaded:
            loaded[name] = tf.saved_model.load(str(task_folders[name]))
        tensors = {key: tf.constant(strings, tf.string) for key, strings in arguments.items()}
        outputs = loaded[name].signatures[signature](**tensors)
        return {key: tensor.numpy() for key, tensor in outputs.items()}

    return ask


@pytest.mark.parametrize("name", INPUTS)
def test_a_task_has_the_documented_signatures(name, task_folders):
    signatures = describe_signatures(task_folders[name])
    embed = {"embed"} if name == "embedder" else set()
    assert set(signatures) == {"serving_default", "tf_example", "tokens", *embed}
    assert set(signatures["serving_default"]["inputs"]) == set(INPUTS[name])
    definitions = read_saved_model(task_folders[name]).meta_graphs[0].signature_def
    methods = {signature: definitions[signature].method_name for signature in signatures}
    expected = dict.fromkeys(signatures, PREDICT)
    assert methods == {**expected, "tf_example": METHODS.get(name, PREDICT)}


@pytest.mark.parametrize("name", INPUTS)
def test_the_server_supports_all_ops_of_a_task(name, task_folders):
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


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except({"answerer", "tagger", "classifier"}, INPUTS))
def test_no_text_produces_nan_or_infinity(name, ask):
    hostile = ["", "\0", "[MASK]" * 9, "\ufffd", "é" * 300, "red " * 300, " \n\t", "\u202e😀"]
    strings = [*(text.encode() for text in hostile), b"\xff\xfe red", b"\xed\xa0\x80"]
    answers = ask(name, **dict.fromkeys(INPUTS[name], strings))
    for array in answers.values():
        assert len(array) == len(strings)
        if array.dtype == np.float32:
            assert np.isfinite(array).all()
        elif array.dtype == object:
            for value in array.ravel():
                value.decode()  # it can be written as JSON


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
def test_words_after_the_last_token_are_skipped(ask, task_models):
    text = "red, greenish " * 3 + "blue " * 100
    answers = ask("tagger", text=[text, "red"])
    read = tag(task_models["tagger"], text[: answers["ends"][0, -1]])  # 22 tokens
    assert answers["truncated"].tolist() == [True, False]
    assert [word.decode() for word in answers["words"][0]] == [one.word for one in read]
    assert [label.decode() for label in answers["labels"][0]] == [one.label for one in read]
    assert answers["words"][1].tolist() == [b"red"] + [b""] * (len(read) - 1)


@pytest.mark.slow
def test_only_the_start_of_a_megabyte_of_text_is_read(ask):
    begin = "red, greenish " * 12  # more tokens than the model reads
    answers = ask("classifier", text=[begin + "blue " * 200_000, begin])
    assert answers.pop("truncated").tolist() == [True, True]
    for array in answers.values():
        np.testing.assert_array_equal(array[0], array[1])


@pytest.mark.slow
def test_bytes_that_are_not_utf_8_are_replaced(ask):
    answers = ask("tagger", text=[b"red \xff\xfe blue"])
    assert answers["words"].tolist() == [[b"red", "\ufffd\ufffd".encode(), b"blue"]]
    assert answers["starts"].tolist() == [[0, 4, 7]]
    (text,) = ask("answerer", question=["red"], context=[b"\xff"])["answer"]
    assert text.decode() == "\ufffd"


@pytest.mark.slow
def test_a_long_context_is_searched_completely(ask, task_models):
    context = " ".join(np.random.default_rng(0).choice(["red", "green", "blueish", ","], 500))
    answers = ask("answerer", question=["green", "red"], context=[context, "blue"])
    found = answer(task_models["answerer"], "green", context, top_k=3)
    assert [text.decode() for text in answers["answers"][0]] == [one.text for one in found]
    assert answers["starts"][0].tolist() == [one.start for one in found]
    np.testing.assert_allclose(answers["scores"][0], [one.score for one in found], atol=1e-5)
    assert answers["answers"][1].tolist() == [b"blue", b"", b""]


@pytest.mark.long
def test_an_answer_includes_the_combining_accents_that_follow(ask, task_models):
    context = "gre\u0301en red\u0301 blue\u0301\u0308"
    answers = ask("answerer", question=["red"], context=[context])
    found = answer(task_models["answerer"], "red", context, top_k=3)
    assert [text.decode() for text in answers["answers"][0]] == [one.text for one in found]
    assert answers["ends"][0].tolist() == [one.end for one in found]
    assert all(one.text.endswith("\u0301") or one.text.endswith("\u0308") for one in found)


@pytest.mark.slow
def test_a_question_that_is_too_long_is_truncated(ask):
    long, cut = "red " * 50, "red " * MAX_QUESTION_LEN
    answers = ask("answerer", question=[long, cut], context=["green blue red"] * 2)
    assert answers.pop("truncated").tolist() == [True, False]
    for array in answers.values():
        np.testing.assert_array_equal(array[0], array[1])


@pytest.mark.slow
def test_a_context_without_words_has_no_answer(ask):
    answers = ask("answerer", question=["red", ""], context=["", " \x7f"])
    assert answers["answer"].tolist() == [b"", b""]
    for name in ("score", "start", "end", "null_score"):
        assert answers[name].tolist() == [0, 0]


@pytest.mark.slow
def test_no_answer_is_the_best_answer_above_the_threshold_of_the_run(task_models, tmp_path):
    model, words = task_models["answerer"], ["red", "green", "blueish", ","]
    rng = np.random.default_rng(0)
    contexts = ["red", "blue red", *(" ".join(rng.choice(words, 3 * n)) for n in range(1, 25))]
    questions = [str(rng.choice(words[:3])) for _ in contexts]
    margins = [best.null_margin for [best] in answer(model, questions, contexts)]
    threshold = float(np.median(margins))
    metrics = {"options": {"epochs": 2}, "best": {"step": 4, "val_null_threshold": threshold}}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    folder = export_saved_model(model, tmp_path / "out", top_k=TOP_K, run_dir=tmp_path)
    card = json.loads((folder / "model_card.json").read_text(encoding="utf-8"))
    assert card["task"]["null_threshold"] == threshold
    assert card["training"] == {"options": {"epochs": 2}, "best": metrics["best"]}
    assert audit_saved_model(folder) == []
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    outputs = served(question=tf.constant(questions), context=tf.constant(contexts))
    answers = {name: tensor.numpy() for name, tensor in outputs.items()}
    expected = answer(model, questions, contexts, top_k=TOP_K, null_threshold=threshold)
    assert 5 < sum(not found[0].text for found in expected) < len(contexts) - 5
    for row, found in enumerate(expected):
        missing = [0] * (TOP_K - len(found))
        texts = [text.decode() for text in answers["answers"][row]]
        assert texts == [one.text for one in found] + [""] * len(missing)
        for name in ("start", "end"):
            numbers = [getattr(one, name) for one in found]
            assert answers[f"{name}s"][row].tolist() == numbers + missing
        scores = [one.score for one in found] + missing
        np.testing.assert_allclose(answers["scores"][row], scores, atol=1e-5)
        assert answers["answer"][row].decode() == found[0].text
    np.testing.assert_allclose(answers["null_score"], margins, atol=1e-5)


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
def test_pairs_need_both_texts(ask):
    for name, arguments in (
        (PAIRS, {"text": ["red", "green"], "text_b": ["blue"]}),
        ("answerer", {"question": ["red"], "context": ["blue", "red"]}),
    ):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="same number of texts, one pair per row"
        ):
            ask(name, **arguments)


@pytest.mark.slow
def test_a_serialized_example_needs_all_strings_for_the_task(ask):
    empty = tf.train.Example().SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Feature: text(_b)? .* is required"):
        ask(PAIRS, "tf_example", inputs=[empty])


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
