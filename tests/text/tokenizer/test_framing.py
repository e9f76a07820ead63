"""Framing: model inputs built from ids, without tensorflow-text."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.framing import frame
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

VOCAB = Vocab([*GOOGLE_SPECIALS, *"abcdefghij"])
PAD, UNK, CLS, SEP, MASK = VOCAB.special_ids


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
    batch = frame(ids, vocab=VOCAB, max_len=5)
    assert batch["tokens"].numpy().tolist() == [[CLS, 5, 6, SEP, PAD], [CLS, 7, 8, SEP, PAD]]
    assert {tensor.dtype for tensor in batch.values()} == {tf.int32}


@pytest.mark.parametrize(("max_len", "width"), [(4, 4), (5, 5), (9, 9), (None, 5)])
def test_single_texts_are_truncated_and_padded(max_len, width):
    texts = [[], [5], [5, 6, 7]]
    batch = frame(tf.ragged.constant(texts, tf.int32), vocab=VOCAB, max_len=max_len)
    rows = [[CLS, *text[: width - 2], SEP] for text in texts]
    expected = [row + [PAD] * (width - len(row)) for row in rows]
    assert batch["tokens"].numpy().tolist() == expected
    assert batch["segments"].numpy().tolist() == [[0] * width] * len(texts)
    assert batch["valid_lens"].numpy().tolist() == [len(row) for row in rows]
    assert {tensor.dtype for tensor in batch.values()} == {tf.int32}


def test_the_length_may_be_a_numpy_integer():
    for ids in ([[5, 6]], [[5] * 9]):
        one, other = (frame(ids, vocab=VOCAB, max_len=size) for size in (6, np.int64(6)))
        assert one["tokens"].numpy().tolist() == other["tokens"].numpy().tolist()


def lengths_after(length_a, length_b, max_len, truncation):
    batch = frame(
        [[5] * length_a], [[6] * length_b], vocab=VOCAB, max_len=max_len, truncation=truncation
    )
    row = batch["tokens"][0].numpy().tolist()
    assert batch["segments"].numpy().sum() == row.count(6) + 1
    return row.count(5), row.count(6)


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


@pytest.mark.slow
def test_removing_a_complete_text_in_a_graph_raises_a_tensorflow_error():
    @tf.function
    def framed(a, b):
        return frame(a, b, vocab=VOCAB, max_len=8, truncation="only_first")["tokens"]

    assert framed(tf.fill([1, 9], 5), tf.fill([1, 4], 6)).shape == (1, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="would remove one text"):
        framed(tf.fill([1, 9], 5), tf.fill([1, 5], 6))


@pytest.mark.parametrize(
    ("truncation", "texts", "message"),
    [
        ("first", 2, r"one of 'longest_first', 'only_first', 'only_second'.*'first'"),
        (None, 2, "truncation=None"),
        ("only_second", 1, "no second text"),
    ],
)
def test_an_invalid_truncation_is_rejected(truncation, texts, message):
    with pytest.raises(ValueError, match=message):
        frame(*[[[5]]] * texts, vocab=VOCAB, max_len=8, truncation=truncation)


@pytest.mark.long
def test_framing_does_not_need_tensorflow_text(fresh_process):
    code = """
        import sys
        sys.modules["tensorflow_text"] = None
        from keras_bert_d2l.text.tokenizer.framing import frame
        from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
        print(frame([[1, 2]], [[1]], vocab=Vocab(GOOGLE_SPECIALS))["tokens"].numpy().tolist())
    """
    assert fresh_process(code).strip() == "[[2, 1, 2, 3, 1, 3]]"
