import numpy as np
import pytest

from keras_bert_d2l.tasks.answer.predictions import answer
from tests.tasks.conftest import THRESHOLD

pytestmark = pytest.mark.slow

MAX_QUESTION_LEN = 12  # of 24 tokens
LONG = " ".join(np.random.default_rng(0).choice(["red", "green", "blueish", ","], 500))
ACCENTS = "gre\u0301en red\u0301 blue\u0301\u0308"
CUT = "red " * MAX_QUESTION_LEN
ROWS = [  # questions and contexts
    *(("green", LONG), ("red", "blue"), ("red", ACCENTS)),
    *(("red " * 50, "green blue red"), (CUT, "green blue red")),
    *(("red", ""), ("", " \x7f"), ("red", b"\xff")),
]


@pytest.fixture(scope="module")
def answers(ask_signature):
    questions, contexts = zip(*ROWS, strict=True)
    return ask_signature("answerer", question=questions, context=contexts)


def expected(model, questions, contexts):
    return answer(model, questions, contexts, top_k=3, null_threshold=THRESHOLD)


def check_row(answers, row, found):
    """Compare a row with the results of `answer`, which may be fewer."""
    missing = [0] * (answers["answers"].shape[1] - len(found))
    texts = [text.decode() for text in answers["answers"][row]]
    assert texts == [one.text for one in found] + [""] * len(missing)
    for name in ("start", "end"):
        places = [getattr(one, name) for one in found] + missing
        assert answers[f"{name}s"][row].tolist() == places
    scores = [one.score for one in found] + missing
    np.testing.assert_allclose(answers["scores"][row], scores, atol=1e-5)
    assert answers["answer"][row].decode() == found[0].text


def test_a_long_context_is_searched_completely_and_accents_belong_to_an_answer(
    answers, task_models
):
    found = expected(task_models["answerer"], ["green", "red", "red"], [LONG, "blue", ACCENTS])
    for row, one in enumerate(found):
        check_row(answers, row, one)
    assert {one.text[-1] for one in found[2] if one.text} <= {"\u0301", "\u0308"}


def test_a_question_that_is_too_long_is_truncated(answers):
    assert answers["truncated"].tolist() == [row == 3 for row in range(len(ROWS))]
    for name in set(answers) - {"truncated"}:
        np.testing.assert_array_equal(answers[name][3], answers[name][4])


def test_a_context_without_words_has_no_answer_and_wrong_bytes_are_replaced(answers):
    assert answers["answer"][5:7].tolist() == [b"", b""]
    for name in ("start", "end", "null_score"):
        assert answers[name][5:7].tolist() == [0, 0]
    assert "\ufffd".encode() in answers["answers"][7].tolist()


def test_no_answer_is_the_best_answer_above_the_threshold(ask_signature, task_models):
    model, words = task_models["answerer"], ["red", "green", "blueish", ","]
    rng = np.random.default_rng(0)
    contexts = ["red", "blue red", *(" ".join(rng.choice(words, 3 * n)) for n in range(1, 25))]
    questions = [str(rng.choice(words[:3])) for _ in contexts]
    margins = [best.null_margin for [best] in answer(model, questions, contexts)]
    found = ask_signature("answerer", question=questions, context=contexts)
    wanted = expected(model, questions, contexts)
    assert 5 < sum(not one[0].text for one in wanted) < len(contexts) - 5
    for row, one in enumerate(wanted):
        check_row(found, row, one)
    np.testing.assert_allclose(found["null_score"], margins, atol=1e-5)


def test_questions_need_a_context_each(ask_signature):
    with pytest.raises(ValueError, match="same number of texts, one pair per row"):
        ask_signature("answerer", question=["red"], context=["blue", "red"])
