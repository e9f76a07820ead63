import importlib
import io

import pytest
from rich.console import Console

from keras_bert_d2l.contract.task import task_named
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import (
    NUM_MISTAKES,
    Confusion,
    Evaluation,
    Mistake,
    evaluate,
    print_evaluation,
)
from keras_bert_d2l.inference.evaluation import library as metrics_library
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.tag.examples import WordExamples


def test_the_20_most_confident_errors_are_listed_in_order(classifier):
    texts = tuple("good " * (1 + number % 3) + "rug" for number in range(30))
    evaluation = evaluate(classifier, TextExamples(texts=texts, labels=("bad",) * 30))
    sure = [mistake.score for mistake in evaluation.errors]
    assert len(sure) == NUM_MISTAKES
    assert sure == sorted(sure, reverse=True)
    assert {mistake.text for mistake in evaluation.errors[:10]} == {"good good good rug"}


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (TextExamples(texts=("cat",), source="x.tsv"), "x.tsv: the examples have no labels"),
        (TextExamples(texts=(), labels=()), "The examples: there are no examples"),
        (
            TextExamples(texts=("a", "b"), labels=("fair", "good")),
            r"model's labels are .*'fair' as well \(1 time\)",
        ),
        (TextExamples(texts=("a",), labels=(("good",),)), "predicts one label .*any number"),
        (
            TextExamples(task="regress", texts=("a",), labels=(1.0,)),
            "`model` must be a SequenceRegressor",
        ),
        (
            WordExamples(words=(("a",),), labels=(("O",),), source="x.conll"),
            "^`model` must be a TokenClassifier. Received: a SequenceClassifier",
        ),
        ({"texts": ["cat"]}, "`text` must name a column of 'the dict'"),
        (3, "`data` must be a path, a DataFrame"),
    ],
)
def test_examples_that_do_not_match_the_model_are_rejected(examples, message, classifier):
    with pytest.raises(ValueError, match=message):
        evaluate(classifier, examples)


def printed(evaluation):
    console = Console(file=io.StringIO(), width=100)
    print_evaluation(evaluation, console)
    return console.file.getvalue()


def test_the_printed_tables_show_metrics_confusions_and_errors():
    mistake = Mistake("7", "a [bold] cat " + "and so on " * 50, "good", "bad", 0.98765)
    confusion = Confusion.of(["bad", "good"], ["bad", "bad"], ["bad", "good"])
    text = printed(Evaluation("classify", {"f1": 0.12345}, [], [mistake], confusion, 1234))
    assert "classify: 1,234 examples" in text
    for cell in ("f1", "0.1235", "a [bold] cat", "0.988", "..."):
        assert cell in text
    assert "gold labels (rows)" in text
    assert "f1" in text
    assert "Most confident errors" in text
    assert "score" in text


@pytest.mark.parametrize(
    ("gold", "predicted", "warning"),
    [
        (["bad", "good"], ["good", "good"], "predicts 'good' in all 2 cases, although"),
        (["bad", "good"], ["good", "bad"], None),
        (["good", "good"], ["good", "good"], None),
    ],
)
def test_a_single_predicted_label_is_reported_if_there_are_several(gold, predicted, warning):
    confusion = Confusion.of(gold, predicted, ["bad", "good", "mixed"])
    evaluation = Evaluation("tag", {"accuracy": 0.5}, [], [], confusion, 2)
    assert (evaluation.warning is None) == (warning is None)
    assert ("Warning: " in printed(evaluation)) == (warning is not None)
    assert warning is None or warning in evaluation.warning


def test_the_largest_errors_of_a_regressor_are_printed():
    mistake = Mistake("7", "a cat", "2", "0.5", 1.5)
    text = printed(Evaluation("regress", {"pearson": 0.5}, [], [mistake], None, 2))
    assert "Largest errors" in text
    assert "error " in text
    assert "score" not in text


def test_with_many_labels_the_most_frequent_confusions_are_printed():
    labels = [f"label{number}" for number in range(15)]
    gold = ["label3"] * 3 + ["label4"] * 2 + labels
    predicted = ["label5"] * 3 + ["label3"] * 2 + labels
    confusion = Confusion.of(gold, predicted, labels)
    assert confusion.counts.sum() == 20
    assert confusion.most_frequent(10) == [("label3", "label5", 3), ("label4", "label3", 2)]
    text = printed(Evaluation("tag", {"accuracy": 0.75}, [], [], confusion, 5))
    assert "Most frequent confusions" in text
    assert "label14" not in text


@pytest.fixture(scope="module")
def classifier(open_task):
    return open_task(
        SequenceClassifier, {("bad", 0): 9.0, ("good", 1): 9.0}, labels=["bad", "good"]
    )


@pytest.mark.parametrize(("task", "library"), [("classify", "sklearn"), ("regress", "scipy")])
def test_a_missing_library_is_reported_before_evaluation(monkeypatch, task, library):
    def without(module):
        if module.startswith(library):
            raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=rf"keras-bert-d2l\[tasks\].*{library}"):
        metrics_library(task_named(task).library)
    assert task_named("answer").library is task_named("tag").library is None
