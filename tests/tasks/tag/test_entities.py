import pytest

from keras_bert_d2l.tasks.tag.entities import has_scheme, span_scores, spans, tagging_scores


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
