import typing

import keras
import numpy as np
import pytest

from keras_bert_d2l import (
    BERTAdamW,
    BERTModel,
    BERTMuon,
    WarmupCosineDecay,
    WarmupLinearDecay,
    WarmupStableDecay,
)
from keras_bert_d2l.training.optimization.optimizers import (
    OPTIMIZERS,
    add_gradient_norms,
    make_optimizer,
    mean_gradient_norm,
    orthogonalized,
)
from keras_bert_d2l.training.optimization.schedules import SCHEDULES
from keras_bert_d2l.training.options import OptimizerName, ScheduleName
from keras_bert_d2l.training.pretraining.options import PretrainingOptions


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


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
@pytest.mark.parametrize("loss_scale", [None, 8.0])
def test_the_mean_gradient_norm_is_that_before_clipping(kind, loss_scale):
    weights = [keras.Variable(np.ones(shape), name="kernel") for shape in ((3, 2), (4, 4))]
    optimizer = kind(1e-3, clip_norm=1.0)
    if loss_scale is not None:  # as with float16
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=loss_scale)
    optimizer.build(weights)
    add_gradient_norms(optimizer)
    assert optimizer.variables[-1].name == "gradient_norms"
    assert mean_gradient_norm(optimizer) is None
    rng, norms = np.random.default_rng(0), []
    for _ in range(3):
        gradients = [rng.normal(size=weight.shape).astype("float32") for weight in weights]
        norms.append(np.sqrt(sum((gradient**2).sum() for gradient in gradients)))
        optimizer.apply([gradient * (loss_scale or 1) for gradient in gradients], weights)
    assert min(norms) > 1
    assert mean_gradient_norm(optimizer) == pytest.approx(np.mean(norms), rel=1e-5)
    assert mean_gradient_norm(optimizer) is None  # since the last call


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


@pytest.mark.slow
def test_sparse_gradients_of_the_same_row_are_summed_before_squaring():
    embedding = keras.layers.Embedding(3, 1, embeddings_initializer="zeros")
    model = keras.Sequential([embedding, keras.layers.Flatten()])
    model.compile(BERTAdamW(1.0, 0.0, beta_1=0.0, epsilon=1e3, clip_norm=0.5), loss="mae")
    model.fit(np.array([[2, 2]]), np.array([[8.0, 8.0]]), verbose=0)  # slices of -1/2, -1 in total
    first, second = (variable.numpy()[2, 0] for variable in model.optimizer.variables[2:])
    assert first == pytest.approx(-0.5)  # the norm of the slices, 0.71, would give -0.71
    assert second == pytest.approx(0.001 * 0.5**2, rel=1e-4)
    assert embedding.embeddings.numpy()[2, 0] == pytest.approx(0.5e-3, rel=1e-3)


def test_decay_from_start_starts_the_decay_at_step_zero():
    schedule = WarmupLinearDecay(1.0, warmup_steps=2, total_steps=10, decay_from_start=True)
    rates = [float(schedule(step)) for step in (0, 1, 2, 5, 10)]
    np.testing.assert_allclose(rates, [0, 0.5, 0.8, 0.5, 0], atol=1e-7)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((0.1, 100), "`warmup_steps` must be an integer.*not a share.*warmup_steps=0.1"),
        ((-1, 100), "`warmup_steps` must be an integer of at least 0.*warmup_steps=-1"),
        ((0, 1e3), "`total_steps` must be an integer.*total_steps=1000.0"),
        ((10, 10), "must be below total_steps=10. Received: warmup_steps=10"),
    ],
)
def test_numbers_of_steps_must_be_integers_that_fit(steps, message):
    with pytest.raises(ValueError, match=message):
        WarmupCosineDecay(1e-3, *steps)
    WarmupCosineDecay(1e-3, *np.int64([10, 100]))


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("beta_1", 1.0), ("beta_2", -0.1), ("epsilon", float("nan"))),
        *(("weight_decay", None), ("learning_rate", -1e-4), ("learning_rate", "fast")),
    ],
)
def test_values_out_of_range_are_rejected(kind, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite.*{name}={value!r}"):
        kind(**{name: value})
    with pytest.raises(ValueError, match="clip_norm"):
        kind(clip_norm=0.0)


@pytest.mark.parametrize("option", ["clipnorm", "global_clipnorm", "clipvalue"])
@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_options_of_keras_for_clipping_are_rejected(kind, option):
    with pytest.raises(ValueError, match=f"`clip_norm` instead of `{option}`.*{option}=0.5"):
        kind(**{option: 0.5})
    kind(**{option: None})


def muon_in_numpy(weight, gradients, rate, decay):
    """Apply github.com/KellerJordan/Muon in float64, with the step size of Liu et al."""
    momentum = np.zeros_like(weight)
    for gradient in gradients:
        momentum = 0.95 * momentum + gradient
        x = gradient + 0.95 * momentum
        x = x / np.linalg.norm(x)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        weight = weight - rate * (decay * weight + 0.2 * np.sqrt(max(weight.shape)) * x)
    return weight


@pytest.mark.slow
def test_muon_trains_the_kernels_of_the_blocks_and_adamw_the_other_weights():
    def trained(optimizer):
        keras.utils.set_random_seed(0)
        model = BERTModel(20, 8, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=8)
        weights, rng = model.trainable_variables, np.random.default_rng(0)
        starts = {weight.path: weight.numpy() for weight in weights}
        steps = [[rng.normal(size=w.shape).astype("float32") for w in weights] for _ in range(3)]
        for gradients in steps:
            optimizer.apply(gradients, weights)
        return starts, dict(zip(starts, zip(*steps, strict=True), strict=True)), weights

    settings = {"weight_decay": 0.1, "clip_norm": None}
    muon = BERTMuon(1e-2, **settings)
    starts, gradients, weights = trained(muon)
    by_adamw = {w.path: w.numpy() for w in trained(BERTAdamW(1e-2, **settings))[2]}
    of_muon = []
    for weight in weights:
        if "/blk_0/" in weight.path and weight.name == "kernel":
            of_muon.append(weight)
            start, its = starts[weight.path].astype("float64"), np.float64(gradients[weight.path])
            if start.shape[0] > start.shape[1]:
                start, its = start.T, its.transpose(0, 2, 1)
            expected = muon_in_numpy(start, its, 1e-2, 0.1)
            found = weight.numpy() if expected.shape == weight.shape else weight.numpy().T
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(weight.numpy(), by_adamw[weight.path])
    assert len(of_muon) == 6
    assert len(muon.variables) == 2 + 2 * len(weights) - 6  # no second moments for Muon


@pytest.mark.parametrize(("compute_dtype", "rounding"), [("float32", 1e-5), ("bfloat16", 0.05)])
def test_orthogonalized_matrices_have_singular_values_near_one(compute_dtype, rounding):
    x = np.random.default_rng(0).normal(size=(64, 24)).astype("float32")
    for matrix in (x, x.T):
        found = np.asarray(orthogonalized(keras.ops.convert_to_tensor(matrix), compute_dtype))
        assert found.dtype == "float32"
        singular = np.linalg.svd(found, compute_uv=False)
        assert 0.6 < singular.min() <= singular.max() < 1.25
        # The singular vectors are those of the matrix, so the product with it is symmetric.
        product = found.T @ matrix
        assert np.linalg.norm(product - product.T) < rounding * np.linalg.norm(product)


def test_muon_computes_in_bfloat16_where_the_model_does():
    options = PretrainingOptions.from_dict({"corpus": "text", "optimizer": "muon"})
    for dtype in ("bfloat16", "float16", "float32"):
        made = make_optimizer(options, WarmupLinearDecay(1e-3, 1, 10), dtype)
        assert made.compute_dtype == ("bfloat16" if dtype == "bfloat16" else "float32")
    with pytest.raises(ValueError, match="`compute_dtype` must be"):
        BERTMuon(compute_dtype="float16")
    with pytest.raises(ValueError, match="`momentum` must be a finite.*below 1.*momentum=1.0"):
        BERTMuon(momentum=1.0)


def test_schedules_match_their_formulas():
    steps = np.arange(0, 130)
    done = np.clip((steps - 20) / 80, 0, 1)
    falls = {
        "linear": 1 - done,
        "cosine": 0.5 * (1 + np.cos(np.pi * done)),
        "constant": np.ones(len(steps)),
        "wsd": 1 - np.sqrt(np.clip((steps - 80) / 20, 0, 1)),
    }
    for name, fall in falls.items():
        expected = 3e-3 * np.where(steps < 20, steps / 20, fall)
        found = [float(SCHEDULES[name](3e-3, 20, 100)(step)) for step in steps]
        np.testing.assert_allclose(found, expected, atol=1e-8, err_msg=name)
    assert set(SCHEDULES) == set(typing.get_args(ScheduleName))
    assert set(OPTIMIZERS) == set(typing.get_args(OptimizerName))
    assert float(WarmupLinearDecay(0.5, 0, 10)(0)) == 0.5
    short = WarmupStableDecay(1.0, 9, 10)
    assert float(short(9)) == 1.0
    for decay_steps, rule in ((6, "from 0 to 5"), (0.2, "an integer")):
        with pytest.raises(ValueError, match=f"`decay_steps` must be {rule}"):
            WarmupStableDecay(1.0, 5, 10, decay_steps=decay_steps)


@pytest.mark.parametrize(
    "optimizer",
    [
        BERTAdamW(WarmupLinearDecay(1e-3, 2, 10), 0.1, bias_correction=False, clip_norm=None),
        BERTAdamW(WarmupCosineDecay(0.1, 2, 9), weight_decay=0.2, layer_decay=0.5),
        BERTMuon(WarmupStableDecay(0.1, 2, 9, decay_steps=3), 0.2, momentum=0.9, epsilon=1e-5),
    ],
)
def test_optimizers_and_schedules_can_be_restored_from_their_configs(optimizer):
    serialize = keras.saving.serialize_keras_object
    restored = keras.saving.deserialize_keras_object(serialize(optimizer))
    assert serialize(restored) == serialize(optimizer)


def test_kernels_that_muon_trains_may_be_excluded_from_weight_decay():
    kernels = [keras.Variable(np.ones((2, 2)), name="kernel") for _ in range(2)]
    for number, kernel in enumerate(kernels):
        kernel._path = f"encoder/blk_{number}/kernel"
    optimizer = BERTMuon(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=kernels[:1])
    optimizer.apply([np.zeros((2, 2), "float32")] * 2, kernels)
    assert optimizer._second_moments == [None, None]
    assert [float(kernel[0, 0]) for kernel in kernels] == [1.0, pytest.approx(0.95)]
