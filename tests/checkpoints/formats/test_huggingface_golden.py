"""With weights from transformers, outputs, gradients and training steps match transformers.

The golden files come from `BertForPreTraining`, the real weights from all-MiniLM-L6-v2.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTAdamW, load_pretrained
from keras_bert_d2l.checkpoints.formats import huggingface
from keras_bert_d2l.checkpoints.weights import named_weights, stored_weights


@pytest.fixture(scope="module")
def golden(data_dir):
    return dict(np.load(data_dir / "golden/hf/io.npz"))


@pytest.fixture
def model(data_dir):
    return load_pretrained(data_dir / "golden/hf").model


def batches(golden):
    """Convert the golden batches: gather the labels, and let 1 mean "is next"."""
    for index in range(5):
        batch = {k.split("/")[1]: v for k, v in golden.items() if k.startswith(f"batch{index}/")}
        rows = [np.flatnonzero(row != -100) for row in batch["labels"]]
        size = max(map(len, rows))
        positions = np.stack([np.pad(row, (0, size - len(row))) for row in rows]).astype("int32")
        weights = np.stack([np.arange(size) < len(row) for row in rows]).astype("float32")
        features = {
            "tokens": batch["input_ids"],
            "segments": batch["token_type_ids"],
            "valid_lens": batch["attention_mask"].sum(1),
            "pred_positions": positions,
        }
        labels = np.take_along_axis(batch["labels"], positions, 1) * (weights > 0)
        is_next = 1 - batch["next_sentence_label"].reshape(-1)
        yield features, {"mlm": labels, "nsp": is_next}, {"mlm": weights, "nsp": 0 * is_next + 1.0}


def losses(model, features, labels, weights):
    """Return the MLM and NSP losses of a model that is compiled without arguments."""
    outputs = model(features)
    return {
        name: model.loss[name](labels[name], outputs[name], sample_weight=weights[name])
        for name in ("mlm", "nsp")
    }


def close(actual, expected, atol, **kwargs):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol, **kwargs)


def all_positions(tokens):
    return np.broadcast_to(np.arange(tokens.shape[1], dtype="int32"), tokens.shape)


def test_hidden_states_attentions_pooler_and_logits_match_transformers(model, golden):
    features, _, _ = next(batches(golden))
    tokens, segments = features["tokens"], features["segments"]
    mask = golden["batch0/attention_mask"]
    for where in ({"valid_lens": features["valid_lens"]}, {"attention_mask": mask}):
        states = model.encoder(
            tokens, segments, **where, return_hidden_states=True, return_attention=True
        )
        close(np.stack(states["hidden_states"]), golden["hidden_states"], 2e-5)
        close(np.stack(states["attention"]), golden["attentions"], 2e-5)
        close(states["encoded"], golden["hidden_states"][-1], 2e-5)
        close(model.hidden(states["encoded"][:, 0]), golden["pooler_output"], 2e-5)
        _, mlm, nsp = model(tokens, segments, pred_positions=all_positions(tokens), **where)
        close(mlm, golden["mlm_logits"], 2e-5)
        close(nsp.numpy()[:, ::-1], golden["nsp_logits"], 2e-5)


def test_outputs_without_a_mask_match_transformers(model, golden):
    tokens = golden["batch0/input_ids"]
    encoded = model.encoder(tokens, np.zeros_like(tokens))
    close(encoded, golden["nomask_last_hidden_state"], 2e-5)
    close(model.hidden(encoded[:, 0]), golden["nomask_pooler_output"], 2e-5)


def test_loss_and_gradients_match_transformers(model, golden, data_dir):
    gradients = dict(np.load(data_dir / "golden/hf/grads.npz"))
    batch = next(batches(golden))
    model.compile()
    with tf.GradientTape() as tape:
        loss = losses(model, *batch)
        total = loss["mlm"] + loss["nsp"]
    close(loss["mlm"], golden["mlm_loss"], 2e-5)
    close(loss["nsp"], golden["nsp_loss"], 2e-5)
    close(total, golden["loss"], 2e-5)
    weights = {name: weight.value for name, weight in named_weights(model).items()}
    ours = tape.gradient(total, weights)
    compared = set()
    for row in huggingface.describe(data_dir / "golden/hf").table:
        gradient = row.layout.to_theirs(tf.convert_to_tensor(ours[row.ours]).numpy())
        close(gradient, gradients[row.theirs], 1e-5, err_msg=row.theirs)
        compared.add(row.theirs)
    assert compared == gradients.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "clip_norm"),
    [pytest.param("adamw5.npz", None, marks=pytest.mark.long), ("adamw5_clip1.npz", 1.0)],
)
def test_weights_after_five_steps_match_torchs_adamw(model, golden, data_dir, file, clip_norm):
    steps = dict(np.load(data_dir / "golden/hf" / file))
    model.compile(BERTAdamW(1e-3, clip_norm=clip_norm))
    seen = []
    for features, labels, weights in batches(golden):
        model.reset_metrics()  # otherwise the loss is the mean since the first batch
        log = model.train_on_batch(features, labels, sample_weight=weights, return_dict=True)
        seen.append(log["loss"])
    np.testing.assert_allclose(seen, steps["losses"], rtol=1e-5)
    trained = stored_weights(model, huggingface.describe(data_dir / "golden/hf").table)
    expected = {k.removeprefix("w/"): v for k, v in steps.items() if k.startswith("w/")}
    assert expected.keys() <= trained.keys()
    for name, value in expected.items():
        # The gradient of a key's bias is rounding noise, which Adam amplifies.
        if not name.endswith("key.bias"):
            close(trained[name], value, 1e-5, err_msg=name)


@pytest.mark.slow
def test_outputs_with_real_weights_match_transformers(minilm_dir, data_dir):
    golden = dict(np.load(data_dir / "golden/minilm/io.npz"))
    sentences = json.loads((data_dir / "golden/minilm/sentences.json").read_text())
    model, tokenizer, _ = load_pretrained(minilm_dir)
    assert model.missing_heads == {"mlm", "nsp"}
    batch = tokenizer(sentences)
    np.testing.assert_array_equal(batch["tokens"], golden["input_ids"])
    np.testing.assert_array_equal(batch["segments"], golden["token_type_ids"])
    np.testing.assert_array_equal(batch["valid_lens"], golden["attention_mask"].sum(1))
    states = model.encoder(**batch, return_hidden_states=True)
    encoded = states["encoded"].numpy()
    counts = golden["attention_mask"] > 0
    close(encoded[counts], golden["last_hidden_state"][counts], 5e-5)
    # PyTorch's own float32 error in the padding of the empty sentence is 5.1e-5.
    close(encoded, golden["last_hidden_state"], 2e-4)
    close(model.hidden(encoded[:, 0]), golden["pooler_output"], 5e-5)
    first_tokens = np.stack(states["hidden_states"])[:, :, 0]
    close(first_tokens, golden["cls_per_layer"], 5e-5)
    mean = (encoded * counts[..., None]).sum(1) / counts.sum(1, keepdims=True)
    close(mean, golden["mean_pooled"], 5e-5)
