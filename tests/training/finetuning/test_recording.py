import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.inference.evaluation.evaluation import Confusion, Evaluation, Mistake
from keras_bert_d2l.training.finetuning.recording import record_of

TAGS = [kb.Tag("Ada", "B-PER", 0.9, None, None), kb.Tag("left", "O", 0.8, None, None)]
CASES = {
    "classify": (
        kb.TextExamples(texts=["a film"], labels=["good"]),
        kb.Classification("bad", 0.7, {"bad": 0.7, "good": 0.3}, ("bad",)),
        ("a film", "good", "bad", 0.7, False),
    ),
    "several labels": (
        kb.TextExamples(texts=["a film"], labels=[("x", "y")]),
        kb.Classification("y", 0.7, {"x": 0.6, "y": 0.7}, ("y", "x")),
        ("a film", "x, y", "y, x", 0.7, True),
    ),
    "regress": (
        kb.TextExamples(texts=["a"], texts_b=["b"], labels=[3.5], task="regress"),
        kb.Regression(3.25, {"similarity": 3.25}),
        ("a | b", "3.5", "3.250", None, None),
    ),
    "tag": (
        kb.WordExamples(words=[["Ada", "left"]], labels=[["B-PER", "O"]]),
        TAGS,
        ("Ada left", "Ada B-PER", "Ada B-PER", None, True),
    ),
    "answer": (
        kb.QuestionExamples(questions=["What?"], contexts=["A crane."], answers=[[]]),
        kb.FoundAnswer("crane", 0.6, 2, 7, 1.0, 0.0),
        ("What?", "", "crane", 0.6, False),
    ),
    "choose": (
        kb.ChoiceExamples(texts=["She opens"], choices=[["the door", "the sky"]], labels=[0]),
        kb.Choice(0, "the door", 0.8, (0.8, 0.2)),
        ("She opens", "the door", "the door", 0.8, True),
    ),
    "embed": (
        kb.PairExamples(texts=["a"], texts_b=["b"]),
        0.25,
        ("a | b", None, "0.250", None, None),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_samples_show_text_gold_prediction_and_score(name):
    examples, found, (text, gold, predicted, score, is_right) = CASES[name]
    evaluation = Evaluation(examples.task, {}, [found], [], None, 1)
    assert record_of(evaluation, examples) == {
        "samples": [
            {"text": text, "gold": gold, "answers": [(predicted, score)], "is_right": is_right}
        ],
        "errors": [],
        "confusion": None,
    }


def test_samples_are_spread_over_the_examples_and_long_texts_are_shortened():
    examples = kb.PairExamples(
        texts=[f"{n} " + "word " * 200 for n in range(91)], texts_b=["b"] * 91
    )
    mistakes = [Mistake("1", examples.texts[0], "b", "c", 0.5)]
    found = record_of(Evaluation("embed", {}, [0.5] * 91, mistakes, None, 91), examples)
    texts = [sample["text"] for sample in found["samples"]]
    assert [int(text.split()[0]) for text in texts] == list(range(0, 91, 10))
    assert all(len(text) <= 300 and text.endswith(" ...") for text in texts)
    [error] = found["errors"]
    assert error["text"].endswith("word ...")
    assert (error["gold"], error["predicted"], error["score"]) == ("b", "c", 0.5)


def test_a_large_confusion_matrix_is_a_list_of_the_most_frequent_confusions():
    examples, found, _ = CASES["classify"]
    counts = np.eye(2, dtype=int) * 5
    counts[0, 1] = 3
    small, large = (
        record_of(Evaluation("classify", {}, [found], [], Confusion(labels, matrix), 1), examples)[
            "confusion"
        ]
        for labels, matrix in (
            (("a", "b"), counts),
            (tuple(map(str, range(20))), np.pad(counts, (0, 18))),
        )
    )
    assert small == {"labels": ("a", "b"), "counts": [[5, 3], [0, 5]]}
    assert large == {"most_frequent": [("0", "1", 3)]}


def test_samples_are_spread_over_the_labels():
    labels = ["a"] * 90 + ["b", "c"] * 5
    examples = kb.TextExamples(texts=list(map(str, range(100))), labels=labels[::-1])
    prediction = kb.Classification("a", 1.0, {"a": 1.0}, ("a",))
    found = record_of(Evaluation("classify", {}, [prediction] * 100, [], None, 100), examples)
    golds = [sample["gold"] for sample in found["samples"]]
    assert golds == ["a"] * 9 + ["c"]
    assert len({sample["text"] for sample in found["samples"]}) == 10
