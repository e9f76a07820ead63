"""A step in micro-batches is the same as a step with the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import (
    BERTAdamW,
    BERTModel,
    ContrastiveLoss,
    CoSENTLoss,
    MatryoshkaLoss,
    QuestionAnswerer,
    RankingLoss,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)
from keras_bert_d2l.checks import IGNORED
from keras_bert_d2l.training.devices import make_strategy
from tests.nightly import nightly_except

BATCH = 8
LABELS = ("a", "b", "c")


def optimizer():
    # Epsilon is large because the gradient of the key biases is rounding noise, which Adam would
    # otherwise scale up to full steps.
    return BERTAdamW(1e-2, clip_norm=0.1, epsilon=1e-3)


def train(make, data, micro_batches, **options):
    """Return the weights and the logs after two steps on the same initial weights."""
    keras.utils.set_random_seed(0)
    model = make()
    made = options.pop("optimizer", optimizer)()
    model.compile(made, micro_batches=micro_batches, **{"jit_compile": False, **options})
    history = model.fit(data, shuffle=False, verbose=0).history
    return [weight.numpy() for weight in model.weights], {k: v[0] for k, v in history.items()}


def check_same(make, data, micro_batches, tolerance=1e-6, **options):
    whole, logs = train(make, data, 1, **{**options, "jit_compile": False})
    parts, logs_of_parts = train(make, data, micro_batches, **options)
    for one, two in zip(whole, parts, strict=True):
        np.testing.assert_allclose(two, one, atol=tolerance)
    # Keras's own trackers of the losses of the heads would see only parts of batches.
    expected = {name: logs[name] for name in logs_of_parts}
    assert logs.keys() - expected.keys() <= {"mlm_loss", "nsp_loss", "start_loss", "end_loss"}
    assert logs_of_parts == pytest.approx(expected, abs=max(tolerance, 1e-5))


@pytest.fixture
def pretraining_data(make_batch):
    """Two batches of 8 and 5 rows whose micro-batches have different numbers of predictions."""
    features, labels, weights = make_batch(BATCH + 5)
    counts = weights["mlm"].sum(1)
    assert counts[:3].sum() != counts[3:6].sum()
    return tf.data.Dataset.from_tensor_slices((features, labels, weights)).batch(BATCH)


def half_precision():
    return BERTModel(60, 32, 64, 2, 2, 0.0, 16, dtype="mixed_float16")


@pytest.mark.long
@pytest.mark.parametrize(
    ("micro_batches", "make", "tolerance", "options"),
    [
        (3, None, 1e-6, {}),
        (20, None, 1e-6, {}),  # more parts than rows
        (3, None, 1e-6, {"jit_compile": True}),
        (3, half_precision, 1e-4, {}),  # which rounds the sums of the two ways differently
    ],
)
def test_micro_batches_with_different_prediction_counts(
    make_model, pretraining_data, micro_batches, make, tolerance, options
):
    check_same(make or make_model, pretraining_data, micro_batches, tolerance, **options)


@pytest.mark.long
def test_micro_batches_on_two_replicas(make_model, pretraining_data):
    even = pretraining_data.take(1)
    whole, logs = train(make_model, even, 1)
    with make_strategy("mirrored").scope():
        parts, logs_of_parts = train(make_model, even, 3)
    for one, two in zip(whole, parts, strict=True):
        np.testing.assert_allclose(two, one, atol=1e-6)
    assert logs_of_parts["loss"] == pytest.approx(logs["loss"], abs=1e-5)


def labels_of(kind, size, length):
    rng, classes = np.random.default_rng(1), [IGNORED, 0, 1, 2]
    return {
        "single": rng.choice(classes, size),
        "multi": rng.choice([IGNORED, 0, 1], (size, 3)),
        "scores": rng.normal(size=size).astype("float32"),
        "tags": rng.choice(classes, (size, length)),
        "spans": {name: rng.choice([IGNORED, *range(length)], size) for name in ("start", "end")},
    }[kind]


TASKS = {
    "classes": (lambda bert: SequenceClassifier(bert, LABELS), "single", {}),
    "weighted classes": (
        lambda bert: SequenceClassifier(bert, LABELS),
        "single",
        {"class_weights": {"a": 3.0}},
    ),
    "multi-label": (lambda bert: SequenceClassifier(bert, LABELS, multi_label=True), "multi", {}),
    "scores": (SequenceRegressor, "scores", {}),
    "tags": (lambda bert: TokenClassifier(bert, LABELS), "tags", {}),
    "spans": (QuestionAnswerer, "spans", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", nightly_except({"weighted classes"}, TASKS))
@pytest.mark.parametrize("weighted", nightly_except({True}, [False, True]))
def test_micro_batches_of_each_task(task, weighted, make_batch):
    make_task, kind, options = TASKS[task]
    features = make_batch(BATCH)[0]
    features.pop("pred_positions")
    data = [features, labels_of(kind, *features["tokens"].shape)]
    if weighted:
        data.append(np.random.default_rng(2).random(BATCH).astype("float32"))

    def make():
        return make_task(BERTModel(60, 16, 32, 2, 1, 0.0, 16))

    check_same(make, tf.data.Dataset.from_tensors(tuple(data)), 3, run_eagerly=True, **options)


ACCUMULATING = BERTAdamW(gradient_accumulation_steps=2)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda bert: bert, {"optimizer": ACCUMULATING}, "steps=2.*use `micro_batches`"),
        (
            lambda bert: SequenceClassifier(bert, LABELS),
            {"metrics": ["accuracy"], "micro_batches": 2},
            r"micro_batches=2.*metrics=\['accuracy'\]",
        ),
        (TextEmbedder, {"micro_batches": 0}, r"`micro_batches` must be .*Received: .*0"),
    ],
)
def test_what_cannot_be_split_is_rejected(make, options, message, make_model):
    with pytest.raises(ValueError, match=message):
        make(make_model()).compile(**options)


@pytest.mark.slow
def test_a_saved_model_keeps_its_micro_batches(make_model, tmp_path):
    model = SequenceClassifier(make_model(), LABELS)
    model.compile(optimizer(), class_weights={"a": 3.0}, micro_batches=2)
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.micro_batches == 2
    assert loaded.loss.class_weights == [3.0, 1.0, 1.0]


def embedder(dropout=0.0, dtype="float32", lora=None, freeze=None):
    model = TextEmbedder(BERTModel(60, 16, 32, 2, 2, dropout, 16, dtype=dtype))
    if lora is not None:
        model.enable_lora(lora)
    if freeze is not None:
        model.freeze_encoder(freeze)
    return model


@pytest.fixture
def pairs():
    """Two batches of 8 and 4 rows in pairs."""
    rng = np.random.default_rng(0)
    tokens, lengths = rng.integers(5, 60, (12, 10), "int32"), rng.integers(3, 11, 12, "int32")
    features = {"tokens": tokens, "segments": np.zeros_like(tokens), "valid_lens": lengths}
    labels = np.repeat(np.arange(6), 2)
    return tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)


def scaled_optimizer():
    return keras.optimizers.LossScaleOptimizer(optimizer(), initial_scale=64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "made_with", "options", "tolerance"),
    [
        (RankingLoss(), {}, {}, 1e-6),
        (MatryoshkaLoss(ContrastiveLoss(), [16, 8]), {"freeze": 1}, {"remat": "blocks"}, 1e-6),
        pytest.param(CoSENTLoss(), {"lora": 2}, {}, 1e-6, marks=pytest.mark.long),
        pytest.param(RankingLoss(), {"dtype": "mixed_bfloat16"}, {}, 5e-3, marks=pytest.mark.long),
        pytest.param(
            *(RankingLoss(), {"dtype": "mixed_float16"}, {"optimizer": scaled_optimizer}, 5e-4),
            marks=pytest.mark.long,
        ),
        pytest.param(RankingLoss(), {}, {"run_eagerly": False}, 1e-6, marks=pytest.mark.long),
        pytest.param(RankingLoss(), {}, {"jit_compile": True}, 1e-6, marks=pytest.mark.long),
    ],
)
def test_a_loss_of_the_whole_batch_has_the_step_of_the_whole_batch(
    pairs, loss, made_with, options, tolerance
):
    def trained(parts, **options):
        given = {"run_eagerly": "jit_compile" not in options, **options}
        return train(lambda: embedder(**made_with), pairs, parts, loss=loss, **given)

    parts = 20 if "run_eagerly" in options else 3  # 20: more parts than rows
    (whole, logs), (in_parts, logs_of_parts) = trained(1, **options), trained(parts, **options)
    for one, two in zip(whole, in_parts, strict=True):
        np.testing.assert_allclose(two, one, atol=tolerance)
    assert logs_of_parts == pytest.approx(logs, abs=max(10 * tolerance, 1e-5))
    keras.utils.set_random_seed(0)
    initial = embedder(**made_with).get_weights()
    assert any(np.abs(two - one).max() > 1e-3 for one, two in zip(initial, in_parts, strict=True))


@pytest.mark.long
def test_both_passes_over_a_micro_batch_have_the_same_dropout(pairs):
    x, y = next(iter(pairs))
    keras.utils.set_random_seed(0)
    model = embedder(dropout=0.3)
    model(x)
    before, loss = [variable.numpy() for variable in model.variables], RankingLoss(1.0)
    with tf.GradientTape() as tape:
        parts = [{name: array[n : n + 2] for name, array in x.items()} for n in range(0, 8, 2)]
        expected_loss = loss(y, tf.concat([model(part, training=True) for part in parts], 0))
    gradients = tape.gradient(expected_loss, model.trainable_weights)
    expected = list(map(tf.convert_to_tensor, gradients))
    state_after = [variable.numpy() for variable in model.non_trainable_variables]
    for variable, value in zip(model.variables, before, strict=True):
        variable.assign(value)
    model.compile(keras.optimizers.SGD(1.0), loss, micro_batches=4, run_eagerly=True)
    start = [weight.numpy() for weight in model.trainable_weights]
    assert model.train_on_batch(x, y) == pytest.approx(float(expected_loss), abs=1e-6)
    for old, new, gradient in zip(start, model.trainable_weights, expected, strict=True):
        np.testing.assert_allclose(old - new.numpy(), gradient, atol=1e-6)
    for one, two in zip(model.non_trainable_variables, state_after, strict=True):
        np.testing.assert_array_equal(one.numpy(), two)


def test_the_loss_of_an_evaluation_compares_the_whole_batch(pairs):
    model = embedder()
    model.compile("sgd", RankingLoss(), run_eagerly=True)
    expected = model.evaluate(pairs, verbose=0)
    model.compile("sgd", RankingLoss(), run_eagerly=True, micro_batches=4)
    assert model.evaluate(pairs, verbose=0) == pytest.approx(expected, abs=1e-5)
