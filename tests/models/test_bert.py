import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTAdamW, BERTConfig, SequenceClassifier
from keras_bert_d2l.contract.task import task_kinds
from keras_bert_d2l.layers.base import without_initialization
from keras_bert_d2l.layers.encoder import BERTEncoder
from tests.nightly import nightly_except

TASKS = task_kinds()
LOGGED = ("mlm_cross_entropy", "mlm_accuracy", "nsp_cross_entropy", "nsp_accuracy")
OPTIONS_OF_GOOGLE = {
    "embedding_norm": True,
    "embedding_dropout": 0.1,
    "activation": "gelu_tanh",
    "tie_embeddings": True,
    "layer_norm_epsilon": 1e-12,
    "initializer": "truncated_normal",
}


def test_positional_arguments_return_the_books_tuple_and_a_dictionary_the_same_logits(
    make_model, make_batch
):
    features, _, _ = make_batch()
    model = make_model()
    encoded, mlm, nsp = model(*features.values())
    assert (encoded.shape, mlm.shape, nsp.shape) == ((8, 16, 32), (8, 4, 60), (8, 2))
    outputs = model(features)
    assert sorted(outputs) == ["mlm", "nsp"]
    np.testing.assert_array_equal(outputs["mlm"], mlm)
    np.testing.assert_array_equal(outputs["nsp"], nsp)
    del features["pred_positions"]
    assert model(features["tokens"], features["segments"])[1] is None
    assert list(model(features)) == ["nsp"]


def test_the_replaced_token_head_gives_a_logit_per_token_and_learns_its_labels(
    make_model, make_batch, tmp_path
):
    features, _, _ = make_batch()
    model = make_model(replaced_tokens=True, next_sentence=False, pooler=False)
    outputs, positions = model(features), features.pop("pred_positions")
    np.testing.assert_array_equal(outputs["rtd"], model.rtd(model.encoder(**features)))
    assert list(model(features)) == ["rtd"]
    model.compile(BERTAdamW(1e-2), jit_compile=False)
    mlm = model.mlm.get_weights()
    labels = {"rtd": features["tokens"] % 2}
    losses = model.fit(features, labels, epochs=15, verbose=0).history["rtd_cross_entropy"]
    assert losses[0] == pytest.approx(math.log(2), abs=0.2)
    assert losses[-1] < 0.1
    for before, after in zip(mlm, model.mlm.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(features)["rtd"], model(features)["rtd"])
    shared = type(model).from_layers(model.encoder, rtd=model.rtd)
    assert shared.missing_heads == {"mlm"}
    outputs = shared({**features, "pred_positions": positions})
    np.testing.assert_array_equal(outputs.pop("rtd"), model(features)["rtd"])
    assert list(outputs) == ["mlm"]


@pytest.mark.parametrize("initializer", ["book", "truncated_normal"])
def test_initializer_range_is_the_deviation_of_all_kernels_or_of_the_last_layers(
    make_model, initializer
):
    model = make_model(initializer=initializer, initializer_range=0.5)
    weights = [*model.weights, *SequenceClassifier(model, ["bad", "good"]).head.weights]
    deviations = [weight.numpy().std() for weight in weights if len(weight.shape) > 1]
    num_wide = sum(0.3 < deviation < 0.6 for deviation in deviations)
    assert num_wide == (3 if initializer == "book" else len(deviations))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segment": np.zeros((8, 16), int)}, "unknown key 'segment'.*Did you mean 'segments'"),
        ({"tokens": None}, "must have 'tokens'. Received: no 'tokens' in"),
    ],
)
def test_a_batch_with_wrong_keys_raises(make_model, make_batch, change, message):
    features, _, _ = make_batch()
    features = {k: v for k, v in {**features, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        make_model()(features)


@pytest.mark.parametrize(
    "config", [pytest.param({}, marks=pytest.mark.long), {"num_segments": 3, "first_segment_id": 1}]
)
@pytest.mark.long
def test_segments_may_be_omitted_which_means_zeros(make_model, make_batch, config):
    features, labels, weights = make_batch()
    without = {name: x for name, x in features.items() if name != "segments"}
    features["segments"] *= 0
    model = make_model(**config)
    for name, logits in model(features).items():
        np.testing.assert_array_equal(logits, model(without)[name])
    np.testing.assert_array_equal(model.encoder(features["tokens"]), model(features["tokens"])[0])
    model.compile("sgd", run_eagerly=True)
    model.fit(without, labels, 4, sample_weight=weights, verbose=0)
    first, second = (model.evaluate(x, labels, 4, verbose=0) for x in (features, without))
    assert first == second


def test_a_batch_of_hugging_face_is_told_the_names_and_works_with_them(make_model, make_batch):
    model, (features, *_) = make_model(), make_batch()
    is_token = (np.arange(16) < features["valid_lens"][:, None]).astype("int32")
    theirs = {
        "input_ids": features["tokens"],
        "token_type_ids": features["segments"],
        "attention_mask": is_token,
    }
    message = "`input_ids` is `tokens` here, `token_type_ids` is `segments`.*`labels` is"
    with pytest.raises(ValueError, match=message):
        model(theirs)
    ours = {"tokens": theirs["input_ids"], "segments": theirs["token_type_ids"]}
    found = model(ours | {"attention_mask": is_token})["nsp"]
    np.testing.assert_allclose(found, model(features)["nsp"], atol=1e-6)


def test_hidden_states_are_those_of_the_encoder_and_leave_the_logits_as_they_are(
    make_model, make_batch
):
    model, (features, *_) = make_model(), make_batch()
    found, logits = model(features, return_hidden_states=True), model(features)
    names = ("tokens", "segments", "valid_lens")
    encoder = model.encoder(*(features[name] for name in names), return_hidden_states=True)
    for state, expected in zip(found.pop("hidden_states"), encoder["hidden_states"], strict=True):
        np.testing.assert_array_equal(state, expected)
    assert found.keys() == logits.keys()
    for name, expected in logits.items():
        np.testing.assert_array_equal(found[name], expected)


def test_the_summary_shows_the_shapes_of_all_layers(make_model):
    for model in (make_model(), SequenceClassifier(make_model(), ["a", "b"], pooling="mean")):
        lines = []
        model.summary(print_fn=lines.append)
        assert "(None, None, 32)" in lines[0]
        assert "?" not in lines[0]


def test_weights_exist_before_the_first_call(make_model):
    assert make_model().count_params() == (
        (60 + 2 + 16) * 32  # embeddings
        + (4 * (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32) + 4 * 32)  # block
        + (32 * 32 + 32)  # hidden
        + (32 * 32 + 32 + 2 * 32 + 32 * 60 + 60)  # mlm
        + (32 * 2 + 2)  # nsp
    )


# Sources: google-research/bert, README (110 M and 340 M in Devlin et al. 2019) for base and large;
# for codertimo, the sum of the layer sizes in the notebook's summary.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "published"),
    [("base", 109_482_240), ("large", 335_141_888), ("codertimo", 108_096_768)],
)
def test_encoder_and_pooler_have_the_published_number_of_parameters(preset, published):
    config = BERTConfig.preset(preset)

    def count(num_blks):
        encoder = BERTEncoder(**{**config.to_dict(), "num_blks": num_blks})
        with without_initialization():
            encoder.build((None, None))
        return encoder.count_params()

    one_block = count(2) - count(1)  # avoids building the large model (1.3 GB)
    pooler = (config.num_hiddens**2 + config.num_hiddens) * config.pooler
    assert count(1) + (config.num_blks - 1) * one_block + pooler == published


def learn_by_heart(model, *batch):
    """Return the metrics of the first step and of the last 50 of 101 steps."""
    steps = tf.data.Dataset.from_tensors(batch)
    first = model.fit(steps, verbose=0, shuffle=False).history
    # Use more steps instead of more epochs, because each epoch adds overhead.
    last = model.fit(steps.repeat(50), epochs=2, verbose=0, shuffle=False).history
    return {name: [first[name][0], last[name][-1]] for name in first}


VARIANTS = {
    "book": {},
    "google": {**OPTIONS_OF_GOOGLE, "embedding_dropout": 0.0},
    "notebook": {
        "positions": "sinusoidal",
        "norm_first": True,
        "layer_norm": "unbiased",
        "layer_norm_epsilon": 1e-6,
        "mask_from": "tokens",
        "pooler": False,
        "mlm_head": "linear",
    },
    "final-norm": {"norm_first": True, "final_norm": True},
    "tied-linear": {"mlm_head": "linear", "tie_embeddings": True, "pooler": False},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", nightly_except({"notebook"}, VARIANTS))
def test_every_variant_starts_at_random_guessing_and_overfits_one_batch(
    make_model, make_batch, variant
):
    model = make_model(**VARIANTS[variant])
    features, labels, weights = make_batch()
    model.compile(BERTAdamW(3e-3))
    log = learn_by_heart(model, features, labels, weights)
    assert set(LOGGED) <= set(log)
    assert log["mlm_cross_entropy"][0] == pytest.approx(math.log(60), rel=0.1)
    assert log["nsp_cross_entropy"][0] == pytest.approx(math.log(2), rel=0.1)
    assert (log["mlm_accuracy"][-1], log["nsp_accuracy"][-1]) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("variant", nightly_except({"google", "notebook"}, VARIANTS))
def test_every_variant_is_restored_from_a_keras_file(make_model, make_batch, tmp_path, variant):
    features, _, _ = make_batch()
    model = make_model(**VARIANTS[variant])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    for name, logits in model(features).items():
        np.testing.assert_array_equal(loaded(features)[name], logits)


@pytest.mark.slow
def test_without_next_sentence_there_is_no_nsp_output_and_the_pooler_is_not_trained(
    make_model, make_batch, capsys
):
    features, labels, weights = make_batch()
    model = make_model(next_sentence=False)
    assert model(*features.values())[2] is None
    model.compile(BERTAdamW(3e-3), run_eagerly=True)
    data = features, {"mlm": labels["mlm"]}
    before = model.hidden.kernel.numpy()
    log = model.fit(*data, sample_weight={"mlm": weights["mlm"]}, verbose=0).history
    assert sorted(log) == ["loss", "mlm_accuracy", "mlm_cross_entropy"]
    np.testing.assert_array_equal(model.hidden.kernel, before)
    model.summary()
    assert "Non-trainable params: 1,056 " in capsys.readouterr().out  # 32 * 32 and the bias
    classifier = SequenceClassifier(model, ["bad", "good"])
    assert any(weight is model.hidden.kernel for weight in classifier.trainable_weights)
    del features["pred_positions"]
    with pytest.raises(ValueError, match="`pred_positions` is missing"):
        model(features)


def test_an_attention_mask_can_replace_valid_lens(make_model, make_batch):
    features, _, _ = make_batch()
    model = make_model()
    expected = model(features)
    lens = features.pop("valid_lens")
    of_keys = np.arange(16) < lens[:, None]
    for mask in (of_keys, of_keys.astype("float32"), np.repeat(of_keys[:, None], 16, axis=1)):
        got = model({**features, "attention_mask": mask})
        for name, logits in expected.items():
            np.testing.assert_allclose(got[name], logits, atol=1e-6)


@pytest.mark.slow
def test_packed_examples_get_the_same_logits_as_in_separate_rows(make_model):
    rng = np.random.default_rng(0)
    lengths, model = (7, 5, 3), make_model()
    rows = [rng.integers(0, 60, (1, n)) for n in lengths]
    segments = [np.repeat([[0, 1]], [n - 2, 2], axis=1) for n in lengths]
    alone = [model(x, s, None, np.array([[1]])) for x, s in zip(rows, segments, strict=True)]
    starts = np.cumsum((0, *lengths[:-1]))
    packed = {
        "tokens": np.concatenate([*rows, [[9]]], axis=1),  # the last token is padding
        "segments": np.concatenate([*segments, [[0]]], axis=1),
        "example_ids": np.array([[*np.repeat([1, 2, 3], lengths), 0]]),
        "position_ids": np.array([[*np.concatenate([np.arange(n) for n in lengths]), 0]]),
        "cls_positions": starts[None],
        "pred_positions": starts[None] + 1,
    }
    got = model(packed)
    assert got["nsp"].shape == (1, 3, 2)
    for index, (_, mlm, nsp) in enumerate(alone):
        np.testing.assert_allclose(got["mlm"][0, index], mlm[0, 0], atol=1e-5)
        np.testing.assert_allclose(got["nsp"][0, index], nsp[0], atol=1e-5)


@pytest.mark.long
def test_metrics_are_exact_over_the_dataset_for_any_batch_size(make_model, make_batch):
    features, labels, weights = make_batch(10)
    model = make_model()
    model.compile(run_eagerly=True)
    logs = [
        model.evaluate(
            features, labels, sample_weight=weights, batch_size=size, verbose=0, return_dict=True
        )
        for size in (10, 3)
    ]
    for name in LOGGED:
        assert logs[0][name] == pytest.approx(logs[1][name], abs=1e-6)
    outputs = model.predict(features, batch_size=3, verbose=0)
    assert {name: x.shape for name, x in outputs.items()} == {"mlm": (10, 4, 60), "nsp": (10, 2)}
    logits = outputs["mlm"].astype("float64")
    log_sum = np.log(np.exp(logits).sum(-1))
    losses = log_sum - np.take_along_axis(logits, labels["mlm"][..., None], -1)[..., 0]
    by_hand = (losses * weights["mlm"]).sum() / weights["mlm"].sum()
    assert logs[1]["mlm_cross_entropy"] == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.slow
def test_a_loaded_keras_file_continues_training(make_model, make_batch, tmp_path):
    features, labels, weights = make_batch()
    model = make_model(**VARIANTS["google"])
    model.compile(BERTAdamW(1e-3), run_eagerly=True)
    for _ in range(2):
        model.train_on_batch(features, labels, weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.run_eagerly = True
    assert int(loaded.optimizer.iterations) == 2
    np.testing.assert_array_equal(loaded(features)["mlm"], model(features)["mlm"])
    for one in (model, loaded):
        one.train_on_batch(features, labels, weights)
    for ours, theirs in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", nightly_except({"mixed_float16"}, ["mixed_bfloat16", "mixed_float16"])
)
def test_mixed_precision_trains_with_float32_weights(make_model, make_batch, policy):
    keras.config.set_dtype_policy(policy)
    model = make_model(**OPTIONS_OF_GOOGLE)
    features, labels, weights = make_batch()
    assert model(features)["mlm"].dtype == policy.removeprefix("mixed_")
    model.compile(BERTAdamW(1e-2), run_eagerly=True)
    steps = tf.data.Dataset.from_tensors((features, labels, weights)).repeat(3)
    first, last = model.fit(steps, epochs=2, verbose=0, shuffle=False).history["loss"]
    assert last < 0.95 * first
    assert {weight.dtype for weight in model.weights} == {"float32"}


@pytest.mark.slow
def test_the_training_step_compiles_with_xla_and_matches_the_eager_step(make_model, make_batch):
    features, labels, weights = make_batch()
    losses = []
    for options in ({"run_eagerly": True}, {"jit_compile": True}):
        keras.utils.set_random_seed(0)
        model = make_model(**VARIANTS["google"])
        model.compile(BERTAdamW(1e-3), **options)
        log = model.fit(features, labels, sample_weight=weights, epochs=2, verbose=0)
        losses.append(log.history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.slow
def test_export_has_integer_inputs_named_as_in_a_batch(make_model, make_batch, tmp_path):
    model = make_model()
    model.export(tmp_path / "saved", verbose=False)
    served = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    specs = served.structured_input_signature[1]
    assert {name: spec.dtype for name, spec in specs.items()} == dict.fromkeys(
        ("tokens", "segments", "valid_lens", "pred_positions"), tf.int32
    )
    features = make_batch(3)[0]
    outputs = served(**{name: tf.constant(value) for name, value in features.items()})
    expected = model(features)
    assert sorted(outputs) == ["mlm", "nsp"]
    np.testing.assert_allclose(outputs["mlm"], expected["mlm"], atol=1e-6)


@pytest.mark.parametrize("kind", TASKS)
def test_the_head_of_a_task_model_has_the_last_weights(make_model, kind):
    labels = [["a", "b"][: 1 if TASKS[kind].ranks else 2]] * ("labels" in TASKS[kind].fields)
    model = TASKS[kind](make_model(), *labels)
    # Saved optimizers list their variables in this order.
    in_head = ["/head/" in f"/{weight.path}" for weight in model.weights]
    assert in_head == sorted(in_head)
