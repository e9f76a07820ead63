import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTAdamW, BERTModel, Tokenizer, Vocab
from keras_bert_d2l.contract.task import task_kinds
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from tests.nightly import nightly_except

TASKS = task_kinds()

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film a what is it ##s".split()
SIZE, LENGTH = 6, 8
TEXTS = ["good film", "bad film", "a good film", "it is bad", "what a film is it good", ""]
NAMES = ["good", "bad", "good", "bad", "good", "bad"]
DATA = tf.data.Dataset.from_tensor_slices((TEXTS[:2], [0, 1])).batch(2)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocab(WORDS))


@pytest.fixture(scope="module")
def classifier(tokenizer):
    """A classifier for tests that do not train it."""
    model = make_task("SequenceClassifier", tokenizer=tokenizer)
    compile_eagerly(model)
    return model


@pytest.fixture(scope="module")
def tagger(tokenizer):
    model = make_task("TokenClassifier", tokenizer=tokenizer)
    compile_eagerly(model)
    return model


def make_bert(num_blks=1, **options):
    return BERTModel(len(WORDS), 16, 24, 2, num_blks, 0.0, 12, **options)


def make_batch(size=SIZE, kind=None):
    rng = np.random.default_rng(0)
    batch = {
        "tokens": rng.integers(0, len(WORDS), (size, LENGTH), "int32"),
        "segments": rng.integers(0, 2, (size, LENGTH), "int32"),
        "valid_lens": rng.integers(3, LENGTH + 1, size, "int32"),
    }
    if kind == "MultipleChoice":  # three choices for each text
        return {name: x.reshape(-1, 3, *x.shape[1:]) for name, x in batch.items()}
    return batch


def make_task(kind, bert=None, **options):
    """Return an eager model, because tracing would take longer than computing."""
    names = ["a"] if TASKS[kind].ranks else ["a", "b", "c"]
    labels = {"labels": names} if "labels" in TASKS[kind].fields else {}
    model = TASKS[kind](bert or make_bert(), **{**labels, **options})
    model.run_eagerly = True
    return model


def compile_eagerly(model, **options):
    model.compile(BERTAdamW(1e-2, weight_decay=0.0), run_eagerly=True, **options)


@pytest.mark.parametrize("kind", TASKS)
def test_segments_may_be_omitted_which_means_zeros(kind):
    model, batch = make_task(kind), make_batch(kind=kind)
    tokens, valid_lens = batch["tokens"], batch["valid_lens"]
    expected = keras.tree.flatten(model({**batch, "segments": 0 * tokens}))
    called = model(tokens, valid_lens=valid_lens)
    predicted = model.predict({"tokens": tokens, "valid_lens": valid_lens}, verbose=0)
    for found in (called, predicted):
        np.testing.assert_allclose(keras.tree.flatten(found), expected, atol=1e-5)


def make_labels(kind, size=SIZE):
    rng = np.random.default_rng(1)
    return {
        "SequenceClassifier": rng.integers(0, 3, size),
        "SequenceRegressor": rng.normal(size=(size, 3)).astype("float32"),
        "Reranker": rng.integers(0, 2, size).astype("float32"),
        "TokenClassifier": rng.choice([-100, 0, 1, 2], (size, LENGTH)),
        "QuestionAnswerer": {side: rng.integers(0, 3, size) for side in ("start", "end")},
        "TextEmbedder": np.arange(size) % 3,
        "MultipleChoice": rng.integers(0, 3, size // 3),
    }[kind]


def first_output(outputs):
    return outputs["start"] if isinstance(outputs, dict) else outputs


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_except({"SequenceClassifier", "QuestionAnswerer"}, TASKS))
def test_a_task_model_takes_an_attention_mask_and_returns_hidden_states_and_attention(kind):
    model, batch = make_task(kind, make_bert(num_blks=2)), make_batch()
    lens = batch.pop("valid_lens")
    mask = np.arange(LENGTH) < lens[:, None]
    states = model(**batch, attention_mask=mask, return_hidden_states=True, return_attention=True)
    expected = model.encoder(**batch, valid_lens=lens, return_attention=True)
    assert len(states["hidden_states"]) == 3
    for actual, weights in zip(states["attention"], expected["attention"], strict=True):
        np.testing.assert_allclose(actual, weights, atol=1e-6)
    outputs = (states["output"], model({**batch, "attention_mask": mask}))
    for actual in outputs:
        keras.tree.map_structure(
            functools.partial(np.testing.assert_allclose, atol=1e-6),
            actual,
            model(**batch, valid_lens=lens),
        )


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("SequenceClassifier", (SIZE, 3)),
        ("SequenceRegressor", (SIZE, 3)),
        ("TokenClassifier", (SIZE, LENGTH, 3)),
        ("QuestionAnswerer", (SIZE, LENGTH)),
        ("TextEmbedder", (SIZE, 16)),
        ("MultipleChoice", (SIZE,)),
    ],
)
def test_outputs_have_the_shape_of_the_task_and_ignore_padding(kind, shape):
    model, batch = make_task(kind), make_batch()
    expected = first_output(model(batch)).numpy()
    assert expected.shape == shape
    np.testing.assert_array_equal(first_output(model(*batch.values())), expected)
    padded = np.arange(LENGTH) >= batch["valid_lens"][:, None]
    other = {**batch, "tokens": np.where(padded, 12 - batch["tokens"], batch["tokens"])}
    got = first_output(model(other)).numpy()
    if model.gives_tokens:
        expected, got = expected[~padded], got[~padded]
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["SequenceClassifier", "MultipleChoice"])
def test_with_pooling_mean_the_head_reads_the_mean_of_the_tokens_without_padding(kind):
    model, batch = make_task(kind, make_bert(pooler=False)), make_batch()
    assert model.pooling == "mean"
    assert make_task(kind, pooling="mean").hidden is None
    assert (make_task(kind).pooling, make_task(kind).mean) == ("cls", None)
    encoded = model.encoder(**batch).numpy()
    means = [row[:length].mean(0) for row, length in zip(encoded, batch["valid_lens"], strict=True)]
    logits = np.stack(means) @ model.head.kernel.numpy() + model.head.bias.numpy()
    expected = logits[:, 0] if kind == "MultipleChoice" else logits
    np.testing.assert_allclose(model(batch), expected, atol=1e-6)
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(batch), model(batch))


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_except({"QuestionAnswerer"}, TASKS))
def test_the_default_loss_overfits_a_batch_and_the_keras_file_restores_everything(kind, tmp_path):
    model, batch, labels = make_task(kind), make_batch(kind=kind), make_labels(kind)
    compile_eagerly(model)
    before = model.evaluate(batch, labels, verbose=0, return_dict=True)["loss"]
    # Use more steps instead of more epochs, because each epoch adds overhead.
    model.fit(tf.data.Dataset.from_tensors((batch, labels)).repeat(15), verbose=0)
    model.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    np.testing.assert_array_equal(first_output(loaded(batch)), first_output(model(batch)))
    assert int(loaded.optimizer.iterations) == 15
    assert loaded.get_config() == model.get_config() == json.loads(json.dumps(model.get_config()))
    metrics = [m.evaluate(batch, labels, verbose=0, return_dict=True) for m in (model, loaded)]
    assert metrics[0] == metrics[1]
    assert metrics[0]["loss"] < 0.6 * before


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_except({"TokenClassifier", "MultipleChoice"}, TASKS))
def test_mixed_precision_returns_float32_outputs_and_trains(kind):
    for policy in ("mixed_float16", "mixed_bfloat16"):
        keras.config.set_dtype_policy(policy)
        model, batch = make_task(kind), make_batch(kind=kind)
        assert first_output(model(batch)).dtype == "float32"
    compile_eagerly(model)
    assert model.train_on_batch(batch, make_labels(kind), return_dict=True)["loss"] > 0


@pytest.mark.slow
def test_loss_and_metrics_weight_all_labels_equally_and_skip_ignored_tokens():
    model, batch = make_task("TokenClassifier"), make_batch()
    compile_eagerly(model)
    labels = make_labels("TokenClassifier")
    labels[:2] = -100
    metrics = model.evaluate(batch, labels, batch_size=4, verbose=0, return_dict=True)
    logits = model.predict(batch, verbose=0).astype("float64")
    losses = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
        logits, np.maximum(labels, 0)[..., None], -1
    ).squeeze(-1)
    assert metrics["cross_entropy"] == pytest.approx(losses[labels >= 0].mean(), rel=1e-5)
    right = (logits.argmax(-1) == labels)[labels >= 0].mean()
    assert metrics["accuracy"] == pytest.approx(right)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TokenClassifier", "QuestionAnswerer"])
def test_a_batch_with_only_ignored_labels_has_zero_loss_and_changes_no_weights(kind):
    model, batch = make_task(kind), make_batch()
    compile_eagerly(model)
    before = [weight.numpy() for weight in model.weights]
    labels = tf.nest.map_structure(lambda label: np.full_like(label, -100), make_labels(kind))
    log = model.fit(batch, labels, verbose=0).history
    assert {name: values for name, values in log.items() if values != [0.0]} == {}
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.slow
def test_multi_label_treats_labels_as_independent():
    model, batch = make_task("SequenceClassifier", multi_label=True), make_batch()
    names = [["a", "c"], [], ["b"], ["a"], ["a", "b", "c"], ["c"]]
    hot = np.array([[name in row for name in "abc"] for row in names], "float32")
    compile_eagerly(model)
    logits = model.predict(batch, verbose=0)
    expected = np.mean(np.log1p(np.exp(logits)) - hot * logits)
    for labels in (names, hot):
        metrics = model.evaluate(batch, labels, verbose=0, return_dict=True)
        assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
        assert metrics["accuracy"] == pytest.approx(np.mean((logits > 0) == hot))
    compile_eagerly(model, class_weights={"b": 0.0})
    without_b = np.mean((np.log1p(np.exp(logits)) - hot * logits)[:, [0, 2]])
    assert model.evaluate(batch, hot, verbose=0)[0] == pytest.approx(without_b, rel=1e-5)


@pytest.mark.slow
def test_frozen_blocks_can_be_unfrozen_also_in_other_tasks_of_the_same_bert():
    bert = make_bert(2)
    model, other = make_task("SequenceClassifier", bert), make_task("SequenceClassifier", bert)
    everything = len(model.trainable_variables)
    model.freeze_encoder(2)
    assert len(model.trainable_variables) == len(other.trainable_variables) == 4  # pooler and head
    model.freeze_encoder(0)
    both_blocks = len(other.trainable_variables)
    assert 4 < both_blocks == len(model.trainable_variables) < everything
    bert.encoder.trainable = False  # the standard Keras way
    assert len(model.trainable_variables) == 4
    model.freeze_encoder(1)
    assert len(model.trainable_variables) == (both_blocks + 4) / 2
    bert.encoder.trainable = False
    bert.encoder.trainable = True
    assert len(model.trainable_variables) == everything
    model.freeze_encoder()
    assert len(model.trainable_variables) == 4


def test_with_lora_only_its_weights_the_pooler_and_the_head_are_trained():
    model = make_task("SequenceClassifier")
    model.enable_lora(2)
    of_encoder = {
        f"encoder/blk_0/attention/{name}/lora_kernel_{part}"
        for name in ("W_q", "W_v")
        for part in "ab"
    }
    of_head = {"pooler/kernel", "pooler/bias", "head/kernel", "head/bias"}
    assert {weight.path for weight in model.trainable_variables} == of_encoder | of_head
    for call in (model.freeze_encoder, functools.partial(model.enable_lora, 2)):
        with pytest.raises(ValueError, match="with LoRA must stay completely frozen"):
            call()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", nightly_except({"SequenceClassifier"}, ["SequenceClassifier", "SequenceRegressor"])
)
def test_strings_give_the_same_results_as_their_tokens(kind, tokenizer):
    labels = NAMES if kind == "SequenceClassifier" else [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    options = {"labels": ["bad", "good"]} if kind == "SequenceClassifier" else {"labels": ["score"]}
    model = make_task(kind, tokenizer=tokenizer, **options)
    compile_eagerly(model)
    expected = model.predict(tokenizer(TEXTS, max_len=12), verbose=0)
    np.testing.assert_allclose(model.predict(TEXTS, verbose=0, batch_size=4), expected, atol=1e-6)
    ids = model.label_ids(labels)
    metrics = [
        model.evaluate(x, y, verbose=0, return_dict=True)
        for x, y in ((TEXTS, labels), (tokenizer(TEXTS), np.asarray(ids)))
    ]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-5)
    # Use many texts in one epoch, because every epoch restarts the tokenizer's pipeline.
    log = model.fit(TEXTS * 6, labels * 6, 6, validation_data=(TEXTS, labels), verbose=0).history
    assert log["val_loss"][0] < metrics[0]["loss"]


def test_multi_labels_that_are_neither_names_nor_multi_hot_raise(tokenizer):
    model = make_task("SequenceClassifier", multi_label=True, tokenizer=tokenizer)
    objects = np.array([["a"], ["b", "c"], []], dtype=object)
    np.testing.assert_array_equal(model.label_ids(objects), [[1, 0, 0], [0, 1, 1], [0, 0, 0]])
    compile_eagerly(model)
    for labels in (["a", "b"], [0, 1], [[0], [1, 2]], [{"a"}, {"b"}], np.eye(2)):
        with pytest.raises(
            ValueError, match=r"a list of label names for each text, or a row of 0 and 1.*Received"
        ):
            model.fit(TEXTS[:2], labels)
    single = make_task("SequenceClassifier", labels=["a"], multi_label=True)
    np.testing.assert_array_equal(single.label_ids([0, 1]), [0, 1])


@pytest.mark.slow
def test_invalid_strings_raise(tagger, tokenizer):
    model = make_task("SequenceClassifier", tokenizer=tokenizer)
    compile_eagerly(model)
    for call, texts in ((model.predict, []), (model.fit, []), (tagger.predict, [[], []])):
        with pytest.raises(ValueError, match="at least one text and one word.*Received"):
            call(texts)
    assert tagger.predict([[], ["good"]], verbose=0).shape[0] == 2
    with pytest.raises(ValueError, match=r"a list of words for each text.*string of shape \(2,\)"):
        tagger.fit(["it is", "good"], [["a", "b"], ["c"]])
    model.tokenizer = Tokenizer(Vocab([*WORDS, "more"]))
    with pytest.raises(ValueError, match=rf"the {len(WORDS)} tokens.*with {len(WORDS) + 1} to"):
        model.predict(TEXTS)


TAGGED = [["it"], ["good"]]
PAIRS = {"texts": ["a", "it"], "texts_b": ["is"]}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one, _: one.predict({"text": ["a"]}), "takes strings as a list, or"),
        (lambda one, _: one.predict([["a", "b"], ["c", "d"]]), "takes strings as a list, or"),
        (lambda one, _: one.predict(PAIRS, verbose=0), r"different numbers of them, \[1, 2\]"),
        (lambda one, _: one.fit(DATA, [1, 0]), "`y` must be None for a dataset .*Received: y="),
        (lambda _, tagger: tagger.fit([["it", "is"]], [[0.5, 1]]), r"names or ids.*\[0.5, 1.0\]"),
        (lambda _, tagger: tagger.evaluate(TAGGED, ["a", "b"]), "a list of labels for each text"),
        (
            lambda _, tagger: tagger.fit(
                make_batch(), np.zeros((SIZE, LENGTH), int), class_weight={0: 2.0}
            ),
            "pass class_weights=.*to `compile`",
        ),
    ],
)
def test_texts_and_labels_of_another_form_are_rejected(classifier, tagger, call, message):
    with pytest.raises(ValueError, match=message):
        call(classifier, tagger)


def test_invalid_labels_are_named_in_the_error(classifier, tagger):
    with pytest.raises(ValueError, match="'a', 'b', 'c'.*'x'"):
        classifier.fit(TEXTS[:2], ["a", "x"])
    with pytest.raises(ValueError, match="`labels` must be from 0 to 2, or -100. Received: 3"):
        classifier.fit(TEXTS[:2], [0, 3])
    with pytest.raises(ValueError, match="one label and one weight per text"):
        classifier.fit(TEXTS[:2], ["a"])
    with pytest.raises(ValueError, match="of a dataset must be ids, as from .*StringLookup"):
        classifier.fit(tf.data.Dataset.from_tensor_slices((["it"], ["a"])).batch(1))
    scorer = make_task("SequenceRegressor", tokenizer=classifier.tokenizer)
    with pytest.raises(ValueError, match="of a dataset must be numbers. Received: strings.$"):
        scorer.evaluate(tf.data.Dataset.from_tensor_slices((["it"], ["a"])).batch(1))
    with pytest.raises(ValueError, match="3 words but 2 labels in text 1"):
        tagger.fit([["a"], ["it", "is", "good"]], [["a"], ["a", "b"]])


@pytest.mark.parametrize("name", ["y", "sample_weight"])
@pytest.mark.parametrize(
    "values", [b"ab", "ab", {"labels": [0, 1]}, 1, np.array(1), tf.constant(1)]
)
def test_labels_and_weights_that_are_no_column_are_named(classifier, name, values):
    with pytest.raises(
        ValueError, match=f"`{name}` must be .*one entry per text. Received: {name}="
    ):
        classifier.fit(TEXTS[:2], **{"y": [0, 1], name: values})


BAD = {
    "no pooler": (
        lambda: SequenceClassifier(make_bert(pooler=False), ["a", "b"], pooling="cls"),
        "pooler=False. Use `pooling=.mean.`",
    ),
    "pooling of a tagger": (
        lambda: TokenClassifier(make_bert(), ["a", "b"], pooling="mean"),
        "for tasks of whole texts",
    ),
    "no bert": (lambda: QuestionAnswerer("bert"), "must be a `BERTModel`"),
    "one label": (lambda: SequenceClassifier(make_bert(), ["a"]), "at least 2 different"),
    "blocks": (lambda: make_task("TokenClassifier").freeze_encoder(2), "one of 0, 1"),
    "multi-label": (lambda: make_task("SequenceClassifier", multi_label="no"), "True or False"),
    "a vocabulary": (lambda: TextEmbedder(make_bert(), tokenizer=WORDS), "must be a Tokenizer"),
    "rank": (lambda: make_task("TokenClassifier").enable_lora(0), "`rank` must be an integer"),
    "weights without classes": (
        lambda: make_task("TextEmbedder").compile(class_weights={"a": 1.0}),
        "which a TextEmbedder lacks",
    ),
    "weights of scores": (
        lambda: make_task("SequenceRegressor").compile(class_weights={"a": 1.0}),
        "a SequenceRegressor predicts scores",
    ),
    "a key": (
        lambda: make_task("TokenClassifier")({**make_batch(), "word_ids": np.zeros(1)}),
        "'word_ids'",
    ),
    "no tokenizer": (lambda: make_task("SequenceClassifier").predict(["good"]), "need a tokenizer"),
    "shares": (lambda: make_task("MultipleChoice").label_ids([0.9]), "positions .*0.9"),
    "scores": (lambda: make_task("SequenceRegressor").label_ids(["good"]), "numbers.*good"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_keras_file_keeps_what_is_frozen(tmp_path):
    model = make_task("SequenceClassifier", make_bert(2))
    model.hidden.trainable = False
    model.encoder.blks[1].trainable = False
    bert = make_bert(2)
    bert.encoder.trainable = False
    whole = make_task("TokenClassifier")
    whole.trainable = False
    for number, saved in enumerate((model, bert, whole)):
        saved.save(tmp_path / f"{number}.keras")
        loaded = keras.models.load_model(tmp_path / f"{number}.keras")
        assert loaded.frozen_weights == saved.frozen_weights
        assert len(loaded.trainable_variables) == len(saved.trainable_variables)


def test_a_dataset_of_texts_may_consist_of_tuples(tokenizer):
    dataset = tf.data.Dataset.from_tensors((["it", "good"],))
    data = make_task("TextEmbedder", tokenizer=tokenizer)._data(dataset)["x"]
    assert data.element_spec.keys() == {"tokens", "segments", "valid_lens"}


def test_scores_and_weights_must_be_finite(tokenizer):
    model = make_task("SequenceRegressor", labels=["score"], tokenizer=tokenizer)
    compile_eagerly(model)
    with pytest.raises(ValueError, match="`labels` must be finite. Received: .* at index 1"):
        model.fit(TEXTS[:2], np.array([[1.0], [np.inf]]))
    for weights, message in (([1.0, np.nan], "finite.* at index 1"), (["x", "y"], "numbers.*'x'")):
        with pytest.raises(ValueError, match=f"`sample_weight` must be {message}"):
            model.evaluate(TEXTS[:2], [1.0, 2.0], sample_weight=weights)


@pytest.mark.parametrize(
    "labels", [np.array([[0, 1], [1, 0]]), np.array([["a", "b"], ["b", "a"]]), "pandas"]
)
def test_labels_of_words_may_be_an_array_or_a_column_of_lists(tagger, labels):
    words = [["it", "is"], ["films", "good"]]
    if isinstance(labels, str):
        pandas = pytest.importorskip("pandas")
        words, labels = pandas.Series(words), pandas.Series([["a", "b"], ["b", "a"]])
    ((_, ids),) = tagger._data(words, labels)["x"]
    assert ids.numpy().tolist() == [[-100, 0, 1, -100, -100], [-100, 1, -100, 0, -100]]


def test_with_pooler_norm_all_heads_read_the_pooler():
    bert = make_bert(pooler_norm=True, pooler_activation="gelu", bias_free=True)
    batch = make_batch()
    encoded = bert.encoder(**batch)
    of_mean = SequenceClassifier(bert, ["a", "b"], pooling="mean")
    X = of_mean.mean(encoded, of_mean.is_token(batch["tokens"], batch["valid_lens"]))
    for model, read in ((TokenClassifier(bert, ["a", "b"]), encoded), (of_mean, X)):
        expected = model.head(bert.hidden(read))
        np.testing.assert_allclose(model(batch), expected, atol=1e-6)
    mean = np.asarray(bert.hidden(X)).mean(-1)
    np.testing.assert_allclose(mean, np.zeros_like(mean), atol=1e-6)  # is normalized
    assert [weight.path.split("/")[-1] for weight in bert.hidden.weights] == ["kernel", "gamma"]


def test_shared_blocks_are_frozen_together():
    model = SequenceClassifier(make_bert(num_blks=3, shared_blocks=True), ["a", "b"])
    with pytest.raises(ValueError, match="0 or 3 with shared_blocks=True.*Received: num_blks=1"):
        model.freeze_encoder(1)
    model.freeze_encoder()
    assert not model.encoder.trainable_variables


TWO_LABELS = {"labels": ["bad", "good"]}
IDS = np.array([1, 0, 1, 0, 1, 0])


@pytest.fixture
def two_labels(tokenizer):
    """A function that makes equal classifiers."""

    def make(**options):
        keras.utils.set_random_seed(1)
        model = make_task("SequenceClassifier", tokenizer=tokenizer, **TWO_LABELS)
        compile_eagerly(model, **options)
        return model

    return make


@pytest.mark.long
def test_class_weight_of_fit_is_class_weights_of_compile(two_labels):
    expected = two_labels(class_weights={"good": 3.0}).fit(TEXTS, NAMES, shuffle=False, verbose=0)
    for weights in ({1: 3.0}, {"good": np.float32(3.0)}):
        found = two_labels().fit(TEXTS, NAMES, shuffle=False, verbose=0, class_weight=weights)
        assert found.history["loss"] == pytest.approx(expected.history["loss"])
    model = two_labels()
    for weights in ({"god": 1.0}, {2: 1.0}, {0: -1.0}, np.ones(2)):
        with pytest.raises(ValueError, match="`class_weights` must map labels from 'bad', 'good'"):
            model.fit(TEXTS, NAMES, class_weight=weights)


@pytest.mark.long
def test_a_validation_split_of_texts_takes_the_last_ones(two_labels):
    expected = two_labels().fit(
        TEXTS[:4], NAMES[:4], shuffle=False, validation_data=(TEXTS[4:], NAMES[4:]), verbose=0
    )
    model = two_labels()
    found = model.fit(np.array(TEXTS), NAMES, shuffle=False, validation_split=0.3, verbose=0)
    assert found.history["val_loss"] == pytest.approx(expected.history["val_loss"])
    for share in (1.5, 0.999):
        with pytest.raises(ValueError, match=f"`validation_split` must be.*Received.*{share}"):
            model.fit(TEXTS, NAMES, validation_split=share)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, pytest.param({"steps_per_epoch": 1}, marks=pytest.mark.long)]
)
def test_each_epoch_passes_once_over_texts_in_memory(two_labels, tokenizer, options):
    options = {"epochs": 2, "shuffle": False, "verbose": 0, **options}
    dataset = tf.data.Dataset.from_tensor_slices((dict(tokenizer(TEXTS)), IDS)).batch(4)
    expected = two_labels().fit(dataset, validation_data=dataset, **options)
    model = two_labels()
    found = model.fit(TEXTS, NAMES, 4, validation_data=(TEXTS, NAMES), **options)
    for name, values in expected.history.items():
        assert found.history[name] == pytest.approx(values), name
    assert model.evaluate(TEXTS, NAMES, 4, verbose=0) == pytest.approx(
        model.evaluate(dataset, verbose=0)
    )


def test_batches_of_strings_give_the_same_as_their_tokens(two_labels, tokenizer):
    model, batch = two_labels(), dict(tokenizer(TEXTS))
    expected = model.predict_on_batch(batch)
    for x in (TEXTS, np.array(TEXTS), np.array(TEXTS)[:, None], tf.constant(TEXTS)):
        np.testing.assert_allclose(model.predict_on_batch(x), expected, atol=1e-6)
        np.testing.assert_allclose(model(x), expected, atol=1e-6)
    pairs = {"texts": TEXTS, "texts_b": TEXTS}
    np.testing.assert_allclose(model(pairs), model.predict(pairs, verbose=0), atol=1e-6)
    expected = model.test_on_batch(batch, IDS)
    for labels in (NAMES, np.array(NAMES), IDS, np.eye(2)[IDS]):
        assert model.test_on_batch(TEXTS, labels) == pytest.approx(expected)
    steps = [
        one.train_on_batch(x, y, class_weight={"good": 2.0})
        for one, x, y in ((two_labels(), TEXTS, NAMES), (two_labels(), batch, IDS))
    ]
    assert steps[0] == pytest.approx(steps[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    nightly_except({"MultipleChoice"}, ["TokenClassifier", "QuestionAnswerer", "MultipleChoice"]),
)
def test_models_of_each_task_take_batches_of_strings(kind, tokenizer):
    x, y = {
        "TokenClassifier": ([["good", "film"]], [["a", "b"]]),
        "QuestionAnswerer": (
            {"questions": ["what"], "contexts": ["a good film"]},
            [{"text": "good", "start": 2}],
        ),
        "MultipleChoice": ({"texts": ["what"], "choices": [["good", "bad"]]}, [1]),
    }[kind]
    model = make_task(kind, tokenizer=tokenizer)
    compile_eagerly(model)
    expected = keras.tree.flatten(model.predict(x, verbose=0))
    for found in (model(x), model.predict_on_batch(x)):
        for one, right in zip(keras.tree.flatten(found), expected, strict=True):
            np.testing.assert_allclose(one, right[:, : one.shape[1]], atol=1e-6)
    expected = model.evaluate(x, y, verbose=0)
    assert model.test_on_batch(x, y) == pytest.approx(expected)
    probabilities = keras.tree.flatten(model.predict(x, verbose=0, probabilities=True))
    for one in probabilities:
        np.testing.assert_allclose(one.sum(-1), 1.0, atol=1e-6)


@pytest.mark.long
def test_generators_and_single_examples_of_strings_train(two_labels):
    model = two_labels()
    expected = model.evaluate(TEXTS, NAMES, verbose=0)
    single = tf.data.Dataset.from_tensor_slices((TEXTS, IDS))
    assert model.evaluate(single, verbose=0) == pytest.approx(expected)
    for x in (TEXTS, np.array(TEXTS)):
        batches = ((x, y) for y in [NAMES])
        assert model.evaluate(batches, verbose=0, steps=1) == pytest.approx(expected)
    parts = (slice(1), slice(1, 2), slice(2, 6))  # the third one has longer texts
    batches = ((TEXTS[part], NAMES[part]) for part in parts)
    assert model.evaluate(batches, verbose=0, steps=3) == pytest.approx(expected)
    found = model.predict((TEXTS[part] for part in parts), verbose=0, steps=3)
    np.testing.assert_allclose(found, model.predict(TEXTS, verbose=0), atol=1e-6)
    batches = ((x, y) for x, y in [(TEXTS[:2], NAMES[:2]), (TEXTS, NAMES[:5])])
    with pytest.raises(ValueError, match=r"different numbers of them, \[5, 6\]"):
        model.fit(batches, verbose=0)


@pytest.mark.slow
def test_missing_labels_and_weights_that_a_dataset_cannot_have_are_named(classifier):
    data = tf.data.Dataset.from_tensors(TEXTS)
    right = (TEXTS, np.zeros(6, int))
    for call in (
        lambda: classifier.fit(data),
        lambda: classifier.fit(batch for batch in [TEXTS]),
        lambda: classifier.train_on_batch(TEXTS),
        lambda: classifier.fit(*right, validation_data=(TEXTS,)),
    ):
        with pytest.raises(ValueError, match="`y` must be the labels.*Received: y=None"):
            call()
    with pytest.raises(ValueError, match="`sample_weight` must be None for a dataset"):
        classifier.fit(tf.data.Dataset.from_tensors(right), sample_weight=np.ones(6))


def test_strings_are_no_inputs_of_functional_models_and_of_a_bert(two_labels):
    for call in (
        lambda: two_labels()(keras.Input((), dtype="string")),
        lambda: make_bert().predict(batch for batch in [TEXTS]),
        lambda: make_bert().encoder(tokens=tf.constant(TEXTS)),
    ):
        with pytest.raises(ValueError, match=r"token ids.*Received: (strings|tokens=)"):
            call()
