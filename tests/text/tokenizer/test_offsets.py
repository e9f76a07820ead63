"""Offsets: from tokens to characters of the original text, and back."""

import random

import pytest
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.framing import answer_spans
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab

LETTERS = "abcdefghij"
TOKENS = [*GOOGLE_SPECIALS, *LETTERS, *(f"##{c}" for c in LETTERS), ".", "東", "ᄀ", "##ᅡ"]


@pytest.fixture(scope="module", params=["google", "huggingface"])
def tokenizer(request):
    return Tokenizer(Vocab(TOKENS), compat=request.param)


def slices(tokenizer, text):
    offsets = {name: rows.to_list()[0] for name, rows in tokenizer.with_offsets([text]).items()}
    return [text[s:e] for s, e in zip(offsets["starts"], offsets["ends"], strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab. C", ["a", "b", ".", "C"]),
        ("ÀB É", ["À", "B", "É"]),
        ("A\u0300b\u0301 c", ["A", "b", "c"]),
        ("a\u00ad\u200bb\x00 c", ["a", "b", "c"]),
        ("\ufeffa 東b東", ["a", "東", "b", "東"]),
        ("a[MASK]b [SEP]", ["a", "[MASK]", "b", "[SEP]"]),
        ("[MASK][MASK]", ["[MASK]", "[MASK]"]),
        ("[MASK", ["[", "MASK"]),
        ("가 a", ["가", "가", "a"]),
        ("𝒜𝒜 a", ["𝒜𝒜", "a"]),
        ("a\x01b \x01MASK\x01", ["a", "b", "MASK"]),
        ("", []),
        (" \t\n", []),
        ("x" * 300 + " a", ["x" * 300, "a"]),
    ],
    ids=ascii,
)
def test_offsets_give_the_characters_of_each_token(tokenizer, text, expected):
    assert slices(tokenizer, text) == expected


def test_offsets_of_special_tokens_work_in_either_spelling():
    tokenizer = Tokenizer(Vocab([*BOOK_SPECIALS, *LETTERS]))
    assert slices(tokenizer, "a<mask> b[UNK]") == ["a", "<mask>", "b", "[UNK]"]


def test_offsets_of_the_users_special_tokens():
    own = ["[E1]", "@", "<é>"]
    tokenizer = Tokenizer(Vocab([*TOKENS, *own]), special_tokens=own)
    text = "[E1]ÀB[E1] @@ [MASK]@<é>\u200b É<é>\x03a"
    pieces = ["[E1]", "À", "B", "[E1]", "@", "@", "[MASK]", "@", "<é>", "É", "<é>", "a"]
    assert slices(tokenizer, text) == pieces
    window = tokenizer.windows("a", text, max_len=20)
    spans = tf.stack([window["starts"], window["ends"]], axis=-1)[0, 3:15].numpy()
    assert [text[start:end] for start, end in spans] == pieces


@pytest.mark.slow
def test_offsets_do_not_depend_on_the_batch(tokenizer):
    draw = random.Random(0)
    alphabet = [*LETTERS, *"ÀÉ東가 .", "\u0301", "\u200b", "[MASK]", "𝒜", "  "]
    texts = ["".join(draw.choices(alphabet, k=draw.randrange(30))) for _ in range(50)]
    batch = tokenizer.with_offsets(texts)
    assert batch["tokens"].to_list() == tokenizer.tokenize(texts).to_list()
    for i, text in enumerate(texts):
        for name, rows in tokenizer.with_offsets(text).items():
            assert rows.to_list()[0] == batch[name][i].numpy().tolist()
            assert rows.dtype == tf.int32
        for token, start, end in zip(*(batch[name][i].numpy() for name in batch), strict=True):
            (alone,) = tokenizer.tokenize(text[start:end]).to_list()
            assert tokenizer.vocab.to_tokens(int(token)).removeprefix("##") in [
                piece.removeprefix("##") for piece in tokenizer.vocab.to_tokens(alone)
            ]


@pytest.mark.slow
def test_a_graph_gives_the_same_result(tokenizer):
    texts = tf.constant(["ab É [MASK]", "", "x" * 300])
    traced = tf.function(tokenizer.with_offsets, input_signature=[tf.TensorSpec(None, tf.string)])
    for name, rows in tokenizer.with_offsets(texts).items():
        assert traced(texts)[name].to_list() == rows.to_list()


def test_bytes_that_are_not_utf8_count_as_characters(tokenizer):
    offsets = tokenizer.with_offsets([b"a\xff b", b"\xf0\x9f a"])
    assert offsets["tokens"].to_list() == tokenizer.tokenize([b"a\xff b", b"\xf0\x9f a"]).to_list()
    assert offsets["starts"].to_list() == [[0, 3], [0, 2]]


def test_ranges_of_characters_map_to_spans_of_tokens(tokenizer):
    text = "ab É 가 [MASK]\u200b."
    ranges = [*((i, i + 1) for i in range(len(text))), (0, 2), (1, 4), (3, 6), (4, 14)]
    tokens = [0, 1, None, 2, None, 3, None, *[5] * 6, None, 6]
    expected = [(token, token) for token in tokens] + [(0, 1), (1, 2), (2, 4), (3, 5)]
    windows = tokenizer.windows([""] * len(ranges), [text] * len(ranges), max_len=12)
    spans = answer_spans(windows, *zip(*ranges, strict=True)).numpy().tolist()
    found = [(first - 2, last - 2) if first else (None, None) for first, last in spans]
    for characters, one, other in zip(ranges, found, expected, strict=True):
        assert one == other, characters
