"""A step in micro-batches is the same as a step with the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import (
    BERTAdamW,
    BERTModel,
    QuestionAnswerer,
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
    model.compile(optimizer(), micro_batches=micro_batches, **{"jit_compile": False, **options})
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
        (TextEmbedder, {"micro_batches": 2}, "micro_batches=2.*ContrastiveLoss"),
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
