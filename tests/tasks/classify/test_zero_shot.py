import numpy as np
import pytest

from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import zero_shot
from keras_bert_d2l.text_arguments import TruncationWarning

NLI = ["neutral", "ENTAILMENT", "contradiction"]


@pytest.fixture(scope="module")
def nli(words_bert):
    model = SequenceClassifier(words_bert, NLI)
    model.head.kernel.assign(np.random.default_rng(0).normal(0, 3, (8, 3)))
    model.head.bias.assign([0, 4.9, 0])  # probabilities of entailment are about 0.5
    model.run_eagerly = True
    return model


def logits(model, tokenizer, text, label, template):
    return np.asarray(model(tokenizer(text, template.replace("{}", label))), "float64")[0]


@pytest.mark.slow
def test_labels_compete_by_their_logits_of_entailment(nli, words_tokenizer):
    texts, labels, template = ["the rug", "cat"], ["good", "bad", "the cat"], "it is {} ."
    found = zero_shot(nli, texts, labels, template=template, batch_size=4)
    for text, one in zip(texts, found, strict=True):
        row = [logits(nli, words_tokenizer, text, label, template)[1] for label in labels]
        expected = np.exp(row) / np.exp(row).sum()
        assert list(one.scores) == labels
        np.testing.assert_allclose(list(one.scores.values()), expected, atol=1e-6)
        best = labels[int(np.argmax(row))]
        assert (one.label, one.score, one.labels) == (best, one.scores[best], (best,))


@pytest.mark.long
def test_each_label_is_judged_alone_if_there_may_be_several(nli, words_tokenizer):
    labels = ["cat", "dog", "good cat"]
    one = zero_shot(nli, "the rug", labels, template="a {}", multi_label=True)
    for label in labels:
        _, entails, contradicts = logits(nli, words_tokenizer, "the rug", label, "a {}")
        expected = 1 / (1 + np.exp(contradicts - entails))
        assert one.scores[label] == pytest.approx(expected, abs=1e-6)
    assert one.labels == tuple(label for label in labels if one.scores[label] >= 0.5)
    assert one.labels == ("cat", "good cat")
    alone = zero_shot(nli, "the rug", ["cat"], template="a {}")
    assert alone.scores == {"cat": pytest.approx(one.scores["cat"], abs=1e-6)}


def test_a_model_with_two_labels_has_the_other_one_for_contradiction(open_task):
    weights = {("cat", 0): 9.0, ("dog", 1): 9.0}
    model = open_task(SequenceClassifier, weights, labels=["entails", "does not"])
    found = zero_shot(model, ["rug"], ["cat", "dog"], multi_label=True)
    assert found[0].labels == ("cat",)


def test_long_texts_are_truncated_and_hypotheses_are_not(nli):
    with pytest.warns(TruncationWarning, match=": 1 pair. "):
        found = zero_shot(nli, ["rug " * 40, "rug " * 12], ["good"], template="{}")
    assert found[0].score == pytest.approx(found[1].score)
    with pytest.raises(ValueError, match="max_len=16"):
        zero_shot(nli, "rug", ["cat " * 20])
    with pytest.raises(ValueError, match="A text must not be empty. Received: '' at index 0"):
        zero_shot(nli, "", ["cat"])
    assert zero_shot(nli, [], ["cat"]) == []


@pytest.mark.parametrize(
    ("labels", "template", "message"),
    [
        ("cat", "{}", "`labels` must be a list of texts. Received: labels='cat'"),
        (["cat", "cat"], "{}", "`labels` must be different texts"),
        (["cat", " "], "{}", "A label must not be empty"),
        (["cat"], "about it", "`template` must be a text with {}"),
    ],
)
def test_labels_must_differ_and_fit_into_the_template(labels, template, message, nli):
    with pytest.raises(ValueError, match=message):
        zero_shot(nli, "the rug", labels, template=template)


def test_the_model_must_be_for_inference(open_task):
    model = open_task(SequenceClassifier, {}, labels=["bad", "good"])
    with pytest.raises(ValueError, match="begin with 'entail'.*Received: .*the labels .'bad'"):
        zero_shot(model, "the rug", ["cat"])
    model = open_task(SequenceClassifier, {}, labels=["entailment", "neutral", "other"])
    with pytest.raises(ValueError, match="begin with 'entail' and 'contradict'"):
        zero_shot(model, "the rug", ["cat", "dog"], multi_label=True)
