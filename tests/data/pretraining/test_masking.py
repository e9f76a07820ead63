"""Masking: comparison with plain NumPy, row by row, statistics, and a pipeline of one's own."""

import bisect
import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.data.pretraining.choosing import CHOICE, REPLACEMENT, ROW, UNIT_LENGTH
from keras_bert_d2l.data.pretraining.masking import STRATEGIES, Masking, MaskTokens, mask_tokens
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

# Special tokens anywhere in the vocabulary. The last 15 of 40 tokens continue a word.
TOKENS = [f"w{n}" for n in range(20)]
for place, special in zip((0, 3, 5, 7, 12), GOOGLE_SPECIALS, strict=True):
    TOKENS.insert(place, special)
TOKENS += [f"##p{n}" for n in range(15)]
VOCAB = Vocab(TOKENS)
PIECES = np.arange(25, 40)
ORDINARY = np.setdiff1d(np.arange(40), VOCAB.special_ids)
WORDS = np.setdiff1d(ORDINARY, PIECES)
BOUNDS = {
    "ngram": [6 / 11, 9 / 11],
    "span": list(itertools.accumulate(0.2 * 0.8**n / (1 - 0.8**10) for n in range(9))),
}


def random_rows(num_rows, num_tokens, seed=0):
    """Return rows of every length, with special tokens at both ends and some inside."""
    draw = np.random.default_rng(seed)
    tokens = draw.choice(WORDS, (num_rows, num_tokens))
    tokens = np.where(draw.random(tokens.shape) < 0.3, draw.choice(PIECES, tokens.shape), tokens)
    tokens[draw.random(tokens.shape) < 0.05] = VOCAB.unk_id
    valid_lens = draw.integers(1, num_tokens + 1, num_rows)
    tokens[:, 0] = VOCAB.cls_id
    tokens[np.arange(num_rows), valid_lens - 1] = VOCAB.sep_id
    tokens[np.arange(num_tokens) >= valid_lens[:, None]] = WORDS[0]  # ordinary
    return tokens.astype(np.int32), valid_lens.astype(np.int32)


def random_keys(num_rows, seed=0):
    return np.random.default_rng((seed, 1)).integers(1 << 63, size=num_rows)


def mask(tokens, valid_lens, num_predictions, keys=None, masking=None):
    results = mask_tokens(
        tf.constant(tokens),
        tf.constant(valid_lens),
        tf.constant(random_keys(len(tokens)) if keys is None else keys),
        vocab=VOCAB,
        masking=masking or Masking(),
        num_predictions=num_predictions,
    )
    return [result.numpy() for result in results]


def mask_row(tokens, length, key, masking, num_predictions):
    """Mask one row in plain NumPy, with the random draws of `mask_tokens`."""
    ordinary = np.setdiff1d(ORDINARY, masking.exclude)
    candidates = [n for n in range(length) if tokens[n] in ordinary]
    count = min(num_predictions, max(1, round(masking.rate * length)), len(candidates))
    choose = plain_tokens if masking.strategy == "token" else plain_words
    units = choose(key, tokens, candidates, count, masking.strategy)  # {position: unit}
    corrupted, (mask_share, random_share, _) = tokens.copy(), masking.replace
    for position, unit in units.items():
        draw = uniform(key, REPLACEMENT, unit)
        if draw < mask_share:  # 80%: the mask token
            corrupted[position] = VOCAB.mask_id
        elif draw < mask_share + random_share:  # 10%: a random token
            choice = uniform(key, REPLACEMENT, position) * 2**21 % 1
            corrupted[position] = ordinary[int(choice * len(ordinary))]
    return corrupted, list(units), tokens[list(units)]  # the other 10% are kept


def plain_tokens(key, tokens, candidates, count, strategy):
    """Sample `count` candidates by Floyd's algorithm; each is its own unit."""
    chosen = []
    for i in range(count):
        last = len(candidates) - count + i
        draw = int(uniform(key, CHOICE, i) * (last + 1))
        chosen.append(last if draw in chosen else draw)
    return {candidates[n]: candidates[n] for n in chosen}


def plain_words(key, tokens, candidates, count, strategy):
    """Choose units of words in random order; return the first position of the unit by position."""
    words = []
    for n in candidates:
        if tokens[n] in PIECES and words and words[-1][-1] == n - 1:
            words[-1].append(n)
        else:
            words.append([n])
    order = list(range(len(words)))
    unit = {}
    for turn in range(len(words)):
        left = count - len(unit)
        other = turn + int(uniform(key, CHOICE, turn) * (len(words) - turn))
        order[turn], order[other] = order[other], order[turn]
        first = order[turn]
        length = 1 + bisect.bisect_right(BOUNDS.get(strategy, []), uniform(key, UNIT_LENGTH, turn))
        tried = []
        for word in words[first : first + length]:
            follows = not tried or tried[-1] == word[0] - 1
            if not follows or word[-1] + 1 - words[first][0] > left:
                break
            tried += word
        if strategy == "ngram" and any(n in unit for n in tried):
            continue
        if strategy == "span" and words[first][0] in unit:
            continue
        unit |= {n: words[first][0] for n in tried if n not in unit}
    return {n: n if strategy == "whole_word" else unit[n] for n in sorted(unit)}


def uniform(key, stream, index):
    """Return a random number of a row's stream, computed by SplitMix64 with Python integers."""
    return (random_bits(key, stream, index) >> 11) / 2**53


def random_bits(key, stream, index):
    bits = int(key) + (int(index) + stream + 1) * 0x9E3779B97F4A7C15 & 2**64 - 1
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    return (bits ^ bits >> 27) * 0x94D049BB133111EB & 2**64 - 1


def chi_square(observed, expected):
    return np.sum((observed - expected) ** 2 / expected)


def is_likely(statistic, degrees):
    """Return whether a chi-square statistic is within four standard deviations of its mean."""
    return statistic < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.parametrize(("rate", "num_predictions"), [(0.15, 9), (0.4, 40)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_masking_equals_plain_numpy_with_the_same_draws(strategy, rate, num_predictions):
    masking = Masking(strategy, rate, (0.5, 0.3, 0.2), exclude=(int(WORDS[3]), 30))
    tokens, valid_lens = random_rows(100, 64)
    keys = random_keys(100)
    results = mask(tokens, valid_lens, num_predictions, keys, masking)
    for row, result in enumerate(zip(*results, strict=True)):
        corrupted, *predicted = mask_row(
            tokens[row], valid_lens[row], keys[row], masking, num_predictions
        )
        np.testing.assert_array_equal(result[0], corrupted)
        count = len(predicted[0])
        for values, wanted in zip(result[1:], (*predicted, np.ones(count)), strict=True):
            np.testing.assert_array_equal(values[:count], wanted)
            assert not values[count:].any()
    assert [result.dtype for result in results] == [np.int32, np.int32, np.int32, np.float32]


def test_a_share_of_all_tokens_is_predicted_with_halves_rounded_to_even():
    lengths = np.array([1, 3, 9, 10, 30, 50, 100, 128], np.int32)
    tokens = np.full((len(lengths), 128), WORDS[0], np.int32)
    tokens[-1, 51:] = VOCAB.unk_id  # the share refers to all tokens, also to special ones
    for rate, counts in ((0.15, [1, 1, 1, 2, 4, 8, 15, 19]), (0.4, [1, 1, 4, 4, 12, 20, 40, 51])):
        masking = Masking(rate=rate)
        assert masking.num_predictions(128) == counts[-1]
        *_, weights = mask(tokens, lengths, counts[-1], masking=masking)
        assert weights.sum(axis=1).tolist() == counts


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_predictions_never_exceed_the_candidates(strategy):
    tokens = np.full((2, 40), VOCAB.unk_id, np.int32)
    tokens[1, [4, 17]] = WORDS[:2]
    results = mask(tokens, np.array([40, 40], np.int32), 6, masking=Masking(strategy))
    corrupted, positions, labels, weights = results
    assert weights.tolist() == [[0] * 6, [1, 1, 0, 0, 0, 0]]
    assert positions.tolist() == [[0] * 6, [4, 17, 0, 0, 0, 0]]
    assert labels[1, :2].tolist() == WORDS[:2].tolist()
    assert (corrupted[0] == tokens[0]).all()
    tokens = np.full((2, 8), VOCAB.sep_id, np.int32)  # no candidates at all
    corrupted, *rest = mask(tokens, np.array([8, 0], np.int32), 3, masking=Masking(strategy))
    np.testing.assert_array_equal(corrupted, tokens)
    assert not np.any(rest)


MANY = 2000


@functools.cache
def many(strategy, **options):
    """Return the predictions of 2,000 rows of 128 tokens, 100 of which are candidates."""
    draw = np.random.default_rng(1)
    tokens = np.full((MANY, 128), VOCAB.unk_id)
    tokens[:, 20:120] = draw.choice(WORDS, (MANY, 100))
    masking = Masking(strategy, **options)
    num_predictions = masking.num_predictions(128)
    corrupted, positions, labels, weights = mask(
        tokens.astype(np.int32), np.full(MANY, 128, np.int32), num_predictions, None, masking
    )
    return positions, labels, np.take_along_axis(corrupted, positions, axis=1), weights == 1


def test_random_tokens_are_uniform_and_never_special_or_excluded():
    excluded = (int(WORDS[1]), int(WORDS[2]))
    _, labels, replaced, is_real = many("token", exclude=excluded)
    assert not np.isin(labels[is_real], excluded).any()
    inserted = replaced[is_real & (replaced != VOCAB.mask_id) & (replaced != labels)]
    allowed = np.setdiff1d(ORDINARY, excluded)
    assert np.isin(inserted, allowed).all()
    pieces = np.bincount(inserted, minlength=40)[PIECES]  # never the original
    assert is_likely(chi_square(pieces, pieces.mean()), len(PIECES) - 1)
    share = len(PIECES) / (len(allowed) * 0.1 * is_real.sum())
    assert pieces.sum() * share == pytest.approx((len(PIECES) / len(allowed)) ** 2, rel=0.05)


@pytest.mark.slow
def test_a_graph_with_unknown_shapes_gives_the_same_result():
    masking = Masking("span")

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec((None, None), tf.int64),
            tf.TensorSpec((None,), tf.int64),
            tf.TensorSpec((None,), tf.int64),
        ],
    )
    def graph(tokens, valid_lens, keys):
        return mask_tokens(
            tokens, valid_lens, keys, vocab=VOCAB, masking=masking, num_predictions=9
        )

    tokens, valid_lens = random_rows(50, 64)
    eager = mask(tokens, valid_lens, 9, masking=masking)
    for result, wanted in zip(graph(tokens, valid_lens, random_keys(50)), eager, strict=True):
        np.testing.assert_array_equal(result, wanted)
    with pytest.raises(tf.errors.InvalidArgumentError, match="valid_lens.*Received: 1"):
        graph(tokens, valid_lens[:1], random_keys(50))


def test_an_id_outside_the_vocabulary_is_rejected():
    for outside in (-1, len(VOCAB)):
        tokens = np.full((2, 8), outside, np.int32)
        with pytest.raises(ValueError, match=f"from 0 to 39. .*{outside}"):
            mask(tokens, np.full(2, 8, np.int32), 1)
    with pytest.raises(ValueError, match="`keys` must be integers"):
        mask(np.full((2, 8), 0), np.full(2, 8), 1, [0.5, 0.5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "words"}, "`strategy` must be one of 'token', .* strategy='words'"),
        ({"rate": 0}, "`rate` must be a number between 0 and 1"),
        ({"rate": 1.0}, "`rate` must be a number between 0 and 1"),
        ({"replace": (0.8, 0.1)}, "three shares that add up to 1"),
        ({"replace": (0.8, 0.1, 0.2)}, "three shares that add up to 1"),
        ({"replace": (1.1, -0.1, 0.0)}, "three shares that add up to 1"),
        ({"exclude": 7}, "a list of token ids"),
        ({"exclude": ("the",)}, "`exclude`"),
    ],
)
def test_the_error_for_an_option_out_of_range_names_it(options, message):
    with pytest.raises(ValueError, match=message):
        Masking(**options)


# MaskTokens

ROWS = dict(zip(("tokens", "valid_lens"), random_rows(40, 24), strict=True))
ONE = {"tokens": [[3, 0, 5]], "valid_lens": [3]}
NOT_A_BATCH = {  # message -> arguments
    r"\(x, y\), use `dataset.map\(lambda x, y: mask\(x\)\)`": [ONE, [1]],
    "`batch` must be a dictionary .*batch=\\(": [0, (ONE, [1])],
    "dictionary with `tokens` and `valid_lens`.*'tokens'.*`Tokenizer`": [{"tokens": [[3]]}],
    "without `pred_positions`.*'pred_positions'": [ONE | {"pred_positions": [[1]]}],
    "`step` must be an integer.*step=0.5.*after `batch`": [0.5, ONE],
    r"`tokens` .*\(B, T\).*\[3, 0, 5\].*`dataset.batch": [ONE | {"tokens": [3, 0, 5]}],
    "`tokens` must be numbers .*`frame_tokens` pads": [ONE | {"tokens": [[3], [0, 5]]}],
    "`valid_lens` must be from 0 to 3. Received: 4": [ONE | {"valid_lens": [4]}],
    r"`len\(valid_lens\)` must be 1. Received: 2": [ONE | {"valid_lens": [3, 3]}],
}


@pytest.mark.slow
def test_the_masks_of_a_row_depend_only_on_its_ids_and_the_seed():
    options = {"vocab": VOCAB, "masking": "whole_word", "num_predictions": 4}
    mask = MaskTokens(**options, seed=5)
    features, labels, weights = mask(ROWS)
    factors = np.array([random_bits(5, ROW, n) for n in range(24)], np.uint64)
    is_token = np.arange(24) < ROWS["valid_lens"][:, None]
    keys = ((ROWS["tokens"].astype(np.uint64) + 1) * factors * is_token).sum(axis=1)
    masked = mask_tokens(*ROWS.values(), keys, **options)
    found = features["tokens"], features["pred_positions"], labels["mlm"], weights["mlm"]
    assert all(np.array_equal(one, other) for one, other in zip(found, masked, strict=True))
    wider = np.pad(ROWS["tokens"], [(0, 0), (0, 9)], constant_values=7)[::-1]
    lengths = ROWS["valid_lens"][::-1].astype(np.float32)
    _, reversed_labels, _ = mask({"tokens": wider, "valid_lens": lengths})
    np.testing.assert_array_equal(reversed_labels["mlm"][::-1], labels["mlm"])
    _, other_labels, _ = MaskTokens(**options, seed=6)(ROWS)
    assert np.mean(other_labels["mlm"] != labels["mlm"]) > 0.3


@pytest.mark.slow
def test_numbered_batches_have_new_masks_in_every_epoch_also_with_parallel_calls():
    rows = ROWS | {"name": [f"row {n}" for n in range(40)]}
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(8).repeat(2)
    mask = MaskTokens(VOCAB, num_predictions=4)
    found = [x for x, *_ in dataset.enumerate().map(mask, num_parallel_calls=tf.data.AUTOTUNE)]
    for step, batch in enumerate(dataset):
        np.testing.assert_array_equal(mask(step, batch)[0]["tokens"], found[step]["tokens"])
    for first, second in zip(found[:5], found[5:], strict=True):
        np.testing.assert_array_equal(first["name"], second["name"])
        assert (first["tokens"] != second["tokens"]).numpy().any()


@pytest.mark.parametrize("is_numbered", [False, True])
def test_similar_rows_have_independent_masks(is_numbered):
    vocab = Vocab([*GOOGLE_SPECIALS, *(f"w{n}" for n in range(2000))])
    tokens = np.full((2000, 102), 5)
    tokens[:, [0, -1]] = vocab.cls_id, vocab.sep_id
    tokens[:, 1] += 0 if is_numbered else np.arange(2000)  # the only difference
    batch = {"tokens": tokens, "valid_lens": [102] * 2000}
    mask = MaskTokens(vocab, num_predictions=15)
    features, labels, weights = mask(0, batch) if is_numbered else mask(batch)
    assert (weights["mlm"].numpy() == 1).all()  # round(0.15 * 102)
    positions = features["pred_positions"].numpy()
    assert is_likely(chi_square(np.bincount(positions.ravel())[1:], 300), 99)
    replaced = np.take_along_axis(features["tokens"].numpy(), positions, axis=1)
    is_masked, is_kept = replaced == vocab.mask_id, replaced == labels["mlm"].numpy()
    counts = np.array([is_masked.sum(), (~is_masked & ~is_kept).sum(), is_kept.sum()])
    assert is_likely(chi_square(counts, np.array([24_000, 3_000, 3_000])), 2)


@pytest.mark.long
@pytest.mark.usefixtures("eager_models")
def test_a_model_of_ones_own_learns_from_strings_that_its_pipeline_pairs_and_masks():
    words = [f"w{n}" for n in range(8)]
    tokenizer = kb.Tokenizer(Vocab([*GOOGLE_SPECIALS, *words]))
    texts = tf.data.Dataset.from_tensor_slices((words, words)).batch(8)
    rows = texts.map(lambda a, b: tokenizer(a, b, max_len=8))
    mask = MaskTokens(tokenizer.vocab, num_predictions=2)
    dataset = rows.repeat(30).enumerate().map(mask, num_parallel_calls=tf.data.AUTOTUNE)
    shapes = {"tokens": [8], "segments": [8], "valid_lens": [], "pred_positions": [2]}
    inputs = {name: keras.Input(shape, name=name) for name, shape in shapes.items()}
    X = keras.layers.Embedding(13, 16)(inputs["tokens"])
    X = X + keras.ops.mean(X, axis=1, keepdims=True)  # in place of an encoder, for speed
    model = keras.Model(inputs, {"mlm": kb.MaskLM(13, 16)(X, inputs["pred_positions"])})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss={"mlm": loss}, jit_compile=False)
    losses = [model.fit(dataset, shuffle=False, verbose=0).history["loss"][0] for _ in range(3)]
    assert losses[-1] < 0.5 * losses[0]  # the other text of a pair is the same


@pytest.mark.parametrize("message", NOT_A_BATCH)
def test_an_element_that_is_no_batch_is_rejected(message):
    with pytest.raises(ValueError, match=message):
        MaskTokens(VOCAB, num_predictions=1)(*NOT_A_BATCH[message])


def test_options_out_of_range_are_rejected():
    with pytest.raises(ValueError, match="`num_predictions` must be an integer of at least 1"):
        MaskTokens(VOCAB, num_predictions=0)
    with pytest.raises(ValueError, match=r"`vocab` must be a `Vocab`.*Pass `tokenizer.vocab`"):
        MaskTokens(kb.Tokenizer(VOCAB), num_predictions=1)
