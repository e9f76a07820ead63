"""make_pairs: the laws of next-sentence pairs, on documents small enough to follow by hand."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from keras_bert_d2l.data.pairs import _truncate, make_pairs

A_START, A_END, B_START, B_END, IS_NEXT = range(5)


def layout(lengths):
    """What `make_pairs` needs of a store: where sentences and documents begin."""
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
    """Whether a chi-square statistic is within four standard deviations of its mean."""
    return statistic < degrees + 4 * np.sqrt(2 * degrees)


@pytest.fixture(scope="module", params=[8, 64, 128])
def drawn(request):
    store = random_layout()
    pairs = make_pairs(store, max_len=request.param, seed=3, epoch=0)
    return SimpleNamespace(store=store, pairs=pairs, room=request.param - 3)


def test_both_texts_have_tokens_and_fit_together(drawn):
    a = drawn.pairs[:, A_END] - drawn.pairs[:, A_START]
    b = drawn.pairs[:, B_END] - drawn.pairs[:, B_START]
    assert a.min() >= 1
    assert b.min() >= 1
    assert (a + b).max() == drawn.room


def test_no_text_crosses_the_border_of_a_document(drawn):
    for start, end in ((A_START, A_END), (B_START, B_END)):
        np.testing.assert_array_equal(
            document_of(drawn.store, drawn.pairs[:, start]),
            document_of(drawn.store, drawn.pairs[:, end] - 1),
        )


def test_a_true_pair_is_of_one_document_and_a_false_one_of_two(drawn):
    same = document_of(drawn.store, drawn.pairs[:, A_START]) == document_of(
        drawn.store, drawn.pairs[:, B_START]
    )
    np.testing.assert_array_equal(same, drawn.pairs[:, IS_NEXT])


def test_pairs_come_in_the_order_of_the_text(drawn):
    assert (np.diff(drawn.pairs[:, A_START]) > 0).all()


def test_without_truncation_b_goes_on_where_a_ends():
    pairs = make_pairs(one_token_sentences(*[500] * 4), max_len=23, seed=0, epoch=0)
    true = pairs[pairs[:, IS_NEXT] == 1]
    assert len(true) > 20
    np.testing.assert_array_equal(true[:, A_END], true[:, B_START])


def test_every_sentence_is_used_once_as_a_or_as_true_b():
    store = one_token_sentences(1, 2, 3, 50, 51, 52, 300)
    pairs = make_pairs(store, max_len=23, seed=1, epoch=0)
    used = np.zeros(store.sentence_offsets[-1], int)
    for a_start, a_end, b_start, b_end, is_next in pairs:
        used[a_start:a_end] += 1
        if is_next:
            used[b_start:b_end] += 1
    np.testing.assert_array_equal(used, 1)


def test_a_chunk_is_split_anywhere_between_two_sentences():
    pairs = make_pairs(one_token_sentences(*[4] * 6000), max_len=7, seed=0, epoch=0)
    true = pairs[pairs[:, IS_NEXT] == 1]
    full = true[true[:, B_END] - true[:, A_START] == 4]
    observed = np.bincount(full[:, A_END] - full[:, A_START], minlength=4)[1:]
    assert is_likely(chi_square(observed, len(full) / 3), 2)


def test_a_false_b_fills_the_row_with_whole_sentences():
    store = layout([[7] * 30] * 50)
    pairs = make_pairs(store, max_len=50, seed=0, epoch=0)
    a, b = (pairs[:, end] - pairs[:, start] for start, end in ((0, 1), (2, 3)))
    last = (document_of(store, pairs[:, B_START]) + 1) * 210  # the end of B's document
    whole = (pairs[:, IS_NEXT] == 0) & (a + b < 47)
    assert 0 < whole.sum() < (pairs[:, IS_NEXT] == 0).sum()
    assert (b[whole] % 7 == 0).all()
    np.testing.assert_array_equal(pairs[whole, B_END], last[whole])


def test_a_false_b_comes_from_any_other_document_and_any_sentence():
    store = one_token_sentences(*[12] * 5)
    b_starts = np.concatenate(
        [
            pairs[(pairs[:, IS_NEXT] == 0) & (pairs[:, A_START] < 12), B_START]
            for pairs in (make_pairs(store, max_len=9, seed=0, epoch=n) for n in range(2000))
        ]
    )
    observed = np.bincount(b_starts, minlength=60)
    assert observed[:12].sum() == 0  # A's own document
    assert is_likely(chi_square(observed[12:], len(b_starts) / 48), 47)


@pytest.mark.parametrize("share_of_long", [0.0, 0.2, 0.4])
def test_half_of_the_pairs_are_true_also_where_chunks_have_one_sentence(share_of_long):
    draw = random.Random(0)
    store = layout(
        [[100 if draw.random() < share_of_long else 6 for _ in range(50)] for _ in range(800)]
    )
    pairs = make_pairs(store, max_len=23, seed=0, epoch=0)
    sigma = 0.5 / np.sqrt(len(pairs))
    assert pairs[:, IS_NEXT].mean() == pytest.approx(0.5, abs=4 * sigma)


def test_documents_of_one_sentence_make_false_pairs_only():
    pairs = make_pairs(layout([[5]] * 20), max_len=16, seed=0, epoch=0)
    assert pairs[:, IS_NEXT].tolist() == [0] * 20
    np.testing.assert_array_equal(pairs[:, A_START], np.arange(20) * 5)


def trim(a, b, room):
    """Takes tokens one by one from the longer text, as google's `truncate_seq_pair` does."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@pytest.mark.parametrize("room", [2, 5, 8, 13])
def test_truncation_takes_from_the_longer_text(room):
    lengths = np.array([(a, b) for a in range(1, 25) for b in range(1, 25)])
    starts = np.full_like(lengths, 100)
    new_starts, new_ends = _truncate(starts, starts + lengths, room, np.random.default_rng(0))
    expected = [trim(a, b, room) for a, b in lengths]
    np.testing.assert_array_equal(new_ends - new_starts, expected)
    assert (new_starts >= starts).all()
    assert (new_ends <= starts + lengths).all()


def test_truncation_takes_from_either_end_as_a_coin_falls():
    starts = np.zeros((20_000, 2), int)
    new_starts, _ = _truncate(starts, starts + np.array([2, 14]), 12, np.random.default_rng(0))
    assert (new_starts[:, 0] == 0).all()
    observed = np.bincount(new_starts[:, 1], minlength=5)  # of four tokens
    assert is_likely(chi_square(observed, 20_000 * np.array([1, 4, 6, 4, 1]) / 16), 4)


def test_seed_and_epoch_determine_the_pairs():
    store = random_layout(20)
    pairs = [
        make_pairs(store, max_len=32, seed=seed, epoch=epoch).tolist()
        for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    assert pairs[0] == pairs[1]
    assert pairs[0] != pairs[2] != pairs[3] != pairs[0]


def test_only_the_given_documents_are_used():
    store = random_layout(20)
    chosen = np.array([3, 7, 8, 19])
    pairs = make_pairs(store, max_len=32, seed=0, epoch=0, documents=chosen)
    for start in (A_START, B_START):
        assert set(document_of(store, pairs[:, start])) == set(chosen)


@pytest.mark.parametrize("documents", [None, np.array([], int), np.array([0])])
def test_one_document_is_too_few(documents):
    store = one_token_sentences(50)
    with pytest.raises(ValueError, match="at least two documents.*blank lines"):
        make_pairs(store, max_len=32, seed=0, epoch=0, documents=documents)


def test_a_row_has_room_for_a_token_of_each_text():
    store = one_token_sentences(9, 9)
    pairs = make_pairs(store, max_len=5, seed=0, epoch=0)
    assert (pairs[:, [A_END, B_END]] - pairs[:, [A_START, B_START]] == 1).all()
    with pytest.raises(ValueError, match="`max_len` must be at least 5.*max_len=4"):
        make_pairs(store, max_len=4, seed=0, epoch=0)
