import dataclasses

import numpy as np
import pytest

from keras_bert_d2l.inference.evaluation import evaluate
from keras_bert_d2l.tasks.answer.evaluation import (
    answer_f1,
    answer_scores,
    best_null_threshold,
    exact_match,
    normalized_answer,
)
from keras_bert_d2l.tasks.answer.examples import Answer, QuestionExamples
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import answer


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


@pytest.fixture(scope="module")
def reader(open_task):
    """A question answerer whose answers start with a cat and end with a dog."""
    return open_task(QuestionAnswerer, {("cat", 0): 1.0, ("dog", 1): 1.0})


def questions(contexts, answers):
    found = tuple(
        tuple(Answer(text, context.index(text)) for text in texts)
        for context, texts in zip(contexts, answers, strict=True)
    )
    asked = ("on the mat",) * len(contexts)
    return QuestionExamples(questions=asked, contexts=contexts, answers=found)


def test_answers_are_scored_with_exact_match_and_f1(reader):
    contexts = ("the cat on dog", "cat sat ran dog")
    evaluation = evaluate(reader, questions(contexts, [["cat on dog"], ["cat", "ran dog"]]))
    assert evaluation.metrics == {"exact_match": 0.5, "f1": pytest.approx((1 + 2 / 3) / 2)}
    assert [found.text for found in evaluation.predictions] == ["cat on dog", "cat sat ran dog"]
    [mistake] = evaluation.errors
    assert (mistake.text, mistake.gold) == ("on the mat", "cat | ran dog")
    assert mistake.predicted == "cat sat ran dog"


@pytest.mark.long
def test_the_null_threshold_is_tuned_unless_it_is_passed(reader):
    contexts = ("cat dog", "mat ran", "cat on dog", "sat sat on")
    examples = questions(contexts, [["cat dog"], [], ["cat on dog"], []])
    spans = [best for [best] in answer(reader, list(examples.questions), list(contexts))]
    margins = [best.null_margin for best in spans]
    evaluation = evaluate(reader, examples)
    threshold = evaluation.metrics["null_threshold"]
    assert threshold == pytest.approx(max(margins[0], margins[2]))
    assert [found.text for found in evaluation.predictions] == ["cat dog", "", "cat on dog", ""]
    assert evaluation.metrics["exact_match"] == 1
    with pytest.raises(ValueError, match="`null_threshold` must be a finite number.*=inf"):
        evaluate(reader, examples, null_threshold=np.inf)
    never = evaluate(reader, examples, null_threshold=99.0)
    assert [found.text for found in never.predictions] == [best.text for best in spans]
    assert never.metrics["no_answer_accuracy"] == 0
    assert never.metrics["null_threshold"] == 99
    always = evaluate(reader, examples, null_threshold=-99.0)
    assert [found.text for found in always.predictions] == [""] * 4
    assert always.metrics["no_answer_accuracy"] == 1
    assert {mistake.gold for mistake in always.errors} == {"cat dog", "cat on dog"}
    for one, context in zip(evaluation.predictions, contexts, strict=True):
        [same] = answer(reader, "on the mat", context, null_threshold=threshold)
        assert (one.text, one.score) == (same.text, pytest.approx(same.score, abs=1e-5))


def test_a_context_without_tokens_has_no_answer(reader):
    found = evaluate(reader, questions(("cat dog", "\u200b"), [["cat dog"], []]))
    assert found.predictions[1].text == ""
    assert found.metrics["no_answer_accuracy"] == 1


def test_questions_that_are_too_long_count_as_unanswered(reader):
    examples = questions(("cat dog", "cat on dog"), [["cat dog"], ["cat on dog"]])
    long = dataclasses.replace(examples, questions=("the rug " * 9, "on the mat"))
    evaluation = evaluate(reader, long)
    assert evaluation.metrics == {"exact_match": 0.5, "f1": 0.5, "unread_questions": 1}
    assert [found.text for found in evaluation.predictions] == ["", "cat on dog"]
    assert evaluation.errors[0].predicted == ""
    with pytest.raises(ValueError, match="A question must have at most 7 tokens"):
        evaluate(reader, long.subset([0]))
