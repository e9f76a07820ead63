import pytest

from keras_bert_d2l.text.tokenizer.segments import get_tokens_and_segments


def test_one_text_is_segment_zero_between_its_special_tokens():
    assert get_tokens_and_segments(["a", "b"]) == (["<cls>", "a", "b", "<sep>"], [0, 0, 0, 0])


def test_a_second_text_is_segment_one_with_its_separator():
    assert get_tokens_and_segments(["a"], ("b", "c")) == (
        ["<cls>", "a", "<sep>", "b", "c", "<sep>"],
        [0, 0, 0, 1, 1, 1],
    )


def test_an_empty_second_text_is_a_separator_while_none_is_nothing():
    assert get_tokens_and_segments([], []) == (["<cls>", "<sep>", "<sep>"], [0, 0, 1])
    assert get_tokens_and_segments([], None) == (["<cls>", "<sep>"], [0, 0])


def test_the_inputs_are_not_changed():
    tokens_a, tokens_b = ["a"], ["b"]
    get_tokens_and_segments(tokens_a, tokens_b)
    assert (tokens_a, tokens_b) == (["a"], ["b"])


@pytest.mark.parametrize("texts", [("a text", None), (["a"], "a text")])
def test_a_text_in_the_place_of_tokens_is_refused(texts):
    with pytest.raises(ValueError, match="'a text'"):
        get_tokens_and_segments(*texts)
