"""mask_tokens: BERT's rule to the letter, its statistics, and that it depends on its seed alone."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.data.masking import mask_tokens

SPECIALS = (7, 0, 3, 12, 5)  # anywhere in the vocabulary
MASK = 5
VOCAB_SIZE = 40
ORDINARY = np.setdiff1d(np.arange(VOCAB_SIZE), SPECIALS)


def random_rows(num_rows, num_tokens, seed=0):
    """Rows of every length, with special tokens at both ends and here and there."""
    draw = np.random.default_rng(seed)
    tokens = draw.choice(ORDINARY, (num_rows, num_tokens))
    tokens[draw.random(tokens.shape) < 0.1] = SPECIALS[0]
    valid_lens = draw.integers(1, num_tokens + 1, num_rows)
    tokens[:, 0] = SPECIALS[2]
    tokens[np.arange(num_rows), valid_lens - 1] = SPECIALS[3]
    tokens[np.arange(num_tokens) >= valid_lens[:, None]] = 8  # an ordinary one as padding
    return tokens.astype(np.int32), valid_lens.astype(np.int32)


def mask(tokens, valid_lens, num_predictions, seed=(1, 2), vocab_size=VOCAB_SIZE):
    results = mask_tokens(
        tf.constant(tokens),
        tf.constant(valid_lens),
        num_predictions=num_predictions,
        mask_id=MASK,
        special_ids=SPECIALS,
        vocab_size=vocab_size,
        seed=tf.constant(seed),
    )
    return [result.numpy() for result in results]


def mask_by_hand(tokens, valid_lens, num_predictions, seed):
    """The rules in plain Python, fed with the same random numbers."""
    choice_seed, kind_seed, token_seed = tf.random.split(seed, 3)
    ranks = tf.random.stateless_uniform(tokens.shape, choice_seed).numpy()
    shape = (len(tokens), num_predictions)
    kinds = tf.random.stateless_uniform(shape, kind_seed).numpy()
    drawn = tf.random.stateless_uniform(shape, token_seed, 0, len(ORDINARY), tf.int32).numpy()
    corrupted = tokens.copy()
    positions, labels = np.zeros(shape, int), np.zeros(shape, int)
    weights = np.zeros(shape)
    for row, length in enumerate(valid_lens):
        candidates = [n for n in range(length) if tokens[row, n] not in SPECIALS]
        count = min(max(1, round(0.15 * int(length))), num_predictions, len(candidates))
        chosen = sorted(sorted(candidates, key=lambda n: -ranks[row, n])[:count])
        for slot, position in enumerate(chosen):
            positions[row, slot] = position
            labels[row, slot] = tokens[row, position]
            weights[row, slot] = 1
            if kinds[row, slot] < 0.8:
                corrupted[row, position] = MASK
            elif kinds[row, slot] < 0.9:
                corrupted[row, position] = ORDINARY[drawn[row, slot]]
    return corrupted, positions, labels, weights


def chi_square(observed, expected):
    return np.sum((observed - expected) ** 2 / expected)


def is_likely(statistic, degrees):
    """Whether a chi-square statistic is within four standard deviations of its mean."""
    return statistic < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("num_predictions", [1, 5, 9, 20])
def test_it_does_what_the_rules_say(num_predictions):
    tokens, valid_lens = random_rows(300, 64)
    results = mask(tokens, valid_lens, num_predictions, seed=(5, -6))
    expected = mask_by_hand(tokens, valid_lens, num_predictions, (5, -6))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    assert [result.dtype for result in results] == [np.int32, np.int32, np.int32, np.float32]


@pytest.mark.parametrize(
    ("length", "count"), [(1, 1), (3, 1), (9, 1), (10, 2), (30, 4), (50, 8), (100, 15), (128, 19)]
)
def test_15_percent_of_all_tokens_are_predicted_halves_to_even(length, count):
    tokens = np.full((4, 128), ORDINARY[0], np.int32)
    *_, weights = mask(tokens, np.full(4, length, np.int32), 19)
    assert weights.sum(axis=1).tolist() == [count] * 4


def test_no_more_are_predicted_than_there_are_candidates():
    tokens = np.full((2, 40), SPECIALS[0], np.int32)
    tokens[1, [4, 17]] = ORDINARY[:2]
    corrupted, positions, labels, weights = mask(tokens, np.array([40, 40], np.int32), 6)
    assert weights.tolist() == [[0] * 6, [1, 1, 0, 0, 0, 0]]
    assert positions.tolist() == [[0] * 6, [4, 17, 0, 0, 0, 0]]
    assert labels[1, :2].tolist() == ORDINARY[:2].tolist()
    assert (corrupted[0] == tokens[0]).all()


def test_a_first_token_that_is_not_chosen_stays_though_unused_slots_point_to_it():
    tokens = np.random.default_rng(0).choice(ORDINARY, (500, 10)).astype(np.int32)
    corrupted, positions, _, weights = mask(tokens, np.full(500, 10, np.int32), 8)
    untouched = ~((positions == 0) & (weights == 1)).any(axis=1)
    assert 300 < untouched.sum() < 500
    np.testing.assert_array_equal(corrupted[untouched, 0], tokens[untouched, 0])


@pytest.fixture(scope="module")
def many():
    """Predictions of 4,000 rows of 100 tokens, of which 60 are candidates."""
    tokens = np.full((4000, 100), SPECIALS[0], np.int32)
    tokens[:, 20:80] = np.random.default_rng(1).choice(ORDINARY, (4000, 60))
    corrupted, positions, labels, weights = mask(tokens, np.full(4000, 100, np.int32), 15)
    assert weights.all()
    return positions, labels, np.take_along_axis(corrupted, positions, axis=1)


def test_every_candidate_is_equally_likely_to_be_chosen(many):
    observed = np.bincount(many[0].ravel(), minlength=100)
    assert observed[:20].sum() == observed[80:].sum() == 0
    assert is_likely(chi_square(observed[20:80], many[0].size / 60), 59)


def test_80_percent_are_masked_10_percent_random_10_percent_unchanged(many):
    _, labels, replaced = many
    masked, unchanged = np.mean(replaced == MASK), np.mean(replaced == labels)
    share_of_itself = 0.1 / len(ORDINARY)  # a random token may be the original
    tolerance = 4 * np.sqrt(0.8 * 0.2 / labels.size)
    assert masked == pytest.approx(0.8, abs=tolerance)
    assert unchanged == pytest.approx(0.1 + share_of_itself, abs=tolerance)


def test_random_tokens_are_uniform_and_never_special(many):
    _, labels, replaced = many
    inserted = replaced[(replaced != MASK) & (replaced != labels)]
    assert not np.isin(inserted, SPECIALS).any()
    observed = np.bincount(inserted, minlength=VOCAB_SIZE)[ORDINARY]
    assert is_likely(chi_square(observed, len(inserted) / len(ORDINARY)), len(ORDINARY) - 1)


def test_the_seed_alone_determines_the_masks():
    tokens, valid_lens = random_rows(50, 64)
    first, same, other, another = (
        mask(tokens, valid_lens, 9, seed) for seed in ((1, 2), (1, 2), (1, 3), (2, 2))
    )
    for result, again in zip(first, same, strict=True):
        np.testing.assert_array_equal(result, again)
    assert (first[1] != other[1]).any()
    assert (first[1] != another[1]).any()


def test_a_graph_of_unknown_shape_gives_the_same():
    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int32),
            tf.TensorSpec((2,), tf.int32),
        ]
    )
    def graph(tokens, valid_lens, seed):
        return mask_tokens(
            tokens,
            valid_lens,
            num_predictions=9,
            mask_id=MASK,
            special_ids=SPECIALS,
            vocab_size=VOCAB_SIZE,
            seed=seed,
        )

    tokens, valid_lens = random_rows(50, 64)
    for result, eager in zip(
        graph(tokens, valid_lens, (1, 2)), mask(tokens, valid_lens, 9), strict=True
    ):
        np.testing.assert_array_equal(result, eager)


def test_an_id_outside_the_vocabulary_is_refused():
    tokens = np.full((2, 8), VOCAB_SIZE, np.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="40 is not in"):
        mask(tokens, np.full(2, 8, np.int32), 1)
