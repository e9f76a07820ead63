"""Texts without spaces: each character is a word, in training and for raw texts."""

import pytest
import tensorflow as tf

from keras_bert_d2l.signatures.characters import Characters
from keras_bert_d2l.tasks.tag.rows import split_texts, split_words
from keras_bert_d2l.text.unspaced import spaced, word_places
from tests.family import tokenizer_of
from tests.nightly import nightly_except

CHINESE, JAPANESE = "\u6211\u7231\u5317\u4eac", "\u30d1\u30ea\u3067 big"
THAI, KHMER = "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48", "\u1780\u1798\u17d2\u1796\u17bb\u1787\u17b6"
TEXTS = {
    f"Ada, {CHINESE}\u3002": [0, 5, 6, 7, 8, 9],
    f"{CHINESE[:2]} {CHINESE[2:]}cat": [0, 1, 3, 4, 5],
    JAPANESE: [0, 1, 2, 4],
    THAI: [0, 3],
    KHMER: [0, 1, 3, 5],
    "e\u0301clair \ud55c\uad6d\uc5b4 \u043f\u0440\u0438\u0432\u0435\u0442": [0, 8, 12],
    f"\u3000{CHINESE[:1]}\u3000a ": [1, 3],
    "": [],
}


def test_spaces_come_between_characters_of_scripts_without_spaces():
    for text, starts in TEXTS.items():
        parts, places = spaced(text)
        words = [n for n, x in enumerate(parts) if x.strip() and not parts[:n][-1:].strip()]
        assert [places[n] for n in words] == starts
        assert "".join(parts.split()) == "".join(text.split())
    assert [*map(word_places, ("Ada, it's", THAI))] == [
        [(0, 3), (3, 4), (5, 7), (7, 8), (8, 9)],
        [(0, 3), (3, 6)],
    ]


def test_the_graph_and_python_split_alike():
    found, places = Characters(tf.constant([*TEXTS])).spaced(tf.constant([*TEXTS]))
    for text, part, of_part in zip(TEXTS, found.numpy(), places.to_list(), strict=True):
        assert (part.decode(), of_part) == spaced(text)
    damaged = tf.constant([b"\xffa", b"\xe6"])
    assert (Characters(damaged).spaced(damaged)[0] == damaged).numpy().all()


@pytest.mark.parametrize(
    "name", nightly_except({"xlm-roberta", "mpnet"}, ["roberta", "xlm-roberta", "mpnet"])
)
def test_raw_texts_have_the_rows_of_texts_that_are_split_into_characters(name):
    tokenizer = tokenizer_of(name)
    for text in (CHINESE, f"cat {CHINESE} sat", THAI, f"{JAPANESE}"):
        parts = spaced(text)[0].split()
        raw, given = split_texts(tf.constant([text]), tokenizer), tf.ragged.constant([parts])
        split = split_words(given, tokenizer)
        assert raw.tokens.to_list() == split.tokens.to_list()
        assert raw.firsts.to_list() == split.firsts.to_list()
        places = zip(raw.starts.values.numpy(), raw.ends.values.numpy(), strict=True)
        assert [text[start:end] for start, end in places] == parts
        whole = split_texts(tf.constant([text]), tokenizer, into_tokens=True)
        assert whole.tokens.to_list() == tokenizer.tokenize([text]).to_list()
