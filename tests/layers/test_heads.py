import copy

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTEncoder, MaskLM
from keras_bert_d2l.layers.inputs import gather_positions
from tests.nightly import nightly_except

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


def own_model(nested=False, dtype="float32"):
    """Return a functional model with a tied head, its encoder, and its head."""
    tokens, positions = (keras.Input((None,), dtype="int32") for _ in range(2))
    encoder = BERTEncoder(50, 16, 32, 2, 1, 0.0, max_len=8, dtype=dtype)
    encoded = encoder(tokens, tokens - tokens)
    if nested:
        encoded = keras.Model(tokens, encoded)(tokens)
    head = MaskLM(50, 16, token_embedding=encoder.token_embedding, dtype=dtype)
    return keras.Model([tokens, positions], head(encoded, positions)), encoder, head


def parts_of(model):
    layers = model._flatten_layers()
    return [next(x for x in layers if isinstance(x, kind)) for kind in (BERTEncoder, MaskLM)]


def reloaded(model, path):
    model.save(path)
    return keras.models.load_model(path)


RESTORED = {
    "copied": copy.deepcopy,
    "cloned": keras.models.clone_model,
    "from its config": lambda model: keras.Model.from_config(model.get_config()),
    "from JSON": lambda model: keras.models.model_from_json(model.to_json()),
}
IDS = [np.array([[4, 2, 8, 1]]), np.array([[0, 3]])]


@pytest.mark.slow
@pytest.mark.parametrize("nested", nightly_except({False}, [False, True]))
@pytest.mark.parametrize("how", RESTORED)
def test_a_tied_head_stays_tied_in_a_restored_functional_model(how, nested):
    model, *_ = own_model(nested)
    other = RESTORED[how](model)
    other.set_weights(model.get_weights())
    encoder, head = parts_of(other)
    assert head.token_embedding is encoder.token_embedding
    assert other.count_params() == model.count_params()
    np.testing.assert_array_equal(other(IDS), model(IDS))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", nightly_except({"float32"}, ["float32", "mixed_bfloat16"]))
def test_a_keras_file_has_the_tied_embedding_once_and_a_step_moves_both_its_uses(dtype, tmp_path):
    model, *_ = own_model(dtype=dtype)
    loaded = reloaded(model, tmp_path / "tied.keras")
    np.testing.assert_array_equal(loaded(IDS), model(IDS))
    encoder, head = parts_of(loaded)
    assert sum("token_embedding" in x.path for x in loaded.trainable_variables) == 1
    before = encoder.token_embedding.embeddings.numpy()
    loaded.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True), run_eagerly=True)
    loaded.train_on_batch(IDS, np.array([[7, 9]]))
    moved = np.any(head.token_embedding.embeddings.numpy() != before, axis=1)
    assert moved.all()  # as an output kernel, all rows have a gradient
    assert head.token_embedding is encoder.token_embedding


@pytest.mark.slow
def test_the_weights_of_a_tied_head_are_restored_in_a_sequential_model(tmp_path):
    embedding = keras.layers.ReversibleEmbedding(50, 16)
    model = keras.Sequential([embedding, MaskLM(50, 16, token_embedding=embedding)])
    expected = model(IDS[0])
    loaded = reloaded(model, tmp_path / "sequential.keras")
    np.testing.assert_array_equal(loaded(IDS[0]), expected)
    assert loaded.count_params() == model.count_params()


@pytest.mark.slow
def test_a_tied_head_without_its_embedding_above_is_not_restored():
    _, encoder, head = own_model()
    with pytest.raises(ValueError, match="'bert_encoder.*Received: 0 of them. Create the"):
        MaskLM.from_config(head.get_config())(X)
    tokens = keras.Input((None,), dtype="int32")
    other = MaskLM(50, 16, token_embedding=encoder.token_embedding)
    keras.Model(tokens, other(keras.layers.Embedding(50, 16)(tokens)))
    for unconnected in (other, MaskLM(50, 16, token_embedding=encoder.token_embedding)):
        with pytest.raises(ValueError, match="No configuration can restore .* Create the head in"):
            unconnected.get_config()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_keras_file_keeps_frozen_and_quantized_layers_inside_the_layers(tmp_path):
    model, encoder, _ = own_model()
    encoder.blks[0].trainable = False
    assert 0 < len(model.trainable_variables) < len(model.weights)
    loaded = reloaded(model, tmp_path / "frozen.keras")
    trained = [[x.path for x in one.trainable_variables] for one in (model, loaded)]
    assert trained[0] == trained[1]
    model.quantize("int8")
    loaded = reloaded(model, tmp_path / "int8.keras")
    np.testing.assert_array_equal(loaded(IDS), model(IDS))


def test_an_embedding_of_another_size_is_rejected():
    with pytest.raises(ValueError, match=r"\(9, 8\). Received: an embedding of size \(12, 8\)"):
        MaskLM(9, 8, token_embedding=keras.layers.ReversibleEmbedding(12, 8))
