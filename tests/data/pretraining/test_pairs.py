"""make_examples: properties of pairs and texts, on documents small enough to check by hand."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from keras_bert_d2l.data.pretraining.pairs import (
    ExampleOptions,
    make_examples,
    split_documents,
    truncate,
)

A_START, A_END, B_START, B_END, LABEL = range(5)


def make_pairs(store, *, epoch=0, **options):
    """Return pairs as rows of five numbers: start and end of A, start and end of B, label."""
    examples = make_examples(store, ExampleOptions(**options), epoch=epoch)
    return np.column_stack([examples.texts.reshape(-1, 4), examples.labels])


def layout(lengths):
    """Return the offsets of sentences and documents, all that `make_examples` needs of a store."""
    sentences = [length for document in lengths for length in document]
    return SimpleNamespace(
        num_documents=len(lengths),
        sentence_offsets=np.cumsum([0, *sentences]),
        document_offsets=np.cumsum([0, *map(len, lengths)]),
    )


def random_layout(num_documents=200, longest=60, seed=0):
    draw = random.Random(seed)
    return layout(
        [
            [draw.randint(1, longest) for _ in range(draw.randint(1, 40))]
            for _ in range(num_documents)
        ]
    )


def one_token_sentences(*num_sentences):
    return layout([[1] * number for number in num_sentences])


def document_of(store, token):
    starts = store.sentence_offsets[store.document_offsets]
    return np.searchsorted(starts, token, side="right") - 1


def chi_square(observed, expected):
    return np.sum((observed - expected) ** 2 / expected)


def is_likely(statistic, degrees):
    """Return whether a chi-square statistic is within four standard deviations of its mean."""
    return statistic < degrees + 4 * np.sqrt(2 * degrees)


@pytest.fixture(scope="module", params=[8, 64, 128])
def drawn(request):
    store = random_layout()
    pairs = make_pairs(store, max_len=request.param, seed=3)
    return SimpleNamespace(store=store, pairs=pairs, room=request.param - 3)


def test_pairs_fit_stay_in_their_documents_and_are_in_the_order_of_the_text(drawn):
    starts, ends = drawn.pairs[:, [A_START, B_START]], drawn.pairs[:, [A_END, B_END]]
    assert (ends - starts).min() >= 1
    assert (ends - starts).sum(axis=1).max() == drawn.room
    owners = document_of(drawn.store, starts)
    np.testing.assert_array_equal(owners, document_of(drawn.store, ends - 1))
    np.testing.assert_array_equal(owners[:, 0] == owners[:, 1], drawn.pairs[:, LABEL])
    assert (np.diff(starts[:, 0]) > 0).all()


def test_without_truncation_b_begins_where_a_ends():
    pairs = make_pairs(one_token_sentences(*[500] * 4), max_len=23)
    true = pairs[pairs[:, LABEL] == 1]
    assert len(true) > 20
    np.testing.assert_array_equal(true[:, A_END], true[:, B_START])


def test_every_sentence_is_used_once_as_a_or_as_a_true_b():
    store = one_token_sentences(1, 2, 3, 50, 51, 52, 300)
    pairs = make_pairs(store, max_len=23, seed=1)
    used = np.zeros(store.sentence_offsets[-1], int)
    for a_start, a_end, b_start, b_end, is_next in pairs:
        used[a_start:a_end] += 1
        if is_next:
            used[b_start:b_end] += 1
    np.testing.assert_array_equal(used, 1)


def test_a_chunk_is_split_anywhere_between_two_sentences():
    pairs = make_pairs(one_token_sentences(*[4] * 6000), max_len=7)
    true = pairs[pairs[:, LABEL] == 1]
    full = true[true[:, B_END] - true[:, A_START] == 4]
    observed = np.bincount(full[:, A_END] - full[:, A_START], minlength=4)[1:]
    assert is_likely(chi_square(observed, len(full) / 3), 2)


def test_a_false_b_fills_the_row_with_full_sentences():
    store = layout([[7] * 30] * 50)
    pairs = make_pairs(store, max_len=50)
    a, b = (pairs[:, end] - pairs[:, start] for start, end in ((0, 1), (2, 3)))
    last = (document_of(store, pairs[:, B_START]) + 1) * 210  # the end of B's document
    whole = (pairs[:, LABEL] == 0) & (a + b < 47)
    assert 0 < whole.sum() < (pairs[:, LABEL] == 0).sum()
    assert (b[whole] % 7 == 0).all()
    np.testing.assert_array_equal(pairs[whole, B_END], last[whole])


@pytest.mark.slow
def test_a_false_b_starts_at_any_sentence_of_any_other_document():
    store = one_token_sentences(*[12] * 5)
    b_starts = np.concatenate(
        [
            pairs[(pairs[:, LABEL] == 0) & (pairs[:, A_START] < 12), B_START]
            for pairs in (make_pairs(store, max_len=9, epoch=n) for n in range(500))
        ]
    )
    observed = np.bincount(b_starts, minlength=60)
    assert observed[:12].sum() == 0  # A's own document
    assert is_likely(chi_square(observed[12:], len(b_starts) / 48), 47)


@pytest.mark.parametrize("share_of_long", [0.0, 0.2, 0.4])
def test_half_of_the_pairs_are_true_even_with_chunks_of_one_sentence(share_of_long):
    draw = random.Random(0)
    store = layout(
        [[100 if draw.random() < share_of_long else 6 for _ in range(50)] for _ in range(800)]
    )
    pairs = make_pairs(store, max_len=23)
    sigma = 0.5 / np.sqrt(len(pairs))
    assert pairs[:, LABEL].mean() == pytest.approx(0.5, abs=4 * sigma)


def test_documents_of_one_sentence_give_only_false_pairs():
    pairs = make_pairs(layout([[5]] * 20), max_len=16)
    assert pairs[:, LABEL].tolist() == [0] * 20
    np.testing.assert_array_equal(pairs[:, A_START], np.arange(20) * 5)


def trim(a, b, room):
    """Remove tokens one by one from the longer text, as Google's `truncate_seq_pair` does."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@pytest.mark.parametrize("room", [2, 5, 8, 13])
def test_truncation_shortens_the_longer_text(room):
    lengths = np.array([(a, b) for a in range(1, 25) for b in range(1, 25)])
    starts = np.full_like(lengths, 100)
    new_starts, new_ends = truncate(starts, starts + lengths, room, np.random.default_rng(0))
    expected = [trim(a, b, room) for a, b in lengths]
    np.testing.assert_array_equal(new_ends - new_starts, expected)
    assert (new_starts >= starts).all()
    assert (new_ends <= starts + lengths).all()


def test_truncation_shortens_both_ends_with_equal_probability():
    starts = np.zeros((20_000, 2), int)
    new_starts, _ = truncate(starts, starts + np.array([2, 14]), 12, np.random.default_rng(0))
    assert (new_starts[:, 0] == 0).all()
    observed = np.bincount(new_starts[:, 1], minlength=5)  # of four removed tokens
    assert is_likely(chi_square(observed, 20_000 * np.array([1, 4, 6, 4, 1]) / 16), 4)


@pytest.mark.parametrize("documents", [None, np.array([], int), np.array([0])])
def test_one_document_is_not_enough_for_next_sentence_pairs(documents):
    store = one_token_sentences(50)
    with pytest.raises(ValueError, match="at least two documents.*blank lines"):
        make_pairs(store, max_len=32, documents=documents)


def test_max_len_must_leave_room_for_one_token_of_each_text():
    store = one_token_sentences(9, 9)
    pairs = make_pairs(store, max_len=5)
    assert (pairs[:, [A_END, B_END]] - pairs[:, [A_START, B_START]] == 1).all()


@pytest.mark.parametrize("max_len", [8, 64])
def test_half_of_the_ordered_pairs_are_swapped_within_their_document(max_len):
    store = random_layout(1000)
    pairs = make_pairs(store, objective="sop", max_len=max_len)
    in_order = pairs[:, A_END] <= pairs[:, B_START]
    assert (in_order | (pairs[:, B_END] <= pairs[:, A_START])).all()
    np.testing.assert_array_equal(in_order, pairs[:, LABEL] == 1)
    assert in_order.mean() == pytest.approx(0.5, abs=2 / np.sqrt(len(pairs)))
    starts = document_of(store, pairs[:, [A_START, B_START]])
    np.testing.assert_array_equal(starts, document_of(store, pairs[:, [A_END, B_END]] - 1))
    np.testing.assert_array_equal(starts[:, 0], starts[:, 1])
    lengths = pairs[:, [A_END, B_END]] - pairs[:, [A_START, B_START]]
    assert lengths.min() >= 1
    assert lengths.sum(axis=1).max() == max_len - 3


def test_without_truncation_ordered_pairs_cover_the_complete_text():
    pairs = make_pairs(one_token_sentences(2000), objective="sop", max_len=23)
    ordered = np.where(pairs[:, [LABEL]] == 1, pairs[:, :4], pairs[:, [2, 3, 0, 1]])
    np.testing.assert_array_equal(ordered[:, 1], ordered[:, 2])
    np.testing.assert_array_equal(ordered[1:, 0], ordered[:-1, 3])
    assert (ordered[:, 3] - ordered[:, 0] == 20).all()


def test_the_lengths_of_the_texts_do_not_reveal_their_order():
    store = layout([[40] * 50] * 40)  # every pair loses an odd number of tokens
    pairs = make_pairs(store, objective="sop", max_len=40)
    a = pairs[:, A_END] - pairs[:, A_START]
    assert set(a[pairs[:, LABEL] == 0]) == set(a[pairs[:, LABEL] == 1])


def test_a_single_last_sentence_is_paired_with_the_one_before_it():
    pairs = make_pairs(layout([[5, 5, 5], [7]]), objective="sop", max_len=13)
    assert sorted(pairs[0, :4]) == [0, 5, 5, 10]
    assert sorted(pairs[1, :4]) == [5, 10, 10, 15]
    assert len(pairs) == 2  # a document of one sentence has no order


@pytest.mark.parametrize("objective", ["nsp", "sop"])
def test_short_examples_have_every_length(objective):
    store = one_token_sentences(*[400] * 200)
    pairs = make_pairs(store, objective=objective, max_len=23, short_seq_prob=0.4)
    lengths = (pairs[:, [A_END, B_END]] - pairs[:, [A_START, B_START]]).sum(axis=1)
    is_whole = np.isin(pairs[:, A_END], np.arange(400, 80_001, 400))  # or the end of a document
    is_whole |= np.isin(pairs[:, B_END], np.arange(400, 80_001, 400))
    observed = np.bincount(lengths[~is_whole], minlength=21)[2:]
    expected = np.full(19, 0.4 / 19)
    expected[-1] += 0.6
    assert is_likely(chi_square(observed, observed.sum() * expected), 18)


def texts_of(store, *, epoch=0, **settings):
    """Return each example as a list of tokens."""
    options = ExampleOptions(objective="none", **{"max_len": 12, **settings})
    examples = make_examples(store, options, epoch=epoch)
    return [list(range(start, end)) for ((start, end),) in examples.texts], examples


def test_a_text_contains_as_many_full_sentences_as_fit():
    rows, examples = texts_of(layout([[4, 5, 3, 2], [1], [10]]))
    assert [(row[0], row[-1] + 1) for row in rows] == [(0, 9), (9, 14), (14, 15), (15, 25)]
    assert examples.lengths().tolist() == [11, 7, 3, 12]
    assert examples.labels.tolist() == [0] * 4


def test_a_sentence_longer_than_a_row_is_split():
    rows, _ = texts_of(layout([[3, 25, 2]]))
    assert [len(row) for row in rows] == [3, 10, 10, 7]


@pytest.mark.parametrize("max_len", [3, 10, 64])
@pytest.mark.parametrize("short_seq_prob", [0.0, 0.5])
def test_texts_contain_every_token_once_and_fit_in_rows(max_len, short_seq_prob):
    store = random_layout(50, longest=20)
    rows, examples = texts_of(store, max_len=max_len, short_seq_prob=short_seq_prob)
    assert examples.lengths().max() <= max_len
    found = [token for row in rows for token in row]
    assert sorted(found) == list(range(store.sentence_offsets[-1]))
    assert all(document_of(store, row[0]) == document_of(store, row[-1]) for row in rows)


def test_the_split_does_not_depend_on_the_order_of_documents():
    hashes = np.random.default_rng(0).integers(2**63, size=1000).astype(np.uint64)
    order = np.random.default_rng(1).permutation(1000)
    held_out = split_documents(hashes, "held_out", 0.05)
    assert len(held_out) == 50
    assert set(hashes[held_out]) == set(
        hashes[order][split_documents(hashes[order], "held_out", 0.05)]
    )
    rest = split_documents(hashes, "train", 0.05)
    assert sorted([*held_out, *rest]) == list(range(1000))


def test_identical_documents_are_in_the_same_part_of_the_split():
    hashes = np.array([9, 1, 3, 1, 1, 7], np.uint64)
    for share in (0.01, 0.99):  # both parts have two different documents
        assert split_documents(hashes, "held_out", share).tolist() == [1, 2, 3, 4]
        assert split_documents(hashes, "train", share).tolist() == [0, 5]


@pytest.mark.parametrize("hashes", [[1], [1, 2, 3], [1, 1, 1, 1, 2], [1, 1, 5, 6]])
def test_a_split_with_one_document_in_a_part_is_rejected(hashes):
    with pytest.raises(ValueError, match="at least two different documents in each.*blank lines"):
        split_documents(np.array(hashes, np.uint64), "train", 0.05)


@pytest.mark.parametrize("held_out", [0.0, 0.001, 0.5, 0.999])
def test_a_split_has_at_least_two_documents_in_each_part(held_out):
    hashes = np.arange(10, dtype=np.uint64)
    if held_out == 0:
        with pytest.raises(ValueError, match="between 0 and 1"):
            split_documents(hashes, "train", held_out)
    else:
        expected = min(max(2, round(10 * held_out)), 8)
        assert len(split_documents(hashes, "held_out", held_out)) == expected
