import math

import numpy as np
import pytest

from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import Mistake, evaluate
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import (
    Classification,
    classification_scores,
    classify,
    multi_label_scores,
)
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

TEXTS = ["the cat is good", "a bad dog sat on the mat .", "good", "bad bad bad good rug"]
EVALUATED = ["good cat", "bad dog", "bad bad cat", "the good rug"]


@pytest.fixture(scope="module")
def classifier(open_task):
    return open_task(
        SequenceClassifier, {("bad", 0): 1.0, ("good", 1): 1.0}, labels=["bad", "good"]
    )


def test_a_text_gets_its_most_likely_label_and_all_probabilities(classifier, words_tokenizer):
    found = classify(classifier, TEXTS)
    assert [one.label for one in found] == ["good", "bad", "good", "bad"]
    for text, one in zip(TEXTS, found, strict=True):
        logits = np.asarray(classifier(words_tokenizer(text)))[0]
        expected = np.exp(logits) / np.exp(logits).sum()
        assert one.scores == pytest.approx(dict(zip(["bad", "good"], expected, strict=True)))
        assert one == Classification(one.label, max(one.scores.values()), one.scores, (one.label,))


@pytest.mark.filterwarnings("ignore:Truncated to")
def test_long_texts_are_split_into_windows_and_pairs_are_truncated(open_task):
    weights = {("bad", 0): 1.0, ("good", 1): 1.0}
    options = {"labels": ["bad", "good"]}
    cut = open_task(SequenceClassifier, weights, **options)
    windows = open_task(SequenceClassifier, weights, **options, long_texts="max")
    text = "the cat sat on " * 8 + "good"
    alone = classify(cut, "sat on the cat sat on good").scores["good"]
    assert classify(windows, text).scores["good"] > 0.5 < alone
    assert classify(cut, text).scores["good"] == pytest.approx(0.5)
    for model in (cut, windows):
        assert classify(model, "good", text).scores["good"] == classify(cut, "good", text).score
    with pytest.raises(ValueError, match="from 3 to 86, the model's maximum"):
        classify(windows, text, max_len=87)
    with pytest.raises(ValueError, match="from 5 to 16, the model's maximum"):
        classify(windows, "good", text, max_len=87)


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_batch_size_and_keep_their_order(
    words_bert, words_tokenizer
):
    model = SequenceClassifier(words_bert, ["a", "b", "c"], tokenizer=words_tokenizer)
    model.run_eagerly = True
    expected = [classify(model, text).scores for text in TEXTS]
    found = classify(model, TEXTS, batch_size=3)
    assert [one.scores for one in found] == [pytest.approx(x, rel=1e-5) for x in expected]
    assert classify(model, []) == []


def test_one_text_beside_a_list_is_repeated(classifier):
    one = "good"
    for first, second in ((one, TEXTS), (TEXTS, one)):
        pairs = [(first, text) if first is one else (text, second) for text in TEXTS]
        expected = [classify(classifier, *pair).score for pair in pairs]
        found = [result.score for result in classify(classifier, first, second)]
        assert found == pytest.approx(expected, abs=1e-6)
    assert len(classify(classifier, one, [one])) == 1
    with pytest.raises(ValueError, match="a list of 1 and a list of 4"):
        classify(classifier, [one], TEXTS)


def test_a_text_may_have_any_number_of_labels(open_task):
    weights = {("cat", 0): 50.0, ("dog", 1): 50.0, (None, 0): 8.0, (None, 1): 8.0}
    model = open_task(SequenceClassifier, weights, labels=["cat", "dog"], multi_label=True)
    found = classify(model, ["cat and dog", "dog on rug", "rug"])
    assert [one.labels for one in found] == [("cat", "dog"), ("dog",), ()]
    assert found[1].label == "dog"
    assert found[1].score == found[1].scores["dog"] > 0.95
    assert found[1].scores["cat"] < 0.1


@pytest.mark.filterwarnings("ignore:Truncated to")
def test_long_texts_are_truncated_at_the_end(classifier):
    text = "good " * 3 + "bad " * 40
    assert classify(classifier, text).label == "bad"
    assert classify(classifier, text, max_len=5).label == "good"


def test_other_models_are_rejected(open_bert):
    with pytest.raises(ValueError, match="must be a SequenceClassifier. Received: a BERTModel"):
        classify(open_bert, "cat")


def test_a_model_without_a_tokenizer_is_rejected(open_bert, words_tokenizer):
    with pytest.raises(ValueError, match="Strings need a tokenizer"):
        classify(SequenceClassifier(open_bert, ["a", "b"]), "cat")
    other = Tokenizer(Vocab(words_tokenizer.vocab.tokens[:-1]))
    with pytest.raises(ValueError, match="17 tokens that the model was made for"):
        classify(SequenceClassifier(open_bert, ["a", "b"], tokenizer=other), "cat")


def test_numbers_out_of_range_are_rejected(classifier):
    for name, value in (("max_len", 17), ("max_len", "12"), ("batch_size", 0)):
        with pytest.raises(ValueError, match=f"`{name}`.*{name}={value!r}"):
            classify(classifier, ["cat"], **{name: value})


def test_metrics_for_two_labels_match_hand_calculation():
    gold, predicted = list("ppnnp"), list("pnnpp")
    # label p: 2 true positives, 1 false positive, 1 false negative; label n: 1, 1, 1
    assert classification_scores(gold, predicted, ["n", "p"]) == {
        "accuracy": pytest.approx(3 / 5),
        "macro_f1": pytest.approx((2 / 3 + 1 / 2) / 2),
        "matthews": pytest.approx((2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2)),
        "f1": pytest.approx(2 / 3),
    }


def test_f1_measures_the_second_of_two_labels_and_macro_f1_ignores_labels_that_never_occur():
    assert classification_scores(list("nnn"), list("nnn"), ["n", "p"]) == {
        "accuracy": 1,
        "macro_f1": 1,
        "matthews": 0,
        "f1": 0,
    }
    assert classification_scores(list("nnn"), list("nnn"), ["p", "n"])["f1"] == 1
    scores = classification_scores(list("aabb"), list("aaba"), ["a", "b", "c"])
    assert scores["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)  # without "c"
    assert "f1" not in scores


def test_multi_label_metrics_match_hand_calculation():
    scores = multi_label_scores([("a",), ("a", "b"), ()], [("a",), ("b",), ("c",)], list("abc"))
    assert scores == {
        "subset_accuracy": pytest.approx(1 / 3),
        "micro_f1": pytest.approx(2 * 2 / (2 * 2 + 1 + 1)),
        "macro_f1": pytest.approx((2 / 3 + 1 + 0) / 3),
    }


def test_f1_of_a_single_optional_label_measures_its_presence():
    scores = multi_label_scores([("a",), ("a",), (), ()], [("a",), (), ("a",), ()], ["a"])
    # 1 true positive, 1 false negative, 1 false positive
    assert scores == {
        "subset_accuracy": pytest.approx(1 / 2),
        "micro_f1": pytest.approx(1 / 2),
        "macro_f1": pytest.approx(1 / 2),
    }
    assert multi_label_scores([("a",), ()], [(), ()], ["a"])["micro_f1"] == 0


@pytest.mark.slow
def test_a_classifier_is_evaluated_with_metrics_and_errors(classifier):
    labels = ("good", "bad", "good", "good")
    examples = TextExamples(texts=tuple(EVALUATED), labels=labels, ids=tuple("abcd"))
    evaluation = evaluate(classifier, examples)
    assert evaluation.task == "classify"
    assert evaluation.num_examples == 4
    scores = classification_scores(labels, ["good", "bad", "bad", "good"], classifier.labels)
    error = evaluation.decisions.calibration_error
    assert evaluation.metrics == {**scores, "expected_calibration_error": error}
    assert evaluation.metrics["accuracy"] == 0.75
    assert evaluation.predictions == classify(classifier, EVALUATED)
    surely_bad = evaluation.predictions[2].score
    assert evaluation.errors == [Mistake("c", "bad bad cat", "good", "bad", surely_bad)]
    assert evaluation.confusion.labels == ("bad", "good")
    assert evaluation.confusion.counts.tolist() == [[1, 0], [1, 2]]


def test_both_texts_of_a_pair_count_and_are_shown(classifier):
    assert classify(classifier, "good cat", "bad bad dog").label == "bad"
    examples = TextExamples(texts=("cat",), texts_b=("good dog",), labels=("bad",))
    [mistake] = evaluate(classifier, examples).errors
    assert mistake.text == "cat | good dog"


def test_multiple_labels_are_evaluated_as_sets(open_task):
    weights = {("cat", 0): 50.0, ("dog", 1): 50.0, (None, 0): 8.0, (None, 1): 8.0}
    model = open_task(SequenceClassifier, weights, labels=["cat", "dog"], multi_label=True)
    labels = (("dog", "cat"), ("dog",), ("cat",))
    examples = TextExamples(texts=("cat and dog", "dog on rug", "rug"), labels=labels)
    evaluation = evaluate(model, examples)
    assert evaluation.metrics["subset_accuracy"] == pytest.approx(2 / 3)
    assert evaluation.metrics["micro_f1"] == pytest.approx(6 / 7)
    assert evaluation.confusion is None
    not_cat = 1 - evaluation.predictions[2].scores["cat"]
    assert evaluation.errors == [Mistake("2", "rug", "cat", "", pytest.approx(not_cat))]
