import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTConfig, BERTEncoder, BERTModel, MultiHeadAttention
from keras_bert_d2l.layers.kernels.attention import exported, window_mask
from keras_bert_d2l.layers.positions import (
    RelativePositions,
    counted_positions,
    relative_buckets,
    rotary_angles,
    rotated,
)
from keras_bert_d2l.layers.sublayers import GatedFFN
from tests.nightly import nightly_except

SIZES = {"vocab_size": 20, "num_hiddens": 8, "ffn_num_hiddens": 12, "num_heads": 2, "num_blks": 3}
TOKENS = np.random.default_rng(0).integers(6, 20, (2, 24)).astype("int32")
DISTANCES = {"positions": "none", "num_segments": 0, "embedding_norm": True}
RELATIVES = {
    "roberta": {"pad_id": 1, "first_position_id": 2, "num_segments": 1},
    "mpnet": {"relative_buckets": 32, "num_segments": 0, "first_position_id": 2, "pad_id": 1},
    "albert": {"embedding_width": 4, "shared_blocks": True, "tie_embeddings": True},
    "modernbert": {
        "positions": "rotary",
        "local_attention": 4,
        "global_attention_every": 3,
        "gated_ffn": True,
        "bias_free": True,
        "norm_first": True,
        "skip_first_norm": True,
        "embedding_norm": True,
        "final_norm": True,
        "pooler_norm": True,
        "num_segments": 0,
    },
    "deberta": {**DISTANCES, "relative_embeddings": 12, "own_relative_keys": True},
    "deberta-v3": {
        **DISTANCES,
        "relative_embeddings": 8,
        "relative_max_distance": 16,
        "relative_norm": True,
    },
}


def random_encoder(name):
    encoder = BERTEncoder(**SIZES, dropout=0.1, max_len=32, **RELATIVES[name])
    encoder.build((None, None))
    random = np.random.default_rng(1)
    for weight in encoder.weights:
        if weight.dtype == "float32":
            weight.assign(random.normal(0.1, 0.5, weight.shape))
    return encoder


def test_rotary_positions_turn_pairs_by_their_position_times_a_frequency():
    head = np.array([1.0, 2.0, 3.0, 4.0], "float32").reshape(1, 1, 1, 4)
    angles = rotary_angles(np.array([[5]]), 100.0, 4)
    np.testing.assert_allclose(angles, [[[5.0, 0.5]]])  # 5 and 5 / 100 ** (2 / 4)
    pairs = (1 + 3j) * np.exp(5j), (2 + 4j) * np.exp(0.5j)
    expected = [*(pair.real for pair in pairs), *(pair.imag for pair in pairs)]
    np.testing.assert_allclose(rotated(head, angles)[0, 0, 0], expected, rtol=1e-6)


def test_positions_with_an_offset_count_the_tokens_that_are_not_padding():
    config = BERTConfig(**SIZES, dropout=0.1, pad_id=1, first_position_id=2)
    tokens = np.array([[1, 1, 5, 6, 7], [0, 5, 6, 1, 1]], "int32")
    found = counted_positions(tokens, None, config)
    np.testing.assert_array_equal(found, [[1, 1, 2, 3, 4], [2, 3, 4, 1, 1]])
    packed = np.array([[0, 1, 0, 1, 2]] * 2)
    np.testing.assert_array_equal(counted_positions(tokens, packed, config), packed + 2)


def test_buckets_widen_with_the_distance():
    buckets = dict(zip(range(-128, 129), relative_buckets(32).tolist(), strict=True))
    found = [buckets[-distance] for distance in (0, 1, 7, 8, 11, 12, 15, 16, 31, 32, 91, 128)]
    assert found == [0, 1, 7, 8, 8, 9, 9, 10, 11, 12, 15, 15]  # bucket b starts at 8 * 2 ** (b / 2)
    assert all(buckets[d] == buckets[-d] + 16 for d in range(1, 129))


def test_a_gate_multiplies_the_activation_of_the_first_half():
    ffn = GatedFFN(3, 1, activation="relu", use_bias=False)
    ffn.build((1, 1, 2))
    ffn.dense1.kernel.assign([[1.0, -2, 0, 5, 6, 7], [0, 0, 3, 0, 1, 2]])
    ffn.dense2.kernel.assign([[1.0], [10], [100]])
    # relu(1, -2, 6) times (5, 8, 11) is (5, 0, 66).
    assert float(ffn(np.array([[[1.0, 2.0]]], "float32"))[0, 0, 0]) == 6605


def test_a_shared_block_has_the_weights_of_one_block():
    shared, one = (
        BERTModel(**{**SIZES, "num_blks": number}, dropout=0.1, shared_blocks=True)
        for number in (5, 1)
    )
    assert shared.count_params() == one.count_params()
    for weight, value in zip(shared.weights, one.weights, strict=True):
        weight.assign(value)
    block, X = one.encoder.blks[0], one.encoder(TOKENS, return_hidden_states=True)
    X = X["hidden_states"][0]
    for _ in range(5):
        X = block(X)
    np.testing.assert_allclose(shared.encoder(TOKENS), X, atol=1e-5)


def test_local_blocks_attend_to_a_window_and_global_blocks_to_all_tokens():
    attention = random_encoder("modernbert")(TOKENS, return_attention=True)["attention"]
    distance = np.abs(np.arange(24)[:, None] - np.arange(24))
    for index, weights in enumerate(attention):
        is_seen = (np.array(weights) > 0).all((0, 1))
        np.testing.assert_array_equal(is_seen, distance <= (23 if index == 0 else 2))


def test_an_export_attends_in_blocks_to_long_rows_and_directly_to_short_ones():
    attention, window = MultiHeadAttention(8, 2, 0.0), RelativePositions(window=4)
    attention.build((None, None, 8))

    def in_windows(x, valid_lens):
        with exported():
            return attention(x, x, x, valid_lens, relative_positions=window)

    specs = [tf.TensorSpec((None, None, 8)), tf.TensorSpec((None,), tf.int32)]
    function = tf.function(in_windows, input_signature=specs, autograph=False)
    graph = function.get_concrete_function().graph
    assert "StatelessIf" in {operation.type for operation in graph.get_operations()}
    random = np.random.default_rng(0)
    for length in (2, 15, 16, 21):  # from 8 half windows on, blocks are faster
        x = random.normal(size=(2, length, 8)).astype("float32")
        lens = np.array([length, max(1, length - 4)])
        mask = window_mask(4, length, mask=(np.arange(length) < lens[:, None])[:, None])
        sees_any = np.any(mask, -1)
        expected = attention(x, x, x, attention_mask=mask)[sees_any]
        np.testing.assert_allclose(function(x, lens)[sees_any], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except(["modernbert"], RELATIVES))
def test_some_tokens_and_packed_examples_are_encoded_as_in_complete_rows(name):
    encoder = random_encoder(name)
    complete = np.array(encoder(TOKENS))
    positions = np.array([[1, 20], [7, 3]])
    found = encoder(TOKENS, positions=positions)
    expected = np.take_along_axis(complete, positions[:, :, None], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    is_same = np.arange(24) < 10  # two examples per row
    found = encoder(
        TOKENS,
        attention_mask=np.broadcast_to(is_same[:, None] == is_same, (2, 24, 24)),
        position_ids=np.array([[*range(10), *range(14)]] * 2),
        positions=positions,
    )
    alone = np.concatenate([encoder(TOKENS[:, :10]), encoder(TOKENS[:, 10:])], axis=1)
    expected = np.take_along_axis(alone, positions[:, :, None], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "name", nightly_except(["mpnet"], [name for name in RELATIVES if name != "albert"])
)
def test_padding_on_the_left_changes_nothing_where_positions_are_relative_or_counted(name):
    encoder = random_encoder(name)
    padded = np.pad(TOKENS, ((0, 0), (5, 0)), constant_values=RELATIVES[name].get("pad_id", 0))
    found = encoder(padded, attention_mask=np.broadcast_to(np.arange(29) >= 5, (2, 29)))
    np.testing.assert_allclose(found[:, 5:], encoder(TOKENS), atol=1e-5)


@pytest.mark.parametrize("num_segments", nightly_except([1], [0, 1]))
def test_segments_do_not_matter_with_fewer_than_two_rows(num_segments):
    encoder = BERTEncoder(**SIZES, dropout=0.1, num_segments=num_segments)
    segments = (np.arange(24) > 9).astype("int32") * np.ones((2, 1), "int32")
    np.testing.assert_array_equal(encoder(TOKENS, segments), encoder(TOKENS))


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except(["mpnet"], RELATIVES))
def test_gradients_are_equal_with_rematerialized_blocks_and_saving_keeps_the_model(name, tmp_path):
    keras.utils.set_random_seed(0)
    model = BERTModel(**SIZES, dropout=0.0, max_len=32, **RELATIVES[name])

    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model.encoder(TOKENS, training=True) ** 2)
        found = tape.gradient(loss, model.encoder.trainable_variables)
        return [tf.convert_to_tensor(gradient).numpy() for gradient in found]

    expected = gradients()
    model.encoder.remat = "blocks"
    for found, gradient in zip(gradients(), expected, strict=True):
        np.testing.assert_allclose(found, gradient, rtol=1e-4, atol=1e-4)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.encoder(TOKENS), model.encoder(TOKENS))
