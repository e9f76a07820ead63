import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTAdamW, WarmupLinearDecay


def adamw_in_numpy(weight, gradients, rate, decay, epsilon, clip_norm, bias_correction):
    """Apply the equations of Loshchilov and Hutter in float64."""
    first = second = np.zeros_like(weight)
    for step, gradient in enumerate(gradients, 1):
        norm = np.sqrt((gradient**2).sum())
        if clip_norm and norm > clip_norm:
            gradient = gradient * clip_norm / norm
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        correct = (1 - 0.9**step, 1 - 0.999**step) if bias_correction else (1, 1)
        update = (first / correct[0]) / (np.sqrt(second / correct[1]) + epsilon)
        weight = weight - rate * (update + decay * weight)
    return weight


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_five_steps_match_the_equations(bias_correction, clip_norm):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(4, 3)), rng.normal(size=(5, 4, 3))
    gradients[1] *= 1e-6  # small enough for epsilon to matter
    weight = keras.Variable(start, dtype="float32", name="kernel")
    optimizer = BERTAdamW(1e-2, clip_norm=clip_norm, bias_correction=bias_correction)
    for gradient in gradients:
        optimizer.apply([gradient.astype("float32")], [weight])
    expected = adamw_in_numpy(start, gradients, 1e-2, 0.01, 1e-6, clip_norm, bias_correction)
    # In float32, 1 - 0.999 has a relative error of 1.3e-5, which the square root halves.
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_biases_and_layer_normalization_have_no_weight_decay():
    layers = [keras.layers.Dense(2, bias_initializer="ones"), keras.layers.LayerNormalization()]
    for layer in layers:
        layer.build((None, 2))
    variables = [variable for layer in layers for variable in layer.trainable_variables]
    before = {variable.path: variable.numpy() for variable in variables}
    BERTAdamW(0.1, weight_decay=0.5).apply(
        [0 * variable.numpy() for variable in variables], variables
    )
    changed = {v.name for v in variables if np.abs(v.numpy() - before[v.path]).max() > 0}
    assert changed == {"kernel"}
    kernel = variables[0]
    np.testing.assert_allclose(kernel.numpy(), before[kernel.path] * 0.95, rtol=1e-6)


def test_clipping_uses_the_norm_of_all_gradients():
    weights = [keras.Variable(np.zeros(1), name=name, dtype="float32") for name in "ab"]
    optimizer = BERTAdamW(1.0, weight_decay=0.0, beta_1=0.0, epsilon=1e3, clip_norm=1.0)
    optimizer.apply([np.float32([3]), np.float32([4])], weights)  # norm 5
    # With such a large epsilon, the step is the clipped gradient divided by epsilon.
    np.testing.assert_allclose([w.numpy()[0] * -1e3 for w in weights], [0.6, 0.8], rtol=1e-2)


def test_sparse_gradients_of_the_same_row_are_summed_before_squaring():
    embedding = keras.layers.Embedding(3, 1, embeddings_initializer="zeros")
    model = keras.Sequential([embedding, keras.layers.Flatten()])
    model.compile(BERTAdamW(1.0, 0.0, beta_1=0.0, epsilon=1e3, clip_norm=0.5), loss="mae")
    model.fit(np.array([[2, 2]]), np.array([[8.0, 8.0]]), verbose=0)  # slices of -1/2, -1 in total
    first, second = (variable.numpy()[2, 0] for variable in model.optimizer.variables[2:])
    assert first == pytest.approx(-0.5)  # the norm of the slices, 0.71, would give -0.71
    assert second == pytest.approx(0.001 * 0.5**2, rel=1e-4)
    assert embedding.embeddings.numpy()[2, 0] == pytest.approx(0.5e-3, rel=1e-3)


def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero():
    schedule = WarmupLinearDecay(1.0, warmup_steps=4, total_steps=12)
    rates = [float(schedule(step)) for step in (0, 2, 4, 8, 12, 20)]
    np.testing.assert_allclose(rates, [0, 0.5, 1, 0.5, 0, 0], atol=1e-7)


def test_decay_from_start_starts_the_decay_at_step_zero():
    schedule = WarmupLinearDecay(1.0, warmup_steps=2, total_steps=10, decay_from_start=True)
    rates = [float(schedule(step)) for step in (0, 1, 2, 5, 10)]
    np.testing.assert_allclose(rates, [0, 0.5, 0.8, 0.5, 0], atol=1e-7)


def test_without_warmup_the_rate_starts_at_the_peak():
    assert float(WarmupLinearDecay(0.5, 0, 10)(0)) == 0.5


@pytest.mark.parametrize(("warmup", "total"), [(10, 10), (-1, 10)])
def test_the_warmup_must_be_shorter_than_the_training(warmup, total):
    with pytest.raises(ValueError, match=f"warmup_steps={warmup}, total_steps={total}"):
        WarmupLinearDecay(1.0, warmup, total)


def test_a_clip_norm_of_zero_is_rejected():
    with pytest.raises(ValueError, match="clip_norm"):
        BERTAdamW(clip_norm=0.0)


def test_optimizer_and_schedule_can_be_restored_from_their_config():
    optimizer = BERTAdamW(
        WarmupLinearDecay(1e-3, 2, 10), 0.1, bias_correction=False, clip_norm=None
    )
    twin = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(twin, BERTAdamW)
    assert twin.get_config() == optimizer.get_config()
