import math

import numpy as np
import pytest

from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.tasks.answer.examples import Answer, QuestionExamples
from keras_bert_d2l.tasks.choose.examples import ChoiceExamples
from keras_bert_d2l.tasks.embed.examples import PairExamples
from keras_bert_d2l.tasks.tag.examples import WordExamples


def test_a_subset_has_the_examples_at_the_given_positions():
    examples = TextExamples(texts=["a", "b", "c"], labels=["x", "y", "x"])
    assert examples.ids == ("0", "1", "2")
    assert examples.subset([2, 0]).texts == ("c", "a")
    assert examples.subset([]).ids == ()
    assert examples.subset(np.flatnonzero([False, True, True])).texts == ("b", "c")
    for index in (True, np.True_, 0.9, "1", 3, -4):
        with pytest.raises(ValueError, match=f"`indices` must be.*=.*{index!r:.4}.*flatnonz"):
            examples.subset([0, index])
    assert examples.without_labels().labels is None


ASKED = {"questions": ["a"], "contexts": ["b"]}
CHOICES = {"texts": ["q"], "choices": [["x", "y"]]}
TRIPLET = {"texts": ["a"], "texts_b": ["b"], "negatives": ["c"]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextExamples(texts="ab"), "`texts` must be a list.*'ab'"),
        (lambda: TextExamples(texts=["a", 3]), "`texts` .* must be a string. .*3 in example '1'"),
        (lambda: WordExamples(words=["ab"]), "`words` .* must be a tuple of strings.*'ab'"),
        (lambda: QuestionExamples(**{**ASKED, "contexts": None}), "`contexts` must be a list"),
        (lambda: QuestionExamples(**ASKED, answers=["a"]), "`answers` .*tuple of `Answer`"),
        (lambda: QuestionExamples(**ASKED, answers=[[Answer("c", 0)]]), "position.*'c' at .* 0"),
        (lambda: TextExamples(texts=["a", "b"], labels=["x"]), "equal lengths.*2 texts, 1 labels"),
        (lambda: WordExamples(words=[["a", "b"]], labels=[["X"]]), "2 words but 1 .*example '0'"),
        (lambda: TextExamples(task="tag", texts=["a"]), "`task` must be"),
        (lambda: TextExamples(texts=["a", "so \ud83d"]), "surrogate pair.*in example '1'"),
        (lambda: WordExamples(words=[["a"], ["b", "\ud83d"]]), "surrogate pair.*example '1'"),
        (lambda: ChoiceExamples(**{**CHOICES, "choices": [["x"]]}), "at least two strings"),
        (lambda: ChoiceExamples(**CHOICES, labels=[2]), "from 0 to 1. Received: 2"),
        (lambda: PairExamples(texts=["a"]), "`texts_b` must have the second text"),
        (lambda: PairExamples(texts=["a"], texts_b=["b"], labels=["yes"]), "finite .*: 'yes'"),
    ],
)
def test_sequences_with_wrong_items_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_labels_must_be_strings_or_numbers():
    texts = ["a", "b"]
    assert TextExamples(task="regress", texts=texts, labels=np.float32([1, 2])).labels == (1, 2)
    assert TextExamples(texts=texts, labels=np.array(["x", "y"])).label_names == ("x", "y")
    for task, labels in (
        ("classify", (0, 1)),
        ("classify", ("x", ("y",))),
        ("classify", (("x",), (1, 2))),
        ("regress", (True, False)),
        ("regress", (0.5, math.nan)),
    ):
        with pytest.raises(ValueError, match=f"`labels` for the task '{task}' must be "):
            TextExamples(task=task, texts=texts, labels=labels)
    with pytest.raises(ValueError, match=r"one label name per word.*\[0, 3\] in example '0'"):
        WordExamples(words=[["a", "b"]], labels=[[0, 3]])
