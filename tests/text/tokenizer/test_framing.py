"""Framing: model inputs built from ids, and windows over long texts with the tokens of answers."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.framing import (
    answer_spans,
    frame_tokens,
    get_tokens_and_segments,
)
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

WORDS = "abcdefghijkl"
VOCAB = Vocab([*GOOGLE_SPECIALS, *WORDS])
PAD, UNK, CLS, SEP, MASK = VOCAB.special_ids
A = 5


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(VOCAB)


@pytest.mark.parametrize(
    "ids",
    [
        [[5, 6], [7, 8]],
        np.array([[5, 6], [7, 8]], np.uint16),
        tf.constant([[5, 6], [7, 8]], tf.int64),
        tf.RaggedTensor.from_row_splits([5, 6, 7, 8], np.array([0, 2, 4], np.int32)),
    ],
    ids=["lists", "numpy", "tensor", "ragged"],
)
def test_ids_of_any_type_are_framed(ids):
    batch = frame_tokens(ids, vocab=VOCAB, max_len=5)
    assert batch["tokens"].numpy().tolist() == [[CLS, 5, 6, SEP, PAD], [CLS, 7, 8, SEP, PAD]]
    assert {tensor.dtype for tensor in batch.values()} == {tf.int32}


@pytest.mark.parametrize(("max_len", "width"), [(4, 4), (np.int64(5), 5), (9, 9), (None, 5)])
def test_single_texts_are_truncated_and_padded(max_len, width):
    texts = [[], [5], [5, 6, 7]]
    batch = frame_tokens(tf.ragged.constant(texts, tf.int32), vocab=VOCAB, max_len=max_len)
    rows = [[CLS, *text[: width - 2], SEP] for text in texts]
    expected = [row + [PAD] * (width - len(row)) for row in rows]
    assert batch["tokens"].numpy().tolist() == expected
    assert batch["segments"].numpy().tolist() == [[0] * width] * len(texts)
    assert batch["valid_lens"].numpy().tolist() == [len(row) for row in rows]
    assert frame_tokens([[5]], vocab=VOCAB, max_len=max_len)["segments"].shape == (1, max_len or 3)
    assert frame_tokens(tf.zeros([0, 2], tf.int32), vocab=VOCAB)["tokens"].shape == (0, 2)


def lengths_after(length_a, length_b, max_len, truncation):
    batch = frame_tokens(
        [[5] * length_a], [[6] * length_b], vocab=VOCAB, max_len=max_len, truncation=truncation
    )
    row = batch["tokens"][0].numpy().tolist()
    assert batch["segments"].numpy().sum() == row.count(6) + 1
    return row.count(5), row.count(6)


def test_the_longer_text_of_a_pair_is_truncated_first():
    lengths = [(5, 5), (6, 5), (5, 6), (2, 9), (9, 2), (0, 9), (3, 4), (1, 1)]
    kept = [(3, 4), (4, 3), (3, 4), (2, 5), (5, 2), (0, 7), (3, 4), (1, 1)]
    assert [lengths_after(*pair, 10, "longest_first") for pair in lengths] == kept


@pytest.mark.parametrize("truncation", ["only_first", "only_second"])
def test_only_one_text_is_truncated(truncation):
    def lengths(cut, whole, max_len):
        a_b = (cut, whole) if truncation == "only_first" else (whole, cut)
        after = lengths_after(*a_b, max_len, truncation)
        return after if truncation == "only_first" else after[::-1]

    assert lengths(9, 4, 10) == (3, 4)
    assert lengths(9, 6, 10) == (1, 6)
    assert lengths(2, 4, 10) == (2, 4)
    assert lengths(0, 7, 10) == (0, 7)
    for cut, whole in ((9, 7), (1, 7), (1, 20)):
        with pytest.raises(ValueError, match=r"would remove one text.*max_len=10"):
            lengths(cut, whole, 10)


@pytest.mark.parametrize(
    ("truncation", "kept"),
    [("longest_first", "def jkl"), ("only_first", "ef ijkl"), ("only_second", "cdef kl")],
)
def test_truncation_on_the_left_keeps_the_ends_of_texts(truncation, kept):
    def ids(text):
        return [A + WORDS.index(letter) for letter in text]

    options = {"vocab": VOCAB, "max_len": 9, "truncation_side": "left"}
    batch = frame_tokens([ids("cdef")], [ids("ijkl")], truncation=truncation, **options)
    first, second = map(ids, kept.split())
    assert batch["tokens"].numpy().tolist() == [[CLS, *first, SEP, *second, SEP]]


def test_an_invalid_truncation_is_rejected():
    with pytest.raises(ValueError, match=r"'longest_first', 'only_first', 'only_second'.*'first'"):
        frame_tokens([[5]], [[5]], vocab=VOCAB, max_len=8, truncation="first")
    with pytest.raises(ValueError, match="no second text"):
        frame_tokens([[5]], vocab=VOCAB, max_len=8, truncation="only_second")
    with pytest.raises(ValueError, match="`truncation_side`.*'right', 'left'.*'both'"):
        frame_tokens([[5]], vocab=VOCAB, truncation_side="both")


def test_every_first_text_needs_a_second_one_also_in_a_graph():
    spec = tf.RaggedTensorSpec((None, None), tf.int32)
    graph = tf.function(lambda *ids: frame_tokens(*ids, vocab=VOCAB), input_signature=[spec, spec])
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many second texts"):
        graph(tf.ragged.constant([[5], [6]]), tf.ragged.constant([[5]]))


def test_windows_overlap_and_the_last_one_ends_with_the_context(tokenizer):
    windows = tokenizer.windows(["k l", "l"], [" ".join(WORDS[:6]), "a"], max_len=8, overlap=1)
    k, l = VOCAB[["k", "l"]]  # noqa: E741
    assert windows["tokens"].numpy().tolist() == [
        [CLS, k, l, SEP, A, A + 1, A + 2, SEP],
        [CLS, k, l, SEP, A + 2, A + 3, A + 4, SEP],
        [CLS, k, l, SEP, A + 4, A + 5, SEP, PAD],
        [CLS, l, SEP, A, SEP, PAD, PAD, PAD],
    ]
    assert windows["rows"].numpy().tolist() == [0, 0, 0, 1]
    assert windows["valid_lens"].numpy().tolist() == [8, 8, 7, 5]
    assert windows["starts"][1].numpy().tolist() == [0, 0, 2, 0, 4, 6, 8, 0]
    assert windows["ends"][1].numpy().tolist() == [0, 1, 3, 0, 5, 7, 9, 0]


def test_an_empty_context_is_a_window(tokenizer):
    windows = tokenizer.windows("a", "", max_len=6)
    assert windows["tokens"].numpy().tolist() == [[CLS, A, SEP, SEP, PAD, PAD]]
    assert answer_spans(windows, [0], [1]).numpy().tolist() == [[0, 0]]


def test_every_token_is_in_a_window_for_any_length(tokenizer):
    contexts = [" ".join("a" * n) for n in range(30)]
    for overlap in (0, 1, 4):
        windows = tokenizer.windows(["b"] * 30, contexts, max_len=9, overlap=overlap)
        for row, context in enumerate(contexts):
            mine = windows["rows"] == row
            starts = tf.boolean_mask(windows["starts"], mine)[:, 3:].numpy()
            lengths = tf.boolean_mask(windows["valid_lens"], mine).numpy() - 4
            places = [starts[w, :n].tolist() for w, n in enumerate(lengths)]
            assert sorted({p for place in places for p in place}) == [*range(0, len(context), 2)]
            for before, after in itertools.pairwise(places):
                assert before[len(before) - overlap :] == after[:overlap]


def test_an_answer_is_found_in_windows_that_contain_all_of_it(tokenizer):
    windows = tokenizer.windows("a", " ".join(WORDS[:8]), max_len=8, overlap=2)
    assert len(windows["rows"]) == 3
    assert answer_spans(windows, [4], [7]).numpy().tolist() == [[5, 6], [3, 4], [0, 0]]
    assert answer_spans(windows, [0], [1]).numpy().tolist() == [[3, 3], [0, 0], [0, 0]]
    assert answer_spans(windows, [2], [11]).numpy().tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("tail", ["\u0301", " ", "\u200b", " \u0301 "], ids=ascii)
def test_an_answer_may_start_and_end_with_characters_outside_all_tokens(tail, tokenizer):
    context = tail + " ".join(WORDS[:8]) + tail
    windows = tokenizer.windows(["a"] * 3, [context] * 3, max_len=8, overlap=2)
    last = len(context) - len(tail) - 1
    spans = answer_spans(windows, [0, last, 0], [len(tail) + 1, len(context), len(context)])
    nowhere = [0, 0]
    assert spans.numpy().reshape(3, 3, 2).tolist() == [
        [[3, 3], nowhere, nowhere],
        [nowhere, nowhere, [6, 6]],
        [nowhere] * 3,
    ]


@pytest.mark.parametrize(
    ("question", "max_len", "overlap", "message"),
    [
        (["a"] * 2, 8, 0, "Received: 2 and 1"),
        ("a b c", 8, 2, r"overlap=2 tokens of max_len=8"),
        ("a", 4, 0, "`max_len` must be an integer of at least 5"),
        ("a", 8, -1, "`overlap` must be an integer of at least 0"),
    ],
)
def test_windows_that_cannot_be_built_are_rejected(tokenizer, question, max_len, overlap, message):
    with pytest.raises(ValueError, match=message):
        tokenizer.windows(question, "a b c", max_len, overlap)


@pytest.mark.slow
def test_windows_of_squad_match_hugging_face(data_dir):
    vocab = Vocab.from_file(data_dir / "vocab" / "bert-base-uncased-vocab.txt")
    tokenizer = Tokenizer(vocab, compat="huggingface")
    path = data_dir / "golden" / "tokenization" / "qa_windows.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 20
    for line in lines:
        windows = tokenizer.windows(
            line["question"], line["context"], line["max_length"], line["overlap"]
        )
        rows = {name: tensor.numpy().tolist() for name, tensor in windows.items()}
        for i, length in enumerate(rows["valid_lens"]):
            assert rows["tokens"][i][:length] == line["input_ids"][i]
            assert rows["segments"][i][:length] == line["token_type_ids"][i]
            offsets = zip(rows["starts"][i][:length], rows["ends"][i][:length], strict=True)
            assert [list(pair) for pair in offsets] == line["offsets"][i]
        assert len(rows["rows"]) == len(line["input_ids"])
        start = line["answer_start"]
        spans = answer_spans(windows, [start], [start + len(line["answer_text"])])
        assert spans.numpy().tolist() == line["span"]


def test_the_books_function_joins_lists_of_tokens():
    tokens_a, tokens_b = ["a"], ("b", "c")
    assert get_tokens_and_segments(tokens_a, tokens_b) == (
        ["<cls>", "a", "<sep>", "b", "c", "<sep>"],
        [0, 0, 0, 1, 1, 1],
    )
    assert tokens_a == ["a"], "the inputs are not changed"
    assert get_tokens_and_segments([], []) == (["<cls>", "<sep>", "<sep>"], [0, 0, 1])
    assert get_tokens_and_segments(["a", "b"]) == (["<cls>", "a", "b", "<sep>"], [0] * 4)
    for texts in (("a text", None), (["a"], "a text")):
        with pytest.raises(ValueError, match="'a text'"):
            get_tokens_and_segments(*texts)
