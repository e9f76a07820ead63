"""The library tokenizers outside of graphs gives the ids and offsets of TensorFlow's operations."""

import json
import random
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.text.definition import from_json
from keras_bert_d2l.text.tokenizer import tokenizer as module
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab
from tests.nightly import nightly_except
from tests.published import load, read
from tests.text.tokenizer.byte_level import roberta_fields

pytest.importorskip("tokenizers", reason="needs tokenizers")

WORDPIECE = ["uncased-google", "cased-google", "uncased-huggingface", "cased-huggingface"]
PUBLISHED = ["albert-base-v2", "chinese-u2028", "modernbert-base", "mpnet-base"]
PUBLISHED += ["beto-added-tokens", "bert-no-model-type", "camembert-transformers5"]
DAILY = ["cased-huggingface", "roberta-base-json"]


def by_tensorflow(function, *arguments, **options):
    """Call a function of a tokenizer without the library tokenizers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "are_short", lambda texts: False)
        return function(*arguments, **options)


def assert_equal(function, *arguments, **options):
    """Compare the library tokenizers with TensorFlow."""
    actual = function(*arguments, **options)
    for name, expected in by_tensorflow(function, *arguments, **options).items():
        assert as_list(actual[name]) == as_list(expected), name
        assert actual[name].dtype == expected.dtype


def as_list(rows):
    return rows.to_list() if isinstance(rows, tf.RaggedTensor) else rows.numpy().tolist()


@pytest.fixture(scope="module", params=nightly_except(DAILY, [*WORDPIECE, *PUBLISHED, DAILY[1]]))
def tokenizer(request, data_dir, tmp_path_factory):
    if request.param not in WORDPIECE:
        return load(data_dir, request.param, tmp_path_factory.mktemp("published"))
    name, compat = request.param.split("-")
    vocab = Vocab.from_file(data_dir / f"vocab/bert-base-{name}-vocab.txt")
    return Tokenizer(vocab, lowercase=name == "uncased", compat=compat)


@pytest.fixture(scope="module")
def pairs(data_dir):
    return read(data_dir / "real/lines.json")["pairs"]


@pytest.fixture(scope="module")
def lines(data_dir):
    """Return the golden lines and the published lines."""
    found = list(read(data_dir / "real/lines.json")["lines"])
    for name, keys in (
        ("tricky_bert", ["text"]),
        ("pairs_truncated", ["text_a", "text_b"]),
        ("qa_windows", ["question", "context"]),
        ("word_alignment", ["words"]),
    ):
        text = (data_dir / f"golden/tokenization/{name}.jsonl").read_text(encoding="utf-8")
        for row in map(json.loads, text.splitlines()):
            found += [" ".join(row[k]) if k == "words" else row[k] for k in keys]
    return found


@pytest.fixture
def of_any_length(monkeypatch):
    """Let the library tokenizers answer for long texts, too."""
    monkeypatch.setattr(module, "are_short", lambda texts: True)


@pytest.mark.slow
def test_all_lines_have_the_same_ids_and_offsets(tokenizer, lines, of_any_length):
    known = [line for line in lines if tokenizer.is_quick(line)]
    assert len(known) > 0.98 * len(lines) > 800
    assert_equal(tokenizer.with_offsets, known)
    for text in known[::200]:
        assert_equal(tokenizer.with_offsets, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [97, pytest.param(1, marks=pytest.mark.long)], ids=["sample", "all"]
)
def test_all_characters_have_the_same_ids_and_offsets(tokenizer, of_any_length, step):
    codes = [c for c in (*range(0x33480), *range(0xE0000, 0xE1000)) if not 0xD800 <= c < 0xE000]
    texts = ["a{0}b {0}\u0301 e\u0334{0}\u0323 1".format(chr(c)) for c in codes[::step]]
    for start in range(0, len(texts), 1500):
        known = [text for text in texts[start : start + 1500] if tokenizer.is_quick(text)]
        assert_equal(tokenizer.with_offsets, known)


@pytest.mark.slow
def test_pairs_and_texts_have_the_same_rows(tokenizer, pairs, of_any_length):
    known = [pair for pair in pairs if tokenizer.is_quick(*pair)]
    assert len(known) > 35
    sides = [list(side) for side in zip(*known, strict=True)]
    left = Tokenizer(tokenizer.vocab, **{**tokenizer.options, "truncation_side": "left"})
    for other, max_len, pad in ((tokenizer, None, True), (left, 16, False), (tokenizer, 7, True)):
        for texts in (sides, sides[1:]):
            rows = other.rows(*texts, max_len=max_len, pad=pad)
            tokens = [by_tensorflow(other.tokenize, side) for side in texts]
            for name, expected in other.frame(*tokens, max_len=max_len, pad=pad).items():
                np.testing.assert_array_equal(rows[name], expected, name, strict=True)
    assert_equal(tokenizer.windows, *sides, max_len=160, overlap=4)


def small(specials=GOOGLE_SPECIALS, **options):
    return Tokenizer(Vocab([*specials, *"the cat sat a ##b [E1] caf \u03c3".split()]), **options)


@pytest.mark.parametrize(
    "text",
    [
        "the \u03a3 cat",  # sigma, a private-use letter, a newer mark, a mark that moves
        "the \ue000",
        "a\u0898",
        "a\u302e\u0323",
        "the cat " * 300,
        tf.constant([b"a\xff"]),
        [],
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_tensorflow_answers_where_the_library_might_differ_or_be_slower(text):
    tokenizer = small()
    assert tokenizer.is_quick("the caf\u00e9 \u4e2d \U0001f600")
    assert not tokenizer.is_quick(text)
    assert_equal(tokenizer.with_offsets, text)


def test_the_spelling_of_unknown_tokens_in_corpora_is_known():
    text = "the [UNK] cat"
    assert small().is_quick(text)
    tokenizer = small(BOOK_SPECIALS)
    assert not tokenizer.is_quick(text)
    assert tokenizer.tokenize(text).to_list() == [[5, 1, 6]]


def test_a_graph_and_a_pair_of_unequal_lists_are_not_for_the_library():
    tokenizer = small()
    assert not tf.function(lambda: tf.constant(tokenizer.is_quick("the")))()
    with pytest.raises(ValueError, match="as many second texts"):
        tokenizer(["the"], ["cat", "sat"])


@pytest.mark.parametrize("compat", ["google", "huggingface"])
def test_own_tokens_have_the_same_ids_and_offsets(compat, of_any_length):
    tokenizer = small(compat=compat, special_tokens=["[E1]"], normalized_tokens=["caf"])
    draw, parts = (
        random.Random(0),
        ["the", "[E1]", "[MASK]", "Caf\u00e9", "\u0301", " ", "ab", "x" * 150],
    )
    texts = ["".join(draw.choices(parts, k=6)) for _ in range(200)]
    assert tokenizer.is_quick(texts[:9])
    assert_equal(tokenizer.with_offsets, texts)


def test_a_tokenizer_without_the_library_answers_the_same(monkeypatch):
    other = small()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert not other.is_quick("the cat")
    assert other("the cat")["tokens"].numpy().tolist() == [[2, 5, 6, 3]]


def test_byte_level_tokens_of_lists_arrays_and_tensors_are_the_same():
    tokenizer = Tokenizer(Vocab(*from_json(roberta_fields())))
    texts = ["the cat", "in\u00e9 <mask>", ""]
    for given in (texts, tuple(texts), np.array(texts), tf.constant(texts)):
        assert tokenizer.is_quick(given)
        assert_equal(tokenizer.with_offsets, given)
