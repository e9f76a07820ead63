"""NormalForm: the forms of Python, inert characters, and where new characters come from."""

import random
import unicodedata

import pytest
import tensorflow as tf

from keras_bert_d2l.text.unicode_forms import NormalForm
from keras_bert_d2l.text.unicode_gaps import used_codes
from tests.nightly import nightly_except

MARKS = "\u0300\u0301\u0308\u0315\u0323\u0327\u0345\u05b0\u302e\u3099\U0001d165\U0001d16d"
JAMO = "\u1100\u1112\u1161\u1175\u11a8\u11c2\uac00\ud55c"
OTHERS = "aeos\u00e9\u1e9b\u01d6\u0fb2\ufb01\uff71\u0dd9\u0dcf\u0dca\u09c7\u09be\u212b\u2126"


def normalized(texts, form, inert=()):
    codes = tf.ragged.constant([[*map(ord, text)] for text in texts], tf.int32)
    rows = tf.cast(codes.value_rowids(), tf.int32)
    found, rows, sources = NormalForm(form, inert)(codes.flat_values, rows)
    whole = tf.RaggedTensor.from_value_rowids(found, rows, nrows=len(texts))
    return ["".join(map(chr, row)) for row in whole.to_list()], sources.numpy().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("form", nightly_except(["NFKC"], ["NFC", "NFD", "NFKC", "NFKD"]))
def test_forms_equal_those_of_python(form):
    draw = random.Random(0)
    texts = ["".join(draw.choices(MARKS + JAMO + OTHERS, k=8)) for _ in range(2000)]
    texts += [f"{chr(code)}\u0301" for code in used_codes() if not 0xD800 <= code < 0xE000]
    assert normalized(texts, form)[0] == [unicodedata.normalize(form, text) for text in texts]


def test_inert_characters_neither_change_nor_move_nor_join():
    text = "e\u0301\u0323 \u00e9"
    assert normalized([text], "NFC", {0x301, 0xE9})[0] == [text]
    assert normalized([text], "NFC")[0] == ["\u1eb9\u0301 \u00e9"]


def test_new_characters_come_from_the_first_part_of_a_decomposition():
    assert normalized(["e\u0301x", "\ufb01"], "NFKC") == (["\u00e9x", "fi"], [0, 2, 3, 3])
