import importlib
import math
import sys

import numpy as np
import pytest

from keras_bert_d2l.inference.evaluation import library as metrics_library
from keras_bert_d2l.tasks.answer.evaluation import (
    answer_f1,
    answer_scores,
    best_null_threshold,
    exact_match,
    normalized_answer,
)
from keras_bert_d2l.tasks.classify.predictions import classification_scores, multi_label_scores
from keras_bert_d2l.tasks.regress.predictions import regression_scores
from keras_bert_d2l.tasks.tag.entities import has_scheme, span_scores, spans, tagging_scores
from keras_bert_d2l.tasks.task import task_named


def test_metrics_for_two_labels_match_hand_calculation():
    gold, predicted = list("ppnnp"), list("pnnpp")
    # label p: 2 true positives, 1 false positive, 1 false negative; label n: 1, 1, 1
    assert classification_scores(gold, predicted, ["n", "p"]) == {
        "accuracy": pytest.approx(3 / 5),
        "macro_f1": pytest.approx((2 / 3 + 1 / 2) / 2),
        "matthews": pytest.approx((2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2)),
        "f1": pytest.approx(2 / 3),
    }


def test_f1_measures_the_second_of_two_labels_and_is_0_if_it_never_occurs():
    assert classification_scores(list("nnn"), list("nnn"), ["n", "p"]) == {
        "accuracy": 1,
        "macro_f1": 1,
        "matthews": 0,
        "f1": 0,
    }
    assert classification_scores(list("nnn"), list("nnn"), ["p", "n"])["f1"] == 1


def test_three_labels_have_no_single_f1_and_labels_that_never_occur_are_ignored():
    scores = classification_scores(list("aabb"), list("aaba"), ["a", "b", "c"])
    assert scores["macro_f1"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert set(scores) == {"accuracy", "macro_f1", "matthews"}


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


def test_correlations_match_hand_calculation():
    assert regression_scores([1, 2, 3, 4], [1, 3, 2, 4]) == {
        "pearson": pytest.approx(0.8),
        "spearman": pytest.approx(1 - 6 * 2 / (4 * 15)),
        "mean_squared_error": pytest.approx(0.5),
    }


def test_correlations_ignore_scale_and_shift_and_rank_correlation_any_monotonic_function():
    gold = np.random.default_rng(0).normal(size=50)
    scores = regression_scores(gold, -3 * gold + 7)
    assert scores["pearson"] == pytest.approx(-1)
    scores = regression_scores(gold, np.exp(gold))
    assert scores["pearson"] < 0.9
    assert scores["spearman"] == pytest.approx(1)


@pytest.mark.parametrize(("gold", "predicted"), [([1, 2], [3, 3]), ([3, 3], [1, 2]), ([1], [2])])
def test_the_correlation_with_a_constant_is_0(gold, predicted):
    scores = regression_scores(gold, predicted)
    assert (scores["pearson"], scores["spearman"]) == (0, 0)


def test_scores_that_are_not_finite_are_rejected():
    with pytest.raises(ValueError, match="`gold` must contain finite numbers. .* nan at index 1"):
        regression_scores([1, float("nan")], [1, 2])
    with pytest.raises(ValueError, match="`predicted` must contain finite.* inf at index 0"):
        regression_scores([1, 2], [float("inf"), 2])


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X O B-Y", [("X", 0, 2), ("Y", 3, 4)]),
        ("B-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
        ("I-X I-X O I-Y", [("X", 0, 2), ("Y", 3, 4)]),  # IOB1
        ("I-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
        ("B-X I-Y I-Y", [("X", 0, 1), ("Y", 1, 3)]),  # a different type starts a new span
        ("B-X I-X E-X S-Y", [("X", 0, 3), ("Y", 3, 4)]),  # BIOES
        ("E-X E-X I-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 3)]),
        ("S-X I-X S-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 3)]),
        ("B-X O E-X", [("X", 0, 1), ("X", 2, 3)]),
        ("B-X I-X L-X U-X", [("X", 0, 3), ("X", 3, 4)]),  # BILOU
        ("B I O B", [("_", 0, 2), ("_", 3, 4)]),
        ("B-X-Y I-X-Y", [("X-Y", 0, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_tags_mark_spans(tags, expected):
    assert spans(tags.split()) == expected


def test_tags_that_belong_to_no_scheme_are_rejected():
    with pytest.raises(ValueError, match="such as 'B-PER'. Received: 'NOUN'"):
        spans(["O", "NOUN"])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O B-PER I-PER", True),
        ("I-NP O", True),
        ("O B I", True),
        ("O B-X I-X E-X S-X", True),
        ("O", False),
        ("NOUN VERB X", False),
        ("B-PER NOUN", False),
        ("", False),
    ],
)
def test_a_tagging_scheme_is_recognized_by_its_labels(labels, expected):
    assert has_scheme(labels.split()) == expected


def test_span_metrics_match_hand_calculation():
    gold = ["O O O B-M I-M I-M O".split(), "B-P I-P O".split()]
    predicted = ["O O B-M I-M I-M I-M O".split(), "B-P I-P O".split()]
    assert tagging_scores(gold, predicted, ["B-M", "I-M", "B-P", "I-P", "O"]) == {
        "accuracy": pytest.approx(8 / 10),
        "precision": 0.5,
        "recall": 0.5,
        "f1": 0.5,
    }
    assert span_scores([["O", "O"]], [["O", "B-X"]]) == {"precision": 0, "recall": 0, "f1": 0}


def test_spans_do_not_cross_texts():
    one = span_scores([["B-X"], ["I-X"]], [["B-X"], ["I-X"]])
    other = span_scores([["B-X", "I-X"]], [["B-X", "B-X"]])
    assert (one["f1"], other["f1"]) == (1, 0)


def test_tags_without_spans_are_scored_only_with_accuracy():
    scores = tagging_scores([["NOUN", "VERB"], []], [["NOUN", "NOUN"], []], ["NOUN", "VERB"])
    assert scores == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat's\ta hat!", "cats hat"),
        ("an", ""),
        ("theatre — A", "theatre —"),
        ("$1,000.50", "100050"),
        ("the-end", "theend"),
    ],
)
def test_answers_are_normalized_as_in_the_official_script(text, expected):
    assert normalized_answer(text) == expected


def test_answers_are_compared_with_the_closest_gold_answer():
    gold = ["the old cat", "a dog"]
    assert exact_match(gold, "Dog.") == 1
    assert exact_match(gold, "cat") == 0
    assert answer_f1(gold, "cat sat") == pytest.approx(2 * (1 / 2) * (1 / 2) / (1 / 2 + 1 / 2))
    assert answer_f1(["to be or not to be"], "to to to") == pytest.approx(2 * 2 / (6 + 3))
    assert answer_f1(gold, "bird") == 0


def test_no_answer_is_correct_only_for_unanswerable_questions():
    assert (exact_match([], ""), answer_f1([], "")) == (1, 1)
    assert (exact_match([], "cat"), answer_f1([], "cat")) == (0, 0)
    assert (exact_match(["cat"], ""), answer_f1(["cat"], "")) == (0, 0)
    # the script drops gold answers that normalization leaves empty
    assert (exact_match(["."], ""), exact_match([".", "cat"], "the")) == (1, 0)


def test_unanswerable_questions_are_also_scored_separately():
    gold, predicted = [["cat"], ["old dog"], [], []], ["the cat", "dog", "", "rug"]
    assert answer_scores(gold, predicted) == {
        "exact_match": 0.5,
        "f1": pytest.approx((1 + 2 / 3 + 1 + 0) / 4),
        "has_answer_exact_match": 0.5,
        "has_answer_f1": pytest.approx((1 + 2 / 3) / 2),
        "no_answer_accuracy": 0.5,
    }
    assert set(answer_scores(gold[:2], predicted[:2])) == {"exact_match", "f1"}


def test_the_null_threshold_maximizes_f1():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 30):
        gold = [["cat"] if rng.random() < 0.5 else [] for _ in range(size)]
        predicted = [str(rng.choice(["cat", "old cat", "dog"])) for _ in range(size)]
        margins = rng.integers(-3, 4, size).tolist()  # includes equal margins

        def f1(threshold, gold=gold, predicted=predicted, margins=margins):
            kept = [
                "" if margin > threshold else text
                for text, margin in zip(predicted, margins, strict=True)
            ]
            return answer_scores(gold, kept)["f1"]

        found = best_null_threshold(gold, predicted, margins)
        assert f1(found) == max(f1(threshold) for threshold in [-99, *margins])


def test_if_no_question_should_be_answered_the_threshold_is_below_all_margins():
    assert best_null_threshold([[], []], ["cat", "dog"], [2.0, 3.0]) == 1.0
    assert best_null_threshold([["cat"], []], ["cat", "dog"], [2.0, 3.0]) == 2.0


@pytest.mark.parametrize(
    "scores",
    [
        lambda: classification_scores([], [], ["a", "b"]),
        lambda: multi_label_scores([("a",)], [], ["a"]),
        lambda: regression_scores([1.0], [1.0, 2.0]),
        lambda: tagging_scores([["O"]], [], ["O"]),
        lambda: answer_scores([], []),
        lambda: best_null_threshold([["a"]], ["a"], []),
    ],
)
def test_empty_sequences_and_unequal_lengths_are_rejected(scores):
    with pytest.raises(
        ValueError, match="same number of predictions and gold values, and at least one"
    ):
        scores()


def test_tags_must_match_the_number_of_words():
    with pytest.raises(ValueError, match="2 gold and 1 predicted tags for text 1"):
        tagging_scores([["O"], ["O", "O"]], [["O"], ["O"]], ["O"])
    with pytest.raises(ValueError, match="texts without words"):
        tagging_scores([[]], [[]], ["O"])


@pytest.mark.parametrize(
    ("module", "scores"),
    [
        ("sklearn.metrics", lambda: classification_scores(["a"], ["a"], ["a", "b"])),
        ("sklearn.metrics", lambda: multi_label_scores([("a",)], [("a",)], ["a"])),
        ("sklearn.metrics", lambda: tagging_scores([["a"]], [["a"]], ["a"])),
        ("scipy.stats", lambda: regression_scores([1.0], [1.0])),
    ],
)
def test_the_error_for_a_missing_library_explains_how_to_install_it(module, scores, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "keras-bert-d2l\[tasks\]"'):
        scores()


@pytest.mark.parametrize(
    ("task", "library"), [("classify", "sklearn"), ("tag", "sklearn"), ("regress", "scipy")]
)
def test_a_missing_library_is_reported_before_evaluation(monkeypatch, task, library):
    def without(module):
        if module.startswith(library):
            raise ImportError(f"No module named {module!r}")

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match=rf"keras-bert-d2l\[tasks\].*{library}"):
        metrics_library(task_named(task).library)
    assert task_named("answer").library is None
