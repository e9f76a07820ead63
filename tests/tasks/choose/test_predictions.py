import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from keras_bert_d2l import ChoiceExamples, MultipleChoice, choose, evaluate
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures

pytestmark = pytest.mark.filterwarnings("ignore:Truncated to")

TEXTS = ["the cat", "the dog sat on the mat and the dog ran on and on"]
CHOICES = [["sat", "the rug ran", "good"], ["ran " * 20, "on"]]


@pytest.fixture(scope="module")
def model(words_bert):
    model = MultipleChoice(words_bert)
    model.run_eagerly = True
    model.head.kernel.assign(np.random.default_rng(1).normal(0, 1, model.head.kernel.shape))
    return model


@pytest.mark.slow
def test_the_scores_are_the_softmax_of_the_models_scores(model):
    found = choose(model, TEXTS, CHOICES, batch_size=2)
    for text, choices, one in zip(TEXTS, CHOICES, found, strict=True):
        logits = model(model.tokenizer([text] * len(choices), choices, max_len=16))
        scores = softmax(np.asarray(logits))
        np.testing.assert_allclose(one.scores, scores, rtol=0, atol=1e-6)
        assert (one.index, one.choice) == (scores.argmax(), choices[scores.argmax()])
        assert one.score == one.scores[one.index]
    assert choose(model, TEXTS[0], CHOICES[0]).choice == found[0].choice
    assert choose(model, [], []) == []


@pytest.mark.parametrize(
    ("texts", "choices", "message"),
    [
        ("a", "b", "a list of at least two choices"),
        ("a", ["b"], "at least two choices"),
        (["a"], ["b", "c"], "each of the 1 texts. Received: 2"),
    ],
)
def test_wrong_choices_are_rejected(model, texts, choices, message):
    with pytest.raises(ValueError, match=message):
        choose(model, texts, choices)


def test_evaluation_reports_accuracy_and_errors(model):
    right = [one.index for one in choose(model, TEXTS, CHOICES)]
    examples = ChoiceExamples(texts=TEXTS, choices=CHOICES, labels=[right[0], 1 - right[1]])
    found = evaluate(model, examples)
    assert found.metrics["accuracy"] == 0.5
    assert found.decisions.is_right.tolist() == [True, False]
    [mistake] = found.errors
    assert (mistake.gold, mistake.predicted) == (CHOICES[1][1 - right[1]], CHOICES[1][right[1]])


@pytest.mark.slow
def test_the_signature_gives_the_same_choices(model):
    signatures = model_signatures(model, model.tokenizer, TextOptions(False, 1, None))
    assert set(signatures) == {"serving_default", "tokens"}
    serve, padded = signatures["serving_default"].function, [CHOICES[0], [*CHOICES[1], ""]]
    found = serve(tf.constant(TEXTS), tf.constant(padded))
    for row, one in enumerate(choose(model, TEXTS, CHOICES)):
        number = len(one.scores)
        np.testing.assert_allclose(found["scores"][row, :number], one.scores, rtol=0, atol=1e-5)
        assert not found["scores"][row, number:].numpy().any()
        assert found["index"][row] == one.index
        assert found["choice"][row] == one.choice.encode()
    assert found["truncated"].numpy().tolist() == [False, True]
    with pytest.raises(tf.errors.InvalidArgumentError, match="one row per text"):
        serve(tf.constant(TEXTS), tf.constant([["a", "b"]]))
