"""The signatures of every task take any strings, and say what they lack."""

import numpy as np
import pytest

from keras_bert_d2l.tasks.tag.predictions import tag
from tests.serving.conftest import INPUTS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", INPUTS)
def test_no_text_produces_nan_or_infinity(name, ask_signature):
    hostile = ["", "\0", "[MASK]" * 9, "\ufffd", "é" * 300, "red " * 300, " \n\t", "\u202e😀"]
    strings = [*(text.encode() for text in hostile), b"\xff\xfe red", b"\xed\xa0\x80"]
    answers = ask_signature(name, **dict.fromkeys(INPUTS[name], strings))
    for array in answers.values():
        assert len(array) == len(strings)
        if array.dtype == np.float32:
            assert np.isfinite(array).all()
        elif array.dtype == object:
            for value in array.ravel():
                value.decode()  # it can be written as JSON


def test_all_words_of_a_long_text_are_tagged_and_wrong_bytes_replaced(ask_signature, task_models):
    text = "red, greenish " * 3 + "blue " * 100
    answers = ask_signature("tagger", text=[text, "red", b"red \xff\xfe blue"])
    expected = tag(task_models["tagger"], text)
    assert not answers["truncated"].any()
    assert [word.decode() for word in answers["words"][0]] == [one.word for one in expected]
    assert [label.decode() for label in answers["labels"][0]] == [one.label for one in expected]
    scores = [one.score for one in expected]
    np.testing.assert_allclose(answers["scores"][0], scores, rtol=0, atol=1e-5)
    assert answers["words"][1].tolist() == [b"red"] + [b""] * (len(expected) - 1)
    assert answers["words"][2, :3].tolist() == [b"red", "\ufffd\ufffd".encode(), b"blue"]
    assert answers["starts"][2, :3].tolist() == [0, 4, 7]


def test_only_the_start_of_a_megabyte_of_text_is_read(ask_signature):
    begin = "red, greenish " * 12  # more tokens than the model reads
    answers = ask_signature("classifier", text=[begin + "blue " * 200_000, begin])
    assert answers.pop("truncated").tolist() == [True, True]
    for array in answers.values():
        np.testing.assert_array_equal(array[0], array[1])
