"""The attention of DeBERTa: distances, shifts, and the convolution of neighbors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTConfig, BERTEncoder, BERTModel
from keras_bert_d2l.layers.kernels.attention import exported
from keras_bert_d2l.layers.kernels.disentangled import disentangled_bias, rows_of_distances
from tests.nightly import nightly_except

CONV = {"relative_embeddings": 4, "conv_kernel_size": 3, "num_segments": 0}
SIZES = {"vocab_size": 20, "num_hiddens": 8, "ffn_num_hiddens": 12, "num_heads": 2, "num_blks": 2}


def rows_by_distance(num_distances, max_distance, distances):
    rows = rows_of_distances(num_distances, max_distance)
    most = len(rows) // 2
    return [int(rows[np.clip(distance, -most, most) + most]) for distance in distances]


def test_each_distance_has_a_row_and_the_furthest_share_the_last_ones():
    found = rows_by_distance(3, 0, range(-5, 6))
    assert found == [0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5]


def test_buckets_of_deberta_v3_are_those_of_its_configuration():
    # From make_log_bucket_position of transformers 5.24 with 256 buckets and 512 positions.
    distances = [0, 1, 128, 129, 130, 131, 200, 300, 400, 510, 511, 512, 600]
    expected = [256, 257, 384, 385, 386, 387, 425, 463, 489, 511, 511, 511, 511]
    assert rows_by_distance(256, 512, distances) == expected
    assert rows_by_distance(256, 512, [-x for x in distances[:9]]) == [
        512 - x for x in expected[:9]
    ]


def scores_by_gather(q, k, for_queries, for_keys, rows):
    """Return the same as `disentangled_bias` for tables `(N, 2 K, H)` and rows `(Q, T)`."""
    of_q = np.einsum("bqnh,nqth->bnqt", q, for_queries[:, rows])
    return of_q + np.einsum("btnh,nqth->bnqt", k, for_keys[:, rows])


@pytest.mark.parametrize("way", ["known", "unknown", "exported"])
@pytest.mark.parametrize("length", nightly_except([1, 300], [1, 2, 127, 128, 129, 300]))
def test_shifts_select_the_products_with_the_embedding_of_each_distance(length, way):
    random = np.random.default_rng(length)
    q, k = random.normal(size=(2, 2, length, 3, 4)).astype("float32")
    tables = random.normal(size=(2, 1000, 12)).astype("float32")

    def project(embeddings):  # the first column has the numbers of the rows
        rows = tf.cast(embeddings[:, 0], tf.int32)
        return [tf.transpose(tf.reshape(tf.gather(x, rows), (-1, 3, 4)), (1, 0, 2)) for x in tables]

    numbers = np.arange(1000, dtype="float32")[:, None] * np.ones((1, 5), "float32")
    distances = np.arange(length)[:, None] - np.arange(length)
    heads = [x.reshape(-1, 3, 4).transpose(1, 0, 2) for x in tables]
    expected = scores_by_gather(q, k, *heads, distances + 500)
    positions = np.array([[0, length - 1], [length // 2, 0]])

    def found(q, k, positions=None):
        with exported() if way == "exported" else tf.name_scope("plain"):
            return disentangled_bias(q, k, numbers, project, 0, positions)

    if way != "known":
        shape = (None, None, 3, 4)
        specs = [tf.TensorSpec(shape), tf.TensorSpec(shape)]
        found = tf.function(found, input_signature=specs, autograph=False)
    np.testing.assert_allclose(found(q, k), expected, rtol=0, atol=1e-5)
    if way == "known":
        for number in (1, 2):
            places = positions[:, :number]
            some = np.take_along_axis(q, places[:, :, None, None], axis=1)
            each = np.take_along_axis(expected, places[:, None, :, None], axis=2)
            np.testing.assert_allclose(found(some, k, places), each, rtol=0, atol=1e-5)


def test_the_convolution_reads_no_padding_and_is_saved_with_the_model(tmp_path):
    keras.utils.set_random_seed(0)
    model = BERTModel(**SIZES, dropout=0.0, max_len=12, **CONV)
    tokens = np.random.default_rng(0).integers(5, 20, (2, 6)).astype("int32")
    padded = np.pad(tokens, ((0, 0), (0, 3)), constant_values=7)
    lens, positions = np.array([6, 6]), np.array([[5, 0], [1, 2]])
    expected = model.encoder(tokens).numpy()
    np.testing.assert_allclose(model.encoder(padded, None, lens)[:, :6], expected, atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.encoder(tokens), expected)
    one = BERTEncoder(**{**SIZES, "num_blks": 1}, dropout=0.0, max_len=12, **CONV)
    each = np.take_along_axis(one(tokens).numpy(), positions[:, :, None], axis=1)
    np.testing.assert_allclose(one(tokens, positions=positions), each, atol=1e-6)
    changed = tokens.copy()
    changed[:, 2] = 5
    hidden = [one(x, return_hidden_states=True)["hidden_states"] for x in (tokens, changed)]
    assert np.abs(hidden[0][1] - hidden[1][1]).max() > 0


def test_packed_rows_are_refused_with_a_convolution():
    encoder = BERTEncoder(**SIZES, dropout=0.0, max_len=12, **CONV)
    tokens = np.full((1, 4), 5)
    with pytest.raises(ValueError, match="`example_ids` must be None with `conv_kernel_size`"):
        encoder(tokens, example_ids=np.array([[1, 1, 2, 2]]))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"relative_max_distance": 9}, "relative_max_distance"),
        ({"relative_embeddings": 5, "relative_max_distance": 9}, "relative_max_distance"),
        ({"relative_embeddings": 8, "relative_max_distance": 5}, "relative_max_distance"),
        ({"relative_norm": True}, "relative_norm"),
        ({"own_relative_keys": True}, "own_relative_keys"),
        ({"relative_embeddings": 4, "positions": "rotary"}, "relative_embeddings"),
        ({"relative_embeddings": 4, "relative_buckets": 32}, "relative_embeddings"),
        ({"conv_kernel_size": 2}, "conv_kernel_size"),
    ],
)
def test_fields_that_contradict_each_other_are_named(fields, named):
    with pytest.raises(ValueError, match=f"`{named}` must be"):
        BERTConfig(**SIZES, dropout=0.0, **fields)


def test_a_block_counts_the_projections_of_its_own_distances():
    own, shared = (
        BERTModel(**SIZES, dropout=0.0, relative_embeddings=4, own_relative_keys=own).count_params()
        for own in (True, False)
    )
    # Per block, two kernels and one bias more, and the bias of the keys less.
    assert own - shared == 2 * (8 * 8 + 8 + 8 * 8 - 8)
