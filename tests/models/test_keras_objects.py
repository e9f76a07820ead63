"""Losses and metrics of Keras in models that output logits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import (
    BERTModel,
    CosineLoss,
    MultipleChoice,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)
from keras_bert_d2l.models.losses import WeightedBinaryCrossEntropy, WeightedCrossEntropy
from tests.nightly import nightly_except

losses, metrics = keras.losses, keras.metrics
RNG = np.random.default_rng(0)
TOKENS = {"tokens": RNG.integers(5, 30, (6, 5))}
IDS = np.array([0, 2, 1, 1, 2, 0])
HOT = np.eye(3)[IDS]


@pytest.fixture(scope="module")
def bert():
    return BERTModel(30, 16, 24, 2, 1, 0.0, 8)


@pytest.fixture
def classifier(bert):
    return SequenceClassifier(bert, ["a", "b", "c"])


def softmax(logits):
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        ("sparse_categorical_crossentropy", IDS),
        (["SparseCategoricalCrossentropy"], ["a", "c", "b", "b", "c", "a"]),
        (losses.SparseCategoricalCrossentropy(), IDS),
        (losses.sparse_categorical_crossentropy, HOT),
        ("categorical_crossentropy", HOT),
        (losses.CategoricalCrossentropy(from_logits=True), ["a", "c", "b", "b", "c", "a"]),
        (None, HOT),
    ],
)
def test_cross_entropies_take_logits_and_names_ids_or_one_hot_labels(classifier, loss, labels):
    classifier.compile("sgd", loss, run_eagerly=True)
    expected = -np.log(softmax(classifier.predict(TOKENS, verbose=0))[np.arange(6), IDS]).mean()
    found = classifier.evaluate(TOKENS, labels, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected, abs=1e-5)


def test_options_of_a_loss_remain(classifier):
    loss = losses.CategoricalCrossentropy(label_smoothing=0.3)
    classifier.compile("sgd", loss, run_eagerly=True)
    logs = np.log(softmax(classifier.predict(TOKENS, verbose=0)))
    expected = -((0.7 * HOT + 0.1) * logs).sum(-1).mean()
    assert classifier.evaluate(TOKENS, IDS, verbose=0) == pytest.approx(expected, abs=1e-5)
    dataset = tf.data.Dataset.from_tensors((TOKENS, IDS))
    with pytest.raises(ValueError, match="`labels` must be one-hot.*sparse_categorical"):
        classifier.fit(dataset, verbose=0)


def test_a_name_stands_for_the_default_loss(bert, classifier):
    sparse, multi = "sparse_categorical_crossentropy", {"multi_label": True}
    for model, name, kind in (
        (classifier, sparse, WeightedCrossEntropy),
        (TokenClassifier(bert, ["a", "b"]), sparse, WeightedCrossEntropy),
        (SequenceClassifier(bert, ["a"], **multi), "bce", WeightedBinaryCrossEntropy),
    ):
        model.compile("sgd", name, class_weights={"a": 2.0})
        assert type(model.loss) is kind
        assert model.loss.class_weights[0] == 2.0
    answerer = QuestionAnswerer(bert)
    answerer.compile("sgd", sparse, metrics=["accuracy"])
    assert [type(answerer.loss[side]) for side in ("start", "end")] == [WeightedCrossEntropy] * 2
    bert.compile("sgd", {"mlm": sparse})
    assert type(bert.loss["mlm"]) is WeightedCrossEntropy


def test_rows_with_a_single_1_are_one_hot_only_where_a_label_belongs_to_a_text(bert, classifier):
    tags = np.eye(5, dtype=int)[[1, 2, 3, 4, 0, 1]]  # each text has one word of the second label
    tagger = TokenClassifier(bert, ["O", "B"])
    tagger.compile("sgd", run_eagerly=True)
    found = tagger.evaluate(TOKENS, tags, verbose=0, return_dict=True)
    probabilities = softmax(tagger.predict(TOKENS, verbose=0))
    expected = -np.log(np.take_along_axis(probabilities, tags[..., None], 2)).mean()
    assert found["loss"] == pytest.approx(expected, abs=1e-5)
    classifier.compile("sgd", run_eagerly=True)
    with pytest.raises(ValueError, match=r"`y`.*3 labels.*\(6, 4\)"):
        classifier.evaluate(TOKENS, np.eye(4)[IDS])


def test_labels_of_minus_100_count_neither_in_losses_nor_in_metrics(bert):
    tagger = TokenClassifier(bert, ["a", "b", "c"])
    labels = np.full((6, 5), -100)
    labels[:, 1] = IDS
    loss = losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    tagger.compile("sgd", loss, metrics=["acc", metrics.F1Score("macro")], run_eagerly=True)
    logits = tagger.predict(TOKENS, verbose=0)[:, 1]
    found = tagger.evaluate(TOKENS, labels, verbose=0, return_dict=True)
    expected = -np.log(softmax(logits)[np.arange(6), IDS]).sum()
    assert found["loss"] == pytest.approx(expected, abs=1e-4)
    assert found["acc"] == pytest.approx((logits.argmax(-1) == IDS).mean())
    f1 = metrics.F1Score("macro")
    f1.update_state(HOT, softmax(logits))
    assert found["f1_score"] == pytest.approx(float(f1.result()))


@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (lambda bert: SequenceClassifier(bert, ["a", "b"]), "binary_crossentropy"),
        (lambda bert: SequenceClassifier(bert, ["a", "b"]), losses.MeanSquaredError()),
        (lambda bert: SequenceClassifier(bert, ["a", "b"], multi_label=True), "mse"),
        (lambda bert: SequenceRegressor(bert), "sparse_categorical_crossentropy"),
        (lambda bert: TokenClassifier(bert, ["a", "b"]), losses.CategoricalCrossentropy()),
        (lambda bert: QuestionAnswerer(bert), "mse"),
        (lambda bert: MultipleChoice(bert), losses.hinge),
        (lambda bert: TextEmbedder(bert), "cosine_similarity"),
        (lambda bert: bert, {"mlm": "mse"}),
    ],
)
def test_a_loss_for_other_labels_is_an_error_that_names_the_right_one(bert, make, loss):
    with pytest.raises(ValueError, match=r"`loss` must be one for.*Omit it for the default, \w+"):
        make(bert).compile("sgd", loss)


def test_regressors_take_binary_cross_entropies_as_their_activation_needs(bert):
    for activation, from_logits in (("sigmoid", False), ("linear", True)):
        model = SequenceRegressor(bert, activation=activation)
        model.compile("sgd", "binary_crossentropy", metrics=["mae", metrics.AUC()])
        assert model.loss.get_config()["from_logits"] is from_logits


METRICS = {
    "accuracy": metrics.SparseCategoricalAccuracy(),
    "AUC": metrics.AUC(),
    metrics.AUC(from_logits=True, name="one"): metrics.AUC(),
    metrics.Precision(class_id=1): metrics.Precision(class_id=1),
    metrics.F1Score(average="macro"): metrics.F1Score(average="macro"),
    "categorical_accuracy": metrics.CategoricalAccuracy(),
    "sparse_categorical_crossentropy": metrics.SparseCategoricalCrossentropy(),
    "mse": metrics.MeanSquaredError(),
}


@pytest.mark.parametrize("labels", nightly_except({"ids"}, ["ids", "one-hot"]))
def test_metrics_have_the_values_that_they_have_after_a_softmax(classifier, labels):
    weights = np.array([1.0, 2, 0, 1, 3, 1])
    loss = "categorical_crossentropy" if labels == "one-hot" else None
    classifier.compile("sgd", loss, weighted_metrics=[*METRICS], run_eagerly=True)
    y = tf.constant(HOT if labels == "one-hot" else IDS)
    batch = {name: tf.constant(x) for name, x in TOKENS.items()}
    found = classifier.test_on_batch(batch, y, sample_weight=weights, return_dict=True)
    probabilities = classifier.predict(TOKENS, verbose=0, probabilities=True)
    for name, metric in METRICS.items():
        is_sparse = "Sparse" in type(metric).__name__
        metric.reset_state()
        metric.update_state(IDS if is_sparse else HOT, probabilities, sample_weight=weights)
        name = name if isinstance(name, str) else name.name
        assert found[name] == pytest.approx(float(metric.result()), abs=1e-5), name


def test_metrics_of_independent_labels_see_a_sigmoid(bert):
    model = SequenceClassifier(bert, ["a", "b", "c"], multi_label=True)
    chosen = ["accuracy", metrics.BinaryAccuracy(), metrics.AUC(multi_label=True)]
    model.compile("sgd", metrics=chosen, run_eagerly=True)
    found = model.evaluate(TOKENS, HOT, verbose=0, return_dict=True)
    probabilities = 1 / (1 + np.exp(-model.predict(TOKENS, verbose=0)))
    for name, metric in (("accuracy", metrics.BinaryAccuracy()), (chosen[2].name, chosen[2])):
        metric.update_state(HOT, probabilities)
        assert found[name] == pytest.approx(float(metric.result()), abs=1e-5)
    assert found["binary_accuracy"] == found["accuracy"]
    np.testing.assert_allclose(
        model.predict(TOKENS, verbose=0, probabilities=True), probabilities, atol=1e-6
    )


def test_metrics_without_meaning_are_errors(bert, classifier):
    for model, metric in (
        (SequenceRegressor(bert), "accuracy"),
        (TextEmbedder(bert), "accuracy"),
        (classifier, metrics.Precision(thresholds=0)),
        (classifier, metrics.BinaryAccuracy(threshold=0.0)),
    ):
        with pytest.raises(ValueError, match="`metrics` must be"):
            model.compile("sgd", metrics=[metric])
    for model in (SequenceRegressor(bert), TextEmbedder(bert)):
        with pytest.raises(ValueError, match="`probabilities` must be False for a"):
            model.predict(TOKENS, probabilities=True)


def test_objects_of_ones_own_get_labels_and_logits(bert, classifier):
    def loss(labels, logits):
        return losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

    classifier.compile("sgd", loss, metrics=[loss], run_eagerly=True)
    found = classifier.evaluate(TOKENS, IDS, verbose=0)
    assert found[0] == pytest.approx(found[1])
    embedder = TextEmbedder(bert)
    embedder.compile("sgd", CosineLoss())
    assert type(embedder.loss) is CosineLoss


@pytest.mark.long
def test_a_saved_model_keeps_its_losses_and_metrics(bert, tmp_path):
    model = SequenceClassifier(bert, ["a", "b", "c"])
    loss = losses.CategoricalCrossentropy(label_smoothing=0.1)
    model.compile("sgd", loss, metrics=["accuracy", metrics.AUC(), metrics.F1Score("macro")])
    expected = model.evaluate(TOKENS, IDS, verbose=0, return_dict=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(TOKENS, IDS, verbose=0, return_dict=True) == pytest.approx(expected)
