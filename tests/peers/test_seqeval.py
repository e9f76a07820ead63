"""Entity spans and their precision, recall and F1, compared with seqeval."""

import random

import pytest

from keras_bert_d2l.tasks.tag.entities import spans, tagging_scores

seqeval = pytest.importorskip("seqeval.metrics", reason="needs seqeval: make test-peers")
labeling = pytest.importorskip("seqeval.metrics.sequence_labeling")

# seqeval warns about divisions by zero in scores.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")

SCHEMES = {"bio": "BIO", "plain": "IO", "bioes": "BIOES", "ends": "IOE"}


def random_tags(letters, rng, typed=True):
    """Return tags in random order; most sequences violate their scheme."""
    types = ["PER", "LOC", "A-B"] if typed else [""]
    return [
        letter if letter == "O" or not typed else f"{letter}-{rng.choice(types)}"
        for letter in rng.choices(letters, k=rng.randint(0, 12))
    ]


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_random_tags_give_the_same_spans_as_seqeval(scheme, typed):
    rng = random.Random(0)
    for _ in range(1500):
        tags = random_tags(SCHEMES[scheme], rng, typed)
        expected = [(type_, first, last + 1) for type_, first, last in labeling.get_entities(tags)]
        assert spans(tags) == expected, tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_random_tags_give_the_same_scores_as_seqeval(scheme):
    rng = random.Random(1)
    for _ in range(100):
        gold = [random_tags(SCHEMES[scheme], rng) for _ in range(5)]
        predicted = [
            [tag if rng.random() < 0.6 else rng.choice(tags) for tag in tags] for tags in gold
        ]
        if not any(gold):
            continue
        labels = sorted({tag for tags in [*gold, ["B-PER"]] for tag in tags})
        assert tagging_scores(gold, predicted, labels) == {
            "accuracy": pytest.approx(seqeval.accuracy_score(gold, predicted)),
            "precision": pytest.approx(seqeval.precision_score(gold, predicted)),
            "recall": pytest.approx(seqeval.recall_score(gold, predicted)),
            "f1": pytest.approx(seqeval.f1_score(gold, predicted)),
        }
