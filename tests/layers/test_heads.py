import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTEncoder, MaskLM
from keras_bert_d2l.layers.inputs import gather_positions

X = np.random.default_rng(0).normal(size=(2, 8, 16)).astype("float32")
POSITIONS = np.array([[1, 5, 2], [6, 1, 5]])


def test_gather_positions_returns_the_vectors_at_the_positions():
    expected = np.stack([X[row][positions] for row, positions in enumerate(POSITIONS)])
    np.testing.assert_array_equal(gather_positions(X, POSITIONS, "positions"), expected)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (POSITIONS - 2, "from 0 to 7. Received: -1"),
        (POSITIONS + 2, "from 0 to 7. Received: 8"),
        (POSITIONS[:1], r"`pred_positions.shape\[0\]` must be 2. Received: 1"),
    ],
)
def test_positions_outside_the_rows_are_rejected(positions, message):
    with pytest.raises(ValueError, match=message):
        MaskLM(100, 16)(X, positions)


def test_logits_depend_only_on_the_predicted_positions():
    head = MaskLM(100, 16)
    assert head(X, POSITIONS).shape == (2, 3, 100)
    elsewhere = X.copy()
    elsewhere[0, [0, 3, 4, 6, 7]] = 9.0
    np.testing.assert_array_equal(head(elsewhere, POSITIONS)[0], head(X, POSITIONS)[0])


def test_an_untied_head_matches_the_books_mlp():
    head = MaskLM(100, 12)
    head(X, POSITIONS)
    kinds = [type(layer).__name__ for layer in head.mlp.layers]
    assert kinds == ["Dense", "LayerNormalization", "Dense"]
    assert head.count_params() == (16 * 12 + 12) + 2 * 12 + (12 * 100 + 100)


def test_a_tied_head_multiplies_by_the_token_embedding_and_adds_a_bias():
    embedding = keras.layers.ReversibleEmbedding(100, 16)
    embedding.build((None, None))
    head = MaskLM(100, 16, token_embedding=embedding)
    head.build(X.shape, POSITIONS.shape)
    head.bias.assign(np.arange(100.0))
    hidden = keras.ops.convert_to_numpy(head.mlp(gather_positions(X, POSITIONS, "positions")))
    expected = hidden @ embedding.embeddings.numpy().T + np.arange(100)
    np.testing.assert_allclose(head(X, POSITIONS), expected, atol=1e-4)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_keras_file_keeps_frozen_and_quantized_layers_inside_the_layers(tmp_path):
    tokens, positions = (keras.Input((None,), dtype="int32") for _ in range(2))
    encoder = BERTEncoder(50, 16, 32, 2, 1, 0.0, max_len=8)
    model = keras.Model([tokens, positions], MaskLM(50, 16)(encoder(tokens), positions))
    encoder.blks[0].trainable = False
    assert 0 < len(model.trainable_variables) < len(model.weights)
    model.save(tmp_path / "frozen.keras")
    loaded = keras.models.load_model(tmp_path / "frozen.keras")
    trained = [[x.path for x in one.trainable_variables] for one in (model, loaded)]
    assert trained[0] == trained[1]
    model.quantize("int8")
    model.save(tmp_path / "int8.keras")
    loaded = keras.models.load_model(tmp_path / "int8.keras")
    ids = [np.array([[4, 2, 8, 1]]), np.array([[0, 3]])]
    np.testing.assert_array_equal(loaded(ids), model(ids))


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (keras.layers.ReversibleEmbedding(12, 8), r"of the head, \(9, 8\). Received: .*\(12, 8\)"),
        ("encoder/token_embedding", "Received: 'encoder/token_embedding'"),  # as in older files
    ],
)
def test_another_embedding_is_rejected(embedding, message):
    with pytest.raises(ValueError, match=message):
        MaskLM(9, 8, token_embedding=embedding)
