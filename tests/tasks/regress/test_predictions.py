import numpy as np
import pytest

from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import evaluate
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.regress.predictions import regress, regression_scores

TEXTS = ["the cat is good", "a bad dog sat on the mat .", "good", "bad bad bad good rug"]


def test_correlations_match_hand_calculation():
    assert regression_scores([1, 2, 3, 4], [1, 3, 2, 4]) == {
        "pearson": pytest.approx(0.8),
        "spearman": pytest.approx(1 - 6 * 2 / (4 * 15)),
        "mean_squared_error": pytest.approx(0.5),
    }


@pytest.mark.parametrize(("gold", "predicted"), [([1, 2], [3, 3]), ([3, 3], [1, 2]), ([1], [2])])
def test_the_correlation_with_a_constant_is_0(gold, predicted):
    scores = regression_scores(gold, predicted)
    assert (scores["pearson"], scores["spearman"]) == (0, 0)


def test_a_regressor_is_evaluated_with_correlations(open_task):
    model = open_task(SequenceRegressor, {("good", 0): 1.0})
    texts = ("good", "good rug", "good rug rug rug")
    evaluation = evaluate(model, TextExamples(task="regress", texts=texts, labels=(5.0, 3.0, 1.0)))
    assert evaluation.metrics["spearman"] == pytest.approx(1)
    found = [one.score for one in evaluation.predictions]
    off = [abs(one - gold) for one, gold in zip(found, (5, 3, 1), strict=True)]
    assert evaluation.metrics["mean_squared_error"] == pytest.approx(np.square(off).mean())
    assert [mistake.score for mistake in evaluation.errors] == sorted(off, reverse=True)
    assert evaluation.errors[0].gold == "5"


def test_a_regressor_with_several_scores_cannot_be_evaluated(open_bert):
    model = SequenceRegressor(open_bert, ["x", "y"])
    examples = TextExamples(task="regress", texts=("a",), labels=(1.0,))
    with pytest.raises(ValueError, match="one score each. Received: a model with the scores"):
        evaluate(model, examples)


def test_the_score_of_a_text_is_the_output_of_the_model(open_task, words_tokenizer):
    model = open_task(
        SequenceRegressor, {("good", 0): 1.0, ("bad", 1): 1.0}, labels=["joy", "grief"]
    )
    found = regress(model, TEXTS)
    for text, one in zip(TEXTS, found, strict=True):
        outputs = np.asarray(model(words_tokenizer(text)))[0]
        assert list(one.scores) == ["joy", "grief"]
        np.testing.assert_allclose(list(one.scores.values()), outputs, atol=1e-6)
        assert one.score == one.scores["joy"]
    assert found[2].score > found[0].score > found[1].score
    assert regress(model, "good").score == pytest.approx(found[2].score)
