import pytest

from keras_bert_d2l.tasks.tag.entities import scheme_of, span_scores, spans, tagging_scores


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X O B-Y", [("X", 0, 2), ("Y", 3, 4)]),
        ("B-X B-X I-X", [("X", 0, 1), ("X", 1, 3)]),
        ("I-X I-X O I-Y", [("X", 0, 2), ("Y", 3, 4)]),  # IOB1
        ("B-X I-Y I-Y", [("X", 0, 1), ("Y", 1, 3)]),  # a different type starts a new span
        ("B-X I-X E-X S-Y", [("X", 0, 3), ("Y", 3, 4)]),  # BIOES
        ("E-X E-X I-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 3)]),
        ("B-X O E-X", [("X", 0, 1), ("X", 2, 3)]),
        ("B I O B", [("_", 0, 2), ("_", 3, 4)]),
        ("B-X-Y I-X-Y", [("X-Y", 0, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_tags_mark_spans(tags, expected):
    assert spans(tags.split()) == expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X L-X U-X", [("X", 0, 3), ("X", 3, 4)]),  # BILOU
        ("B-X M-X E-X S-Y", [("X", 0, 3), ("Y", 3, 4)]),  # Chinese corpora
        ("B M E S", [("_", 0, 3), ("_", 3, 4)]),
        ("B-X I-X W-Y", [("X", 0, 2), ("Y", 2, 3)]),  # BMEWO
        ("X-B X-I O Y-B", [("X", 0, 2), ("Y", 3, 4)]),
        ("X_B X_M X_E Y_S O", [("X", 0, 3), ("Y", 3, 4)]),
        ("B_X I_X O", [("X", 0, 2)]),
        ("b-x i-x o s-y", [("x", 0, 2), ("y", 3, 4)]),
        ("b i o b", [("_", 0, 2), ("_", 3, 4)]),
        ("B-X I-X 0 B-Y", [("X", 0, 2), ("Y", 3, 4)]),
        ("B:X I:X O", [("X", 0, 2)]),
        ("B-X_1 I-X_1 O", [("X_1", 0, 2)]),
        ("X.b X.i 0", [("X", 0, 2)]),
        ("B-X I-X O o B-Y 0", [("X", 0, 2), ("Y", 4, 5)]),
    ],
)
def test_schemes_are_read_as_data_sets_write_them(tags, expected):
    scheme = scheme_of(tags.split())
    assert spans([scheme[tag] for tag in tags.split()]) == expected
    scores = tagging_scores([tags.split()], [tags.split()], tags.split())
    assert scores["f1"] == 1


@pytest.mark.parametrize(
    "labels",
    [
        "S M",
        "s e",
        "NN_S VB_S",
        "0 1 2",
        "PER LOC O",
        "O X B-PER I-PER",
        "W-X E-X",
        "b-x c-x o",
        "O",
        "",
    ],
)
def test_labels_that_only_resemble_a_scheme_have_none(labels):
    assert scheme_of(labels.split()) is None


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
