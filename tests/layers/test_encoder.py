import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import (
    BERTEncoder,
    MaskLM,
    MultiHeadAttention,
    NextSentencePred,
    TransformerEncoderBlock,
)
from keras_bert_d2l.layers.base import UnbiasedLayerNormalization
from keras_bert_d2l.layers.sublayers import PositionWiseFFN
from keras_bert_d2l.layers.transformer import AddNorm

TOKENS = np.array([[3, 7, 1, 5, 0, 0], [2, 4, 6, 8, 9, 1]])
SEGMENTS = np.array([[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]])


def small_encoder(**options):
    return BERTEncoder(10, 8, 16, 2, 2, 0.0, max_len=6, **options)


def test_token_segment_and_position_embeddings_are_summed():
    encoder = BERTEncoder(10, 8, 16, 2, 1, 0.0, max_len=6)
    encoder.build((None, None))
    encoder.blks = []  # makes it return the input of the first block
    expected = (
        encoder.token_embedding.embeddings.numpy()[TOKENS]
        + encoder.segment_embedding.embeddings.numpy()[SEGMENTS]
        + encoder.pos_embedding.numpy()[:, :6]
    )
    np.testing.assert_allclose(encoder(TOKENS, SEGMENTS), expected, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"embedding_norm": True, "activation": "gelu_tanh"}])
def test_padding_does_not_change_the_encoded_tokens(options):
    encoder = small_encoder(**options)
    lens = np.array([4, 6])
    expected = encoder(TOKENS, SEGMENTS, lens)
    other_tokens, other_segments = TOKENS.copy(), SEGMENTS.copy()
    other_tokens[0, 4:], other_segments[0, 4:] = [9, 2], [1, 1]
    got = encoder(other_tokens, other_segments, lens)
    np.testing.assert_allclose(got[0, :4], expected[0, :4], atol=1e-6)
    alone = encoder(TOKENS[:1, :4], SEGMENTS[:1, :4], None)  # a different batch, without padding
    np.testing.assert_allclose(alone[0], expected[0, :4], atol=1e-6)


def test_float_lengths_are_accepted_even_under_mixed_precision():
    encoder = BERTEncoder(10, 8, 16, 2, 1, 0.0, max_len=300, dtype="mixed_bfloat16")
    tokens = np.random.default_rng(0).integers(0, 10, (1, 300))
    segments = np.zeros_like(tokens)
    of_floats = encoder(tokens, segments, np.array([257.0], "float32"))
    np.testing.assert_array_equal(of_floats, encoder(tokens, segments, np.array([257])))
    of_256 = encoder(tokens, segments, np.array([256]))
    assert np.abs(tf.cast(of_floats - of_256, tf.float32)).max() > 0


def test_the_first_segment_id_is_added_except_to_padding():
    tokens, segments = np.array([[3, 4, 5, 0, 0]]), np.array([[0, 0, 1, 0, 0]])
    encoder = small_encoder(num_segments=3, first_segment_id=1, mask_from="tokens")
    got = encoder(tokens, segments, return_hidden_states=True)["hidden_states"][0]
    rows = encoder.segment_embedding.embeddings.numpy()[[1, 1, 2, 0, 0]]
    others = encoder.token_embedding(tokens)[0] + encoder.pos_embedding[0, :5]
    np.testing.assert_allclose(got[0], others + rows, atol=1e-6)
    with pytest.raises(ValueError, match="`segments` must be from 0 to 1. Received: 2"):
        encoder(tokens, segments * 2)  # the limit is that of a batch
    one = small_encoder(num_segments=2, first_segment_id=1)
    with pytest.raises(ValueError, match="be 0. Received: 1.*model accepts 1 per row"):
        one(tokens, segments)


@pytest.mark.parametrize("zero_padding", [True, False])
@pytest.mark.parametrize("mask_from", ["tokens", "valid_lens"])
def test_rows_for_padding_start_at_zero_and_have_no_gradient(zero_padding, mask_from):
    encoder = small_encoder(
        num_segments=3, first_segment_id=1, mask_from=mask_from, zero_padding=zero_padding
    )
    tokens = tf.constant([[3, 4, 5, 0, 0], [1, 2, 3, 0, 5]])
    with tf.GradientTape() as tape:  # also of the vectors at padding
        loss = tf.reduce_sum(encoder(tokens, tf.zeros_like(tokens))[:, :, 0])
    tables = [encoder.token_embedding.embeddings, encoder.segment_embedding.embeddings]
    gradients = tape.gradient(loss, [table.value for table in tables])
    for table, gradient, is_fixed in zip(tables, gradients, (zero_padding, True), strict=True):
        row, *others = np.abs(tf.convert_to_tensor(gradient).numpy()).max(axis=1)
        assert (row == 0) == is_fixed
        assert others[0] > 0
        assert (np.abs(table.numpy()[0]).max() == 0) == is_fixed
        assert np.abs(table.numpy()[1:]).min(axis=1).max() > 0


@pytest.mark.parametrize(
    ("initializer", "token", "position"),
    [
        ("book", 0.1 / np.sqrt(12), 0.05),
        ("truncated_normal", 0.02 * 0.88, 0.02 * 0.88),  # truncation reduces it by 12 %
    ],
)
def test_initializers_have_their_documented_standard_deviations(initializer, token, position):
    encoder = BERTEncoder(500, 64, 64, 2, 1, 0.0, max_len=500, initializer=initializer)
    encoder.build((None, None))
    weights = encoder.token_embedding.embeddings, encoder.pos_embedding
    found = [weight.numpy().std() for weight in weights]
    assert found == pytest.approx([token, position], rel=0.05)


LAYERS = [
    AddNorm(0.1, 1e-5),
    PositionWiseFFN(4, 8, activation="gelu"),
    MultiHeadAttention(8, 2, 0.3, False, initializer="truncated_normal", initializer_range=0.1),
    TransformerEncoderBlock(8, 16, 2, 0.1, False, attention_dropout=0.0, activation="gelu_tanh"),
    MaskLM(9, 4, activation="gelu", initializer_range=0.1),
    NextSentencePred(name="nsp", initializer_range=0.1),
    UnbiasedLayerNormalization(0.25, name="ln"),
    small_encoder(num_segments=3, embedding_dropout=0.2, layer_norm_epsilon=1e-12),
    small_encoder(zero_padding=True, initializer_range=0.1),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_is_restored_from_its_config(layer):
    config = layer.get_config()
    in_version_0_1_0 = {k: v for k, v in config.items() if k not in ("pooler", "next_sentence")}
    for saved in (config, in_version_0_1_0):
        assert type(layer).from_config(saved).get_config() == config


def test_an_unknown_option_is_named_in_the_error():
    with pytest.raises(ValueError, match="Unknown argument 'num_layers'"):
        small_encoder(num_layers=2)
    with pytest.raises(ValueError, match="Unknown argument 'num_segments'"):
        TransformerEncoderBlock(8, 16, 2, 0.0, num_segments=3)


def test_hidden_states_and_attention_match_the_default_call():
    encoder, lens = small_encoder(), np.array([4, 6])
    got = encoder(TOKENS, SEGMENTS, lens, return_hidden_states=True, return_attention=True)
    assert sorted(got) == ["attention", "encoded", "hidden_states"]
    np.testing.assert_array_equal(got["encoded"], encoder(TOKENS, SEGMENTS, lens))
    states, attention = got["hidden_states"], got["attention"]
    assert getattr(got["encoded"], "_keras_mask", None) is None
    assert [x.shape for x in states] == [(2, 6, 8)] * 3
    assert [x.shape for x in attention] == [(2, 2, 6, 6)] * 2
    for block, X, Y in zip(encoder.blks, states, states[1:], strict=False):
        np.testing.assert_allclose(block(X, lens), Y, atol=1e-6)
    for weights in attention:
        np.testing.assert_allclose(np.sum(weights, axis=-1), 1, atol=1e-6)
        assert np.all(weights[0, :, :, 4:] == 0)
    assert sorted(encoder(TOKENS, SEGMENTS, return_attention=True)) == ["attention", "encoded"]


def test_the_last_hidden_state_is_after_the_final_normalization():
    encoder = small_encoder(norm_first=True, final_norm=True)
    states = encoder(TOKENS, SEGMENTS, return_hidden_states=True)["hidden_states"]
    np.testing.assert_array_equal(states[-1], encoder(TOKENS, SEGMENTS))
    np.testing.assert_allclose(np.mean(states[-1], axis=-1), 0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "final_norm": True}, {"num_blks": 0}])
@pytest.mark.parametrize("mask", [None, np.tri(6)[None].repeat(2, axis=0)])
def test_positions_select_the_tokens_to_encode(mask, options):
    sizes = {"num_blks": 2, **options}
    encoder = BERTEncoder(10, 8, 16, 2, dropout=0.0, max_len=6, **sizes)
    batch = (TOKENS, SEGMENTS, np.array([4, 6]))
    positions = np.array([[3, 0, 3], [5, 1, 2]])
    complete = np.array(encoder(*batch, attention_mask=mask))
    expected = np.take_along_axis(complete, positions[..., None], axis=1)
    found = encoder(*batch, attention_mask=mask, positions=positions)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_hidden_states_can_be_outputs_of_a_functional_model():
    tokens, segments = (keras.Input((None,), dtype="int32") for _ in range(2))
    states = small_encoder()(tokens, segments, return_hidden_states=True)["hidden_states"]
    model = keras.Model([tokens, segments], states[-2])
    assert states[-2].shape == (None, None, 8)
    assert model([TOKENS, SEGMENTS]).shape == (2, 6, 8)


def test_sinusoidal_positions_follow_the_formula_and_are_not_a_weight():
    encoder = small_encoder(positions="sinusoidal")
    encoder.build((None, None))
    assert not any("pos" in weight.path for weight in encoder.weights)
    for position in (0, 1, 5):
        for pair in range(4):
            angle = position / 10000 ** (2 * pair / 8)
            found = encoder.pos_embedding[0, position, 2 * pair : 2 * pair + 2]
            np.testing.assert_allclose(found, [np.sin(angle), np.cos(angle)], atol=1e-6)


def test_mask_from_tokens_treats_token_0_as_padding():
    encoder = small_encoder(mask_from="tokens")
    by_hand = small_encoder()
    by_hand.build((None, None))
    encoder.build((None, None))
    by_hand.set_weights(encoder.get_weights())
    expected = by_hand(TOKENS, SEGMENTS, attention_mask=TOKENS > 0)
    np.testing.assert_allclose(encoder(TOKENS, SEGMENTS), expected, atol=1e-6)


def test_position_ids_select_rows_of_the_position_embedding():
    encoder = small_encoder()
    same = encoder(TOKENS, SEGMENTS, position_ids=np.tile(np.arange(6), (2, 1)))
    np.testing.assert_array_equal(same, encoder(TOKENS, SEGMENTS))
    other = encoder(TOKENS, SEGMENTS, position_ids=np.tile(np.arange(6)[::-1], (2, 1)))
    assert np.abs(other - same).max() > 1e-3
