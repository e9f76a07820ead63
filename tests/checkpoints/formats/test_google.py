"""Checkpoints of google-research/bert: outputs, gradients, and training steps."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import (
    BERTAdamW,
    BERTConfig,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    Vocab,
    WarmupLinearDecay,
    convert_checkpoint,
    load_pretrained,
)
from keras_bert_d2l.checkpoints.formats import google
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.reading import read_json_object
from tests.checkpoints.small import model_of, random_model, save_tensors, write_google

CONFIG = BERTConfig.preset(
    "google", vocab_size=11, num_hiddens=8, ffn_num_hiddens=12, num_heads=2, num_blks=2, max_len=7
)
VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] one ##s two fish red blue".split())
WORDS = "bert/embeddings/word_embeddings"
DATA, INDEX = "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"


def without_dropout(config):
    return dataclasses.replace(config, dropout=0.0, attention_dropout=None, embedding_dropout=0.0)


def load(path):
    checkpoint = google.describe(path)
    model = model_of(checkpoint._replace(config=without_dropout(checkpoint.config)))
    assert not model.missing_heads
    return model


def arrays(prefix):
    """Read all arrays of a checkpoint with TensorFlow's own reader."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("google")
    write_google(random_model(CONFIG), folder, VOCAB)
    return folder


@pytest.fixture
def folder(written, tmp_path):
    """A folder with a checkpoint, which tests may modify."""
    return shutil.copytree(written, tmp_path / "google")


# The golden files: google's code under TensorFlow 1's API


def batch(golden, index):
    """Return the features, labels and weights of one of google's batches."""
    theirs = {k.split("/")[1]: v for k, v in golden.items() if k.startswith(f"batch{index}/")}
    is_next = 1 - theirs["next_sentence_labels"].reshape(-1)
    features = {
        "tokens": theirs["input_ids"],
        "segments": theirs["segment_ids"],
        "valid_lens": theirs["input_mask"].sum(1),
        "pred_positions": theirs["masked_lm_positions"],
    }
    weights = {"mlm": theirs["masked_lm_weights"], "nsp": np.ones(len(is_next), "float32")}
    return features, {"mlm": theirs["masked_lm_ids"], "nsp": is_next}, weights


@pytest.fixture(scope="module")
def golden(data_dir):
    return dict(np.load(data_dir / "golden/google_tf1/io.npz"))


def example_losses(log_probs, labels):
    return -np.take_along_axis(np.asarray(log_probs), labels.reshape(-1, 1), 1)[:, 0]


@pytest.mark.slow
def test_every_output_matches_googles(data_dir, golden):
    model = load(data_dir / "golden/google_tf1")
    features, labels, weights = batch(golden, 0)
    encoded, mlm, nsp = model(*features.values())
    states = model.encoder(*list(features.values())[:3], return_hidden_states=True)["hidden_states"]
    mlm_log_probs = tf.nn.log_softmax(tf.reshape(mlm, (-1, mlm.shape[-1])))
    nsp_log_probs = tf.nn.log_softmax(nsp[:, ::-1])  # google's column 0 means "is next"
    mlm_losses = example_losses(mlm_log_probs, labels["mlm"])
    nsp_losses = example_losses(nsp_log_probs, 1 - labels["nsp"])
    model.compile()
    log = model.evaluate(
        features,
        labels,
        sample_weight=weights,
        batch_size=len(nsp_losses),
        verbose=0,
        return_dict=True,
    )
    outputs = {
        "embedding_output": states[0],
        "all_encoder_layers": np.stack(states[1:]),
        "sequence_output": encoded,
        "pooled_output": model.hidden(encoded[:, 0]),
        "masked_lm_log_probs": mlm_log_probs,
        "masked_lm_example_loss": mlm_losses,
        "masked_lm_loss": log["mlm_loss"],
        "next_sentence_log_probs": nsp_log_probs,
        "next_sentence_example_loss": nsp_losses,
        "next_sentence_loss": log["nsp_loss"],
        "total_loss": log["loss"],
    }
    for name, output in outputs.items():
        np.testing.assert_allclose(output, golden[name], rtol=0, atol=2e-5, err_msg=name)


@pytest.mark.long
def test_every_gradient_matches_googles(data_dir, golden):
    folder = data_dir / "golden/google_tf1"
    expected = dict(np.load(folder / "grads.npz"))
    model = load(folder)
    model.compile()
    features, labels, weights = batch(golden, 0)
    with tf.GradientTape() as tape:
        loss = model.compute_loss(features, labels, model(features, training=True), weights)
    variables = {name: weight.value for name, weight in named_weights(model).items()}
    gradients = tape.gradient(loss, variables)
    for ours, theirs, layout in google.describe(folder).table:
        gradient = layout.to_theirs(tf.convert_to_tensor(gradients[ours]).numpy())
        np.testing.assert_allclose(
            gradient, expected.pop(theirs), rtol=0, atol=1e-5, err_msg=theirs
        )
    assert not expected


@pytest.mark.long
def test_five_training_steps_match_googles_optimizer(data_dir, golden):
    folder = data_dir / "golden/google_tf1"
    steps = dict(np.load(folder / "adamwd5.npz"))
    schedule = WarmupLinearDecay(1e-3, 2, 10, decay_from_start=True)
    rates = [schedule(step) for step in range(5)]
    np.testing.assert_allclose(rates, steps["learning_rates"], atol=1e-9)
    model, losses = load(folder), []
    model.compile(BERTAdamW(schedule, bias_correction=False), run_eagerly=True)  # faster here
    for index in range(5):
        features, labels, weights = batch(golden, index)
        model.reset_metrics()  # otherwise the loss is the mean since the first batch
        log = model.train_on_batch(features, labels, sample_weight=weights, return_dict=True)
        losses.append(log["loss"])
    np.testing.assert_allclose(losses, steps["losses"], atol=2e-5)
    for ours, theirs, layout in google.describe(folder).table:
        # The gradient of the key bias is rounding noise, which Adam scales to the size of a step.
        if not theirs.endswith("key/bias"):
            value, expected = (
                layout.to_theirs(named_weights(model)[ours].numpy()),
                steps[f"w/{theirs}"],
            )
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5, err_msg=theirs)


def test_a_file_written_by_googles_own_code_can_be_loaded(data_dir):
    folder = data_dir / "checkpoints/keras_bert_tf1_tiny"
    checkpoint = google.describe(folder)
    assert checkpoint.vocab == Vocab.from_file(folder / "vocab.txt")
    assert checkpoint.tokenizer_options == {"lowercase": True}
    model = model_of(checkpoint)
    assert not model.missing_heads
    words = arrays(folder / "bert_model.ckpt")[WORDS]
    np.testing.assert_array_equal(model.encoder.token_embedding.embeddings, words)


# bert_config.json


def write_config(path, **fields):
    path.write_text(json.dumps(fields))
    return path


def config_of(path):
    return google.read_config(path, read_json_object(path))


def test_missing_fields_have_the_defaults_of_googles_code(tmp_path):
    multilingual = {"directionality": "bidi", "pooler_num_fc_layers": 3}  # are not read
    config = config_of(write_config(tmp_path / "c.json", vocab_size=30522, **multilingual))
    assert config == BERTConfig.preset("base", num_segments=16)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *(("relu", "relu"), ("gelu", "gelu_tanh"), ("GELU", "gelu_tanh"), ("tanh", "tanh")),
        *(("Linear", "linear"), (None, "linear")),  # as in `get_activation` of modeling.py
    ],
)
def test_gelu_means_the_tanh_approximation(tmp_path, theirs, ours):
    path = write_config(tmp_path / "c.json", vocab_size=9, hidden_act=theirs)
    assert config_of(path).activation == ours


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"vocab_size": 9, "relative_attention": 1}', "`relative_attention` is not s"),
        ('{"vocab_size": 9, "hidden_act": "elu"}', "`hidden_act`.*'elu'"),
        ('{"vocab_size": 9, "hidden_size": 10}', "num_hiddens=10"),
        ('{"hidden_size": 768}', "`vocab_size` must be in"),
    ],
)
def test_a_wrong_configuration_is_reported_with_file_and_field(tmp_path, content, message):
    path = tmp_path / "bert_config.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"bert_config.json.*{message}"):
        config_of(path)


# Finding the files


def test_a_folder_and_a_prefix_are_recognized(folder, tmp_path):
    assert google.recognizes(folder)
    assert google.recognizes(folder / "bert_model.ckpt")
    assert not google.recognizes(folder / "model.ckpt")
    assert not google.recognizes(tmp_path)
    assert not google.recognizes(tmp_path / "nothing" / "here")


def test_the_checkpoint_at_the_top_level_of_a_folder_is_used(folder):
    shutil.copytree(folder, folder / "step5")
    np.savez(folder / "weights.npz", x=np.zeros(2))
    assert google.describe(folder).arrays.source == str(folder / "bert_model.ckpt")


def test_the_file_checkpoint_selects_one_of_several_checkpoints(folder):
    for file in folder.glob("bert_model.ckpt.*"):
        shutil.copy(file, folder / file.name.replace("bert_model.ckpt", "model.ckpt-20"))
    state = folder / "checkpoint"
    state.write_text('model_checkpoint_path: "/elsewhere/model.ckpt-20"\n')
    assert google.describe(folder).arrays.source == str(folder / "model.ckpt-20")
    first = folder / "bert_model.ckpt"
    assert google.describe(first).arrays.source == str(first)
    state.unlink()
    with pytest.raises(ValueError, match="2 checkpoints and no file `checkpoint`"):
        google.describe(folder)


def test_the_configuration_may_be_in_the_parent_folder(folder):
    step = folder / "step5"
    step.mkdir()
    for file in folder.glob("bert_model.ckpt.*"):
        file.rename(step / file.name.replace("bert_model.ckpt", "model.ckpt-5"))
    for path in (step, step / "model.ckpt-5"):
        checkpoint = google.describe(path)
        assert checkpoint.arrays.source == str(step / "model.ckpt-5")
        assert (checkpoint.config, checkpoint.vocab) == (CONFIG, VOCAB)


@pytest.mark.parametrize(
    ("words", "lowercase"),
    [
        ("paris in spring ##e", True),
        ("Paris in spring ##e", False),
        ("été in ##e winter", False),
        ("巴 黎 ##e in", True),
    ],
)
def test_the_case_is_inferred_from_the_vocabulary(folder, words, lowercase):
    Vocab([*VOCAB.tokens[:5], *words.split(), "x", "[unused1]"]).to_file(folder / "vocab.txt")
    assert google.describe(folder).tokenizer_options == {"lowercase": lowercase}


def test_the_case_of_googles_vocabularies_is_inferred_correctly(data_dir, folder):
    for kind, lowercase in (("uncased", True), ("cased", False)):
        shutil.copy(data_dir / f"vocab/bert-base-{kind}-vocab.txt", folder / "vocab.txt")
        assert google.describe(folder).tokenizer_options == {"lowercase": lowercase}


# Invalid input


@pytest.mark.parametrize(
    ("missing", "error", "message"),
    [
        ("bert_config.json", FileNotFoundError, "no bert_config.json"),
        (INDEX, FileNotFoundError, "no file .*bert_model.ckpt.index"),
        (DATA, FileNotFoundError, "no file .*bert_model.ckpt.data-00000"),
    ],
)
def test_a_missing_file_is_named(folder, missing, error, message):
    (folder / missing).unlink()
    assert google.recognizes(folder)
    with pytest.raises(error, match=message):
        model_of(google.describe(folder))
    if missing == INDEX:
        with pytest.raises(FileNotFoundError, match="no file .*bert_model.ckpt.index'"):
            google.describe(folder / "bert_model.ckpt")


def test_a_configuration_of_another_name_is_named_with_the_remedy(folder):
    (folder / "bert_config.json").rename(folder / "config.json")
    for path in (folder, folder / "bert_model.ckpt"):
        with pytest.raises((ValueError, OSError), match="rename its config.json to bert_config."):
            load_pretrained(path)


@pytest.mark.parametrize("shape_and_slice", ["5 8 0,2:-", ""])
def test_partitioned_variables_are_refused_with_the_remedy(folder, shape_and_slice):
    """`tf.train.Saver` writes slices, or the parts by their own names if it gets a dictionary."""
    name = WORDS + ("" if shape_and_slice else "/part_0")
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"),
        tensor_names=[name],
        shape_and_slices=[shape_and_slice],
        tensors=[np.ones((2, 8), "float32")],
    )
    with pytest.raises(ValueError, match="ckpt' has partitioned variables. Save it again"):
        load_pretrained(folder)


def test_the_state_of_the_optimizer_is_not_read(folder):
    stored = arrays(folder / "bert_model.ckpt")
    state = {f"{n}/{slot}": x for n, x in stored.items() for slot in ("adam_v", "Adam", "Adam_1")}
    state |= dict.fromkeys(("global_step", "beta1_power", "beta2_power"), np.int64(2))
    save_tensors(folder / "bert_model.ckpt", stored | state)
    assert google.describe(folder).arrays.shapes.keys() == stored.keys()
    assert not model_of(google.describe(folder)).missing_heads


# Checkpoints of run_classifier.py and run_squad.py


def fine_tuned(folder, num_outputs, prefix="", name="output_{}"):
    """Replace the pretraining heads by a head of google's, with Adam's slots, and return it."""
    old = {n: x for n, x in arrays(folder / "bert_model.ckpt").items() if not n.startswith("cls/")}
    rng = np.random.default_rng(num_outputs)
    head = {
        name.format("weights"): rng.normal(size=(num_outputs, 8)).astype("float32"),
        name.format("bias"): rng.normal(size=num_outputs).astype("float32"),
    }
    slots = {f"{n}/adam_{m}": x for n, x in head.items() for m in "mv"}
    new = {prefix + n: x for n, x in (old | head | slots).items()}
    save_tensors(folder / "bert_model.ckpt", {**new, "global_step": np.int64(3)})
    return list(head.values())


def encoded(model):
    tokens = np.array([[2, 5, 7, 3], [2, 9, 3, 0]])
    batch = {"tokens": tokens, "segments": tokens * 0, "valid_lens": np.array([4, 3])}
    return batch, np.asarray(model.encoder(*batch.values()))


@pytest.mark.parametrize("prefix", ["", "module/"])
@pytest.mark.parametrize(
    ("num_outputs", "kind"),
    [
        (2, SequenceClassifier),
        (3, SequenceClassifier),
        (14, SequenceClassifier),
        (1, SequenceRegressor),
    ],
)
def test_a_checkpoint_of_run_classifier_is_a_task_model(folder, num_outputs, kind, prefix):
    weights, bias = fine_tuned(folder, num_outputs, prefix)
    loaded = load_pretrained(folder, verbose=False).model
    assert type(loaded) is kind
    assert loaded.labels == tuple(f"LABEL_{number}" for number in range(num_outputs))
    batch, states = encoded(loaded)
    pooler = {
        n.split("/")[-1]: x for n, x in arrays(folder / "bert_model.ckpt").items() if "pool" in n
    }
    pooled = np.tanh(states[:, 0] @ pooler["kernel"] + pooler["bias"])
    np.testing.assert_allclose(loaded(batch), pooled @ weights.T + bias, atol=1e-5)


def test_a_checkpoint_of_run_squad_is_a_question_answerer(folder, tmp_path):
    weights, bias = fine_tuned(folder, 2, name="cls/squad/output_{}")
    loaded = load_pretrained(folder, verbose=False).model
    assert type(loaded) is QuestionAnswerer
    batch, states = encoded(loaded)
    logits = np.stack(list(loaded(batch).values()), axis=-1)
    np.testing.assert_allclose(logits[0], (states @ weights.T + bias)[0], atol=1e-5)
    convert_checkpoint(folder, tmp_path / "hf", "huggingface")
    again = load_pretrained(tmp_path / "hf", verbose=False).model
    np.testing.assert_array_equal(np.stack(list(again(batch).values()), axis=-1), logits)
