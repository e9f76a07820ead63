"""Reader: the rows of a step depend only on its number, and on neither shards nor batch sizes."""

import math
import random

import numpy as np
import pytest

from keras_bert_d2l.data.pretraining import epochs
from keras_bert_d2l.data.pretraining.epochs import Reader
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, make_examples

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_WORD = 5
NUM_PAIRS = 78  # in epoch 0 with `max_len=32`
KINDS = {
    "padded": {},
    "in order": {"objective": "sop"},
    "packed": {"rows": "packed", "short_seq_prob": 0.8, "max_examples": 4},
    "bucketed": {"rows": "bucketed", "short_seq_prob": 0.8},
    "full sentences": {"objective": "none"},
}
NAMES = ["keys", "tokens", "segments", "valid_lens", "labels", "weights"]
NAMES += ["example_ids", "position_ids", "cls_positions"]


@pytest.fixture
def reader(text):
    def reader(**settings):
        given = {"rows": "padded", "max_examples": 1, "batch_size": 8, "shard": (0, 1)}
        given |= {"drop_remainder": True, "max_len": 32, **settings}
        own = {name: given.pop(name) for name in given.keys() & Reader.__annotations__.keys()}
        return Reader(
            store=text.store, vocab=text.tokenizer.vocab, options=ExampleOptions(**given), **own
        )

    return reader


def read(reader, first=0, last=None):
    """Return the arrays of some steps, or of epoch 0, by name."""
    last = reader.num_steps if last is None else last
    return dict(zip(NAMES, reader.read(first, last), strict=False))


def rows_of(reader, steps):
    """Return the bytes of each row, by step and place in the batch."""
    return {
        (step, place): tuple(values.tobytes() for values in row)
        for step in steps
        for place, row in enumerate(zip(*reader.read(step, step + 1), strict=True))
    }


def document_of(store, token_ids):
    starts = store.sentence_offsets[store.document_offsets]
    return np.searchsorted(starts, token_ids - FIRST_WORD, side="right") - 1


@pytest.mark.parametrize("kind", KINDS)
def test_steps_can_be_read_in_any_order_and_divided_among_shards(reader, kind):
    one = reader(**KINDS[kind])
    steps = random.Random(0).sample(range(2 * one.num_steps), 2 * one.num_steps)
    expected = rows_of(one, steps)
    assert len(set(expected.values())) > 0.95 * len(expected)
    assert rows_of(reader(**KINDS[kind]), sorted(steps)) == expected
    assert rows_of(reader(seed=1, **KINDS[kind]), steps) != expected
    for count in (2, 4):
        size, found = 8 // count, {}
        for index in range(count):
            shard = reader(batch_size=size, shard=(index, count), **KINDS[kind])
            rows = rows_of(shard, steps)
            found |= {(step, index * size + place): rows[step, place] for step, place in rows}
        assert found == expected


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bucketed"])
def test_a_call_may_span_epochs(reader, kind):
    one = reader(**KINDS[kind])
    last = 3 * one.num_steps
    by_step = [one.read(step, step + 1) for step in range(last)]
    for together, arrays in zip(one.read(0, last), zip(*by_step, strict=True), strict=True):
        np.testing.assert_array_equal(together, np.concatenate(arrays))


def test_the_batch_size_does_not_change_the_rows(reader):
    few, many = (reader(batch_size=size, drop_remainder=False) for size in (3, 16))
    few, many = (list(rows_of(one, range(one.num_steps)).values()) for one in (few, many))
    assert few[:NUM_PAIRS] == many[:NUM_PAIRS]


@pytest.mark.parametrize(("drop_remainder", "num_rows"), [(True, 72), (False, NUM_PAIRS)])
def test_all_shards_have_the_same_number_of_steps(reader, drop_remainder, num_rows):
    settings = {"batch_size": 3, "drop_remainder": drop_remainder}
    shards = [reader(shard=(index, 3), **settings) for index in range(3)]
    assert {shard.num_steps for shard in shards} == {math.ceil(num_rows / 9)}
    assert sum(read(shard)["weights"].sum() for shard in shards) == num_rows


def test_every_epoch_has_the_same_number_of_full_batches(reader):
    one = reader()
    epochs = [read(one, n * one.num_steps, (n + 1) * one.num_steps) for n in range(30)]
    assert len({epoch["tokens"].tobytes() for epoch in epochs}) == 30
    assert len({key for epoch in epochs for key in epoch["keys"]}) == 30 * 8 * one.num_steps
    # Some of these epochs have fewer pairs than epoch 0, some have more.
    assert all(epoch["weights"].all() and epoch["labels"].any() for epoch in epochs)


def test_an_epoch_contains_every_pair_once_in_random_order(text, reader):
    pairs = make_examples(text.store, ExampleOptions(max_len=32, seed=4), epoch=0)
    expected = [
        (*range(a_start, a_end), *range(b_start, b_end))
        for a_start, a_end, b_start, b_end in pairs.texts.reshape(-1, 4)
    ]
    rows = read(reader(seed=4, drop_remainder=False))
    found = [tuple(row[row >= FIRST_WORD] - FIRST_WORD) for row in rows["tokens"]]
    found = [row for row, weight in zip(found, rows["weights"], strict=True) if weight]
    assert found != expected
    assert sorted(found) == sorted(expected)


def test_any_step_is_read_from_at_most_two_epochs_that_are_made_once(reader, monkeypatch):
    made = []

    def counted(*arguments, epoch):
        made.append(epoch)
        return make_examples(*arguments, epoch=epoch)

    monkeypatch.setattr(epochs, "make_examples", counted)
    one = reader()
    for first in (0, 1, 40, 10**12):
        made.clear()
        for step in (first, first + 1):
            assert one.read(step, step + 1)[0].shape == (8,)
        assert made == ([first // one.num_steps] if first > one.num_steps else [])


def test_without_pairs_every_token_is_in_one_row(text, reader):
    rows = read(reader(objective="none", drop_remainder=False))
    assert not rows["segments"].any()
    assert (rows["tokens"][:, 0] == CLS).all()
    found = rows["tokens"][rows["tokens"] >= FIRST_WORD] - FIRST_WORD
    assert sorted(found) == list(range(text.store.num_tokens))


def test_swapped_texts_keep_their_segments(reader):
    rows = read(reader(objective="sop"))
    assert set(rows["labels"].ravel()) == {0, 1}
    for row, segments, in_order in zip(
        rows["tokens"], rows["segments"], rows["labels"][:, 0], strict=True
    ):
        a, b = (row[(row >= FIRST_WORD) & (segments == segment)] for segment in (0, 1))
        assert (a[-1] < b[0]) == in_order


def test_packed_rows_contain_the_examples_of_padded_rows(reader):
    settings = {"short_seq_prob": 0.9, "batch_size": 2, "drop_remainder": False}
    rows = read(reader(**settings))
    examples = zip(rows["tokens"], rows["labels"][:, 0], rows["weights"][:, 0], strict=True)
    expected = {(tuple(row[row != PAD]), is_next) for row, is_next, is_real in examples if is_real}
    rows, found = read(reader(rows="packed", max_examples=8, **settings)), set()
    for row, slot in zip(*np.nonzero(rows["weights"]), strict=True):
        is_here = rows["example_ids"][row] == slot + 1
        assert rows["cls_positions"][row, slot] == np.argmax(is_here)
        np.testing.assert_array_equal(rows["position_ids"][row, is_here], range(is_here.sum()))
        found.add((tuple(rows["tokens"][row, is_here]), rows["labels"][row, slot]))
    assert found == expected


def test_bucketed_rows_are_padded_to_a_multiple_of_eight(reader):
    one, lengths = reader(rows="bucketed", short_seq_prob=0.9, batch_size=2), set()
    for step in range(one.num_steps):
        rows = read(one, step, step + 1)
        assert rows["tokens"].shape[1] == min(32, math.ceil(rows["valid_lens"].max() / 8) * 8)
        lengths.add(rows["tokens"].shape[1])
    assert len(lengths) > 2
