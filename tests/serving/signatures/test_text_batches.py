import functools

import pytest
import tensorflow as tf

from keras_bert_d2l.signatures.characters import Characters
from keras_bert_d2l.signatures.signature import (
    ExportedModel,
    TextOptions,
    TextSignatures,
    padded_lengths,
)
from tests.nightly import nightly_except


def test_there_are_few_padded_lengths_and_the_last_is_the_maximum():
    short, middle = (8, 16, 24, 32, 40, 48, 56, 64), (80, 96, 112, 128, 160, 192, 224, 256)
    assert padded_lengths(512) == (*short, *middle, 320, 384, 448, 512)
    assert padded_lengths(100) == (*short, 80, 96, 100)
    assert padded_lengths(16) == (8, 16)
    assert padded_lengths(5) == (5,)


@pytest.fixture(scope="module")
def batches(make_model, tokenizer):
    """A function from a maximum length to a function from texts to batches."""

    def of_length(max_len):
        run = ExportedModel(make_model(max_len=max_len))
        return TextSignatures(run, tokenizer, TextOptions(False, 1, None)).batch

    return functools.cache(of_length)


ROWS = [  # number of words, length of the row, and whether it is truncated
    *((0, 8, False), (6, 8, False), (7, 16, False), (14, 16, False), (15, 24, False)),
    *((38, 40, False), (39, 40, True), (500, 40, True)),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", nightly_except({ROWS[1], ROWS[6]}, ROWS))
def test_rows_are_padded_to_the_next_length(row, batches):
    num_words, length, is_truncated = row
    batch, truncated = batches(40)(tf.constant(["red", "red " * num_words]))
    assert batch["tokens"].shape == batch["segments"].shape == (2, length)
    assert batch["valid_lens"].numpy().tolist() == [3, min(num_words + 2, 40)]
    assert truncated.numpy().tolist() == [False, is_truncated]


def test_a_pair_is_truncated_if_its_total_length_is_too_long(batches):
    a, b = ["red " * 10] * 2, ["blue " * 11, "blue " * 12]
    batch, truncated = batches(24)(tf.constant(a), tf.constant(b))
    assert batch["valid_lens"].numpy().tolist() == [24, 24]
    assert truncated.numpy().tolist() == [False, True]
    assert batch["segments"].numpy().sum(axis=1).tolist() == [12, 12]


def test_the_batch_matches_the_tokenizer(batches, tokenizer):
    texts, max_len = ["red [MASK]", "", "greenish " * 9], 16
    batch, _ = batches(max_len)(tf.constant(texts))
    expected = tokenizer(texts, max_len=max_len)
    for name, tensor in batch.items():
        assert tensor.numpy().tolist() == expected[name].numpy().tolist()


def test_spans_start_after_the_same_spaces_as_in_python():
    texts = [f"{chr(code)}a" for code in (*range(9, 14), *range(0x1C, 0x21), 0x85, 0xA0, 0x200B)]
    rows = tf.range(len(texts))
    starts, _ = Characters(tf.constant(texts)).whole(rows, 0 * rows, 0 * rows + 2, has_spaces=True)
    assert starts.numpy().tolist() == [1] * 5 + [0] * 4 + [1] * 3 + [0]


def test_spans_end_before_the_same_spaces_as_in_python():
    texts = ["b a, \u3000c", "a", "a \u0301", "  b\t\n"]
    rows, ends = tf.range(4), tf.constant([6, 1, 2, 5])
    _, found = Characters(tf.constant(texts)).whole(rows, 0 * rows, ends, has_spaces=True)
    assert found.numpy().tolist() == [4, 1, 1, 3]
