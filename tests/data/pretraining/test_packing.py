"""Packing: no example is lost, and a row contains its examples one after another."""

import dataclasses

import numpy as np
import pytest

from keras_bert_d2l.data.buckets import bucket
from keras_bert_d2l.data.pretraining.packing import bucket_lengths, lay_out, pack
from keras_bert_d2l.data.pretraining.pairs import Examples
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

VOCAB = Vocab([*GOOGLE_SPECIALS, *(f"w{n}" for n in range(95))])
PAD, UNK, CLS, SEP, MASK = range(5)
STORED = np.arange(5, 100, dtype=np.uint16)
EXAMPLES = Examples(
    texts=np.array([[[0, 2], [2, 5]], [[90, 95], [10, 11]], [[20, 22], [30, 31]], [[0, 0]] * 2]),
    labels=np.array([1, 0, 1, 0]),
)


def lengths_like_text(number=3000, max_len=64, seed=0):
    draw = np.random.default_rng(seed)
    return np.minimum(draw.geometric(0.05, number) + 4, max_len)


def generator():
    return np.random.default_rng(0)


@pytest.mark.parametrize(("max_len", "max_examples"), [(64, 8), (64, 2), (512, 100)])
def test_packing_keeps_every_example_and_respects_the_limits(max_len, max_examples):
    lengths = lengths_like_text(10_000)
    order, splits = pack(lengths, max_len=max_len, max_examples=max_examples, random=generator())
    assert sorted(order) == list(range(len(lengths)))
    assert np.diff(splits).min() >= 1
    assert np.diff(splits).max() <= max_examples
    assert np.add.reduceat(lengths[order], splits[:-1]).max() <= max_len


def test_packing_fills_small_rows_perfectly():
    lengths = np.array([3, 7, 5, 5, 10, 2, 8])
    order, splits = pack(lengths, max_len=10, max_examples=8, random=generator())
    rows = [sorted(row) for row in np.split(lengths[order], splits[1:-1])]
    assert sorted(rows) == [[2, 8], [3, 7], [5, 5], [10]]


def test_bucket_lengths_are_multiples_of_eight():
    lengths = lengths_like_text(64 * 32)
    order = bucket(lengths, batch_size=32, random=generator())
    sizes = bucket_lengths(lengths[order], batch_size=32, max_len=60)
    assert set(sizes) <= {8, 16, 24, 32, 40, 48, 56, 60}
    assert (np.diff(sizes) < 0).any()  # not sorted from shortest to longest


def lay(order, splits, examples=EXAMPLES):
    return lay_out(
        STORED,
        examples,
        np.array(order),
        np.array(splits),
        vocab=VOCAB,
        max_len=24,
        max_examples=3,
        packed=True,
    )


def test_examples_are_laid_out_one_after_another():
    rows = lay([1, 0, 2, 3], [0, 3, 4])
    first, padding = [CLS, 95, 96, 97, 98, 99, SEP, 15, SEP], [PAD] * 21
    assert rows.tokens.tolist() == [
        [*first, CLS, 5, 6, SEP, 7, 8, 9, SEP, CLS, 25, 26, SEP, 35, SEP, PAD],
        [CLS, SEP, SEP, *padding],
    ]
    assert "".join(map(str, rows.segments[0])) == "000000011000011110000110"
    assert rows.example_ids[0].tolist() == [1] * 9 + [2] * 8 + [3] * 6 + [0]
    assert rows.position_ids[0].tolist() == [*range(9), *range(8), *range(6), 0]
    assert rows.valid_lens.tolist() == [23, 3]
    assert rows.cls_positions.tolist() == [[0, 9, 17], [0, 0, 0]]
    assert rows.labels.tolist() == [[0, 1, 1], [0, 0, 0]]
    assert rows.weights.tolist() == [[1, 1, 1], [0, 0, 0]]  # the last example has no text


def test_a_row_does_not_depend_on_the_rows_before_it():
    together, alone = lay([2, 0, 1], [0, 1, 3]), lay([0, 1], [0, 2])
    np.testing.assert_array_equal(together.tokens[1], alone.tokens[0])
    later = lay([0, 1], [7, 9])  # a part of an epoch's splits
    np.testing.assert_array_equal(later.cls_positions, alone.cls_positions)


def test_without_pairs_all_segments_are_zero():
    singles = dataclasses.replace(EXAMPLES, texts=EXAMPLES.texts[:, :1])
    assert not lay([0, 1], [0, 2], singles).segments.any()
