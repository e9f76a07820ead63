import pytest

from keras_bert_d2l.text.tokenizer.framing import get_tokens_and_segments


def test_a_single_text_is_segment_zero():
    assert get_tokens_and_segments(["a", "b"]) == (["<cls>", "a", "b", "<sep>"], [0, 0, 0, 0])


def test_a_second_text_and_its_separator_are_segment_one():
    assert get_tokens_and_segments(["a"], ("b", "c")) == (
        ["<cls>", "a", "<sep>", "b", "c", "<sep>"],
        [0, 0, 0, 1, 1, 1],
    )


def test_an_empty_second_text_adds_a_separator_and_none_does_not():
    assert get_tokens_and_segments([], []) == (["<cls>", "<sep>", "<sep>"], [0, 0, 1])
    assert get_tokens_and_segments([], None) == (["<cls>", "<sep>"], [0, 0])


def test_the_inputs_are_not_changed():
    tokens_a, tokens_b = ["a"], ["b"]
    get_tokens_and_segments(tokens_a, tokens_b)
    assert (tokens_a, tokens_b) == (["a"], ["b"])


@pytest.mark.parametrize("texts", [("a text", None), (["a"], "a text")])
def test_a_string_in_place_of_tokens_is_rejected(texts):
    with pytest.raises(ValueError, match="'a text'"):
        get_tokens_and_segments(*texts)
