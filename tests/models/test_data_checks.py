"""Ids, lengths, positions and labels out of range are errors of one sentence, in every mode."""

import contextlib
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import (
    BERTModel,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TokenClassifier,
)
from keras_bert_d2l.checks import value_errors
from keras_bert_d2l.training.devices import make_strategy

BAD_TOKEN = r"^`tokens` must be from 0 to 19\. Received: 20\. Use the vocabulary of the model\.$"


def make_bert(**options):
    model = BERTModel(20, 16, 32, 2, 1, 0.0, max_len=8)
    model.compile("sgd", **options)
    return model


@pytest.fixture(scope="module")
def bert():
    return make_bert(jit_compile=False)


def make_batch(name=None, value=None):
    batch = {
        "tokens": np.array([[2, 5, 6, 3], [2, 7, 3, 0]]),
        "segments": np.zeros((2, 4), "int32"),
        "valid_lens": np.array([4, 3]),
        "pred_positions": np.array([[1, 2], [1, 0]]),
        "cls_positions": np.array([[0], [0]]),
        "position_ids": np.tile(np.arange(4), (2, 1)),
    }
    if name is not None:
        batch[name].flat[0] = value
    return batch


def make_labels(mlm=6, nsp=1):
    return {"mlm": np.array([[5, mlm], [7, -100]]), "nsp": np.array([[nsp], [0]])}


def unknown_specs(element):
    return tf.nest.map_structure(
        lambda x: tf.TensorSpec([None] * x.ndim, tf.as_dtype(x.dtype)), element
    )


def dataset_of(*element):
    """A dataset whose batches have unknown shapes."""
    return tf.data.Dataset.from_generator(
        lambda: iter([element]), output_signature=unknown_specs(element)
    )


@pytest.fixture(scope="module")
def checks(bert):
    """The check of arrays, and that of a pipeline, which is a graph for unknown shapes."""
    signature = unknown_specs((make_batch(), make_labels()))
    in_graph = tf.function(bert.check_batch, input_signature=signature, autograph=False)

    def check_in_graph(batch, labels):
        if unknown_specs(batch) != signature[0]:  # of another rank
            bert.check_batch(batch, labels)
        with value_errors():
            in_graph(*tf.nest.map_structure(tf.constant, (batch, labels)))

    check_in_graph(make_batch(), make_labels())
    return bert.check_batch, check_in_graph


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("tokens", 20, "from 0 to 19"),
        ("tokens", -1, "from 0 to 19"),
        ("segments", 2, "from 0 to 1"),
        ("valid_lens", 0, "from 1 to 4"),
        ("pred_positions", 4, "from 0 to 3"),
        ("cls_positions", -1, "from 0 to 3"),
        ("position_ids", 8, "from 0 to 7"),
    ],
)
def test_the_argument_the_limits_and_the_value_are_named(bert, checks, name, value, limits):
    message = f"`{name}` must be {limits}. Received: {value}. "
    batch = make_batch(name, value)
    with pytest.raises(ValueError, match=message):  # Keras lists the arguments as well
        bert(batch)
    for check in checks:
        with pytest.raises(ValueError, match=rf"^{message}[^\n]*\.$"):
            check(batch, make_labels())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {name: np.zeros((2, 9), int) for name in ("tokens", "segments", "position_ids")},
            "`tokens.shape[1]` must be from 1 to 8. Received: 9.",
        ),
        ({"segments": np.zeros((2, 3), "int32")}, "`segments.shape[1]` must be 4. Received: 3."),
        ({"segments": np.zeros((1, 4), "int32")}, "`segments.shape[0]` must be 2. Received: 1."),
        ({"tokens": np.array([1, 2])}, "`tokens` must have the shape (B, T). Received: "),
        ({"valid_lens": np.ones((2, 4), int)}, "`valid_lens` must have the shape (B,). "),
        ({"pred_positions": np.array([1, 2])}, "`pred_positions` must have the shape (B, P). "),
        ({"cls_positions": np.zeros(2, int)}, "`cls_positions` must have the shape (B, E). "),
        ({"attention_mask": np.ones((2, 3))}, "`attention_mask.shape[-1]` must be 4. Received: 3."),
        (
            {"attention_mask": np.array([[0.0, 0.0, 0.0, -1e4]] * 2)},
            "`attention_mask` must be from 0 to 1. Received: -10000.",
        ),
    ],
)
def test_shapes_are_named(bert, checks, changes, message):
    batch = {**make_batch(), **changes}
    with pytest.raises(ValueError, match=re.escape(message)):
        bert(batch)
    for check in checks:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            check(batch, make_labels())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"mlm": 20}, "`mlm labels` must be from 0 to 19, or -100. Received: 20."),
        ({"nsp": 2}, "`nsp labels` must be from 0 to 1, or -100. Received: 2."),
    ],
)
def test_labels_are_named(checks, labels, message):
    for check in checks:
        with pytest.raises(ValueError, match=f"^{message}"):
            check(make_batch(), make_labels(**labels))


@pytest.mark.slow
def test_every_method_checks(bert):
    batch, labels = make_batch("tokens", 20), make_labels()
    right, eager = (make_batch(), labels), make_bert(run_eagerly=True)
    for call in (
        lambda: bert.fit(batch, labels, verbose=0),
        lambda: bert.fit(dataset_of(batch, labels), shuffle=False, verbose=0),
        lambda: bert.fit(*right, validation_data=(batch, labels), verbose=0),
        lambda: eager.fit(*right, validation_data=dataset_of(batch, labels), verbose=0),
        lambda: eager.fit((x for x in [right, (batch, labels)]), shuffle=False, verbose=0),
        lambda: bert.evaluate(batch, labels, verbose=0),
        lambda: eager.evaluate(dataset_of(batch, labels), verbose=0),
        lambda: bert.predict(batch, verbose=0),
        lambda: eager.predict(dataset_of(batch), verbose=0),
        lambda: bert.train_on_batch(batch, labels),
        lambda: bert.test_on_batch(batch, labels),
        lambda: bert.predict_on_batch(batch),
    ):
        with pytest.raises(ValueError, match=BAD_TOKEN):
            call()


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "jit"), [(None, True), ("mirrored", False)])
def test_batches_are_checked_in_compiled_steps_and_on_several_devices(strategy, jit):
    with make_strategy(strategy).scope() if strategy else contextlib.nullcontext():
        model = make_bert(jit_compile=jit)
    with pytest.raises(ValueError, match=BAD_TOKEN):
        model.fit(dataset_of(make_batch("tokens", 20), make_labels()), shuffle=False, verbose=0)


def test_labels_of_tasks_are_named(bert):
    batch = {name: make_batch()[name] for name in ("tokens", "segments", "valid_lens")}
    for model, labels, message in (
        (SequenceClassifier(bert, ["a", "b"]), [0, 2], "`labels` must be from 0 to 1"),
        (
            SequenceClassifier(bert, ["a", "b"], multi_label=True),
            [[0, 7], [5, 3]],
            "`labels` must be from 0 to 1, or -100. Received: 7",
        ),
        (TokenClassifier(bert, ["a", "b"]), [[0, 1, 2, -100]] * 2, "`labels` must be from"),
        (
            QuestionAnswerer(bert),
            {"start": tf.constant([0, 1]), "end": tf.constant([4, 3])},
            "`end labels` must be from 0 to 3, or -100. Received: 4",
        ),
    ):
        model.compile("sgd")
        with pytest.raises(ValueError, match=f"^{message}"):
            model.fit(batch, labels if isinstance(labels, dict) else np.array(labels), verbose=0)
    model = SequenceRegressor(bert, ["a", "b"])
    model.compile("sgd", loss="mean_squared_error")  # its labels are not checked
    model.check_batch(batch, tf.constant([[-3.5, 7.0], [0.0, 2.0]]))


def test_floats_must_be_integers(bert):
    batch = make_batch()
    whole = {name: x.astype("float32") for name, x in batch.items()}
    np.testing.assert_array_equal(bert(whole)["mlm"], bert(batch)["mlm"])
    for name, value in (("tokens", 5.5), ("valid_lens", np.nan)):
        wrong = {**whole, name: whole[name].copy()}
        wrong[name].flat[1] = value
        with pytest.raises(ValueError, match=f"^`{name}` must be from.* Received: {value}"):
            bert.check_batch(wrong)


@pytest.mark.parametrize(
    "texts",
    [
        ["a film"],
        "a film",
        np.array(["a film"]),
        {"tokens": tf.constant(["a film"])},
        tf.data.Dataset.from_tensors(["a film"]),
    ],
)
def test_a_bert_given_strings_names_the_functions_that_take_them(bert, texts):
    bert.compile("sgd")
    for method in (bert.fit, bert.evaluate, bert.predict):
        with pytest.raises(ValueError, match="^A BERTModel takes token ids.*`pretraining_dataset`"):
            method(texts, verbose=0)


@pytest.mark.parametrize("asked", [None, True])
def test_datasets_are_not_tuned_unless_they_ask_for_it(bert, asked):
    data = dataset_of(make_batch())
    if asked is not None:
        options = tf.data.Options()
        options.autotune.enabled = asked
        data = data.with_options(options)
    assert bert.checked_data(data).options().autotune.enabled is bool(asked)
