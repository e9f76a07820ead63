"""White space between words."""

import random

from keras_bert_d2l.text.words import single_spaced


def test_the_words_of_a_text_get_one_space_between_them():
    assert single_spaced(" a\tb  c\u00a0d\n") == "a b c d"
    assert single_spaced("a b") == "a b"
    assert single_spaced(" \n") == single_spaced("") == ""


def test_every_white_space_character_separates_words():
    spaces = [chr(code) for code in range(0x110000) if chr(code).isspace()]
    assert len(spaces) > 20
    for space in spaces:
        assert single_spaced(f"a{space}b{space}") == "a b"


def test_the_result_is_that_of_splitting_and_joining():
    draw = random.Random(0)
    for _ in range(2000):
        text = "".join(draw.choices("ab  \t\u00a0\u200b\u00e9\u2028", k=draw.randint(0, 8)))
        assert single_spaced(text) == " ".join(text.split())
