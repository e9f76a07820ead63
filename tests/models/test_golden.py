"""Outputs, gradients' effect and optimiser steps equal those of other implementations.

The golden files hold weights and outputs of the book's PyTorch code, of Hugging Face's
`BertForPreTraining` and of google-research/bert. The names are mapped here by hand.
"""

import re

import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_bert_d2l import BERTAdamW, BERTModel, WarmupLinearDecay

TRANSPOSED = "kernel"  # PyTorch keeps dense kernels as (out, in)


def assign(model, weights, name_of, transpose):
    """Sets every weight of the model from `weights`, each to be used once."""
    left = dict(weights)
    for variable in model.weights:
        path = variable.path.removeprefix(model.name + "/")
        value = left.pop(name_of(path))
        variable.assign(value.T if transpose and variable.name == TRANSPOSED else value)
    assert not left


def book_name(path):
    """Our path -> the book's name in its PyTorch state dict."""
    path = path.replace("mlm/mlp/dense", "mlm/mlp/0").replace("mlm/mlp/ln", "mlm/mlp/2")
    path = path.replace("mlm/mlp/logits", "mlm/mlp/3").replace("nsp/dense", "nsp/output")
    path = re.sub("^hidden", "hidden/0", path).replace("blk_", "blks/")
    path = path.replace("kernel", "weight").replace("embeddings", "weight")
    return path.replace("gamma", "weight").replace("beta", "bias").replace("/", ".")


def test_the_books_outputs_and_losses(data_dir):
    golden = dict(np.load(data_dir / "golden/variants/d2l.npz"))
    weights = {k.removeprefix("w/"): v for k, v in golden.items() if k.startswith("w/")}
    vocab_size, num_hiddens = weights["encoder.token_embedding.weight"].shape
    model = BERTModel(
        vocab_size,
        num_hiddens,
        len(weights["encoder.blks.0.ffn.dense1.bias"]),
        int(golden["num_heads"]),
        sum(name.endswith("ffn.dense1.bias") for name in weights),
        0.0,
        weights["encoder.pos_embedding"].shape[1],
        layer_norm_epsilon=1e-5,
    )
    assign(model, weights, book_name, transpose=True)
    inputs = [golden[name] for name in ("tokens", "segments", "valid_lens", "pred_positions")]
    for suffix, lens in (("", inputs[2]), ("_novl", None)):
        outputs = model(inputs[0], inputs[1], lens, inputs[3])
        for name, output in zip(("encoded_X", "mlm_Y_hat", "nsp_Y_hat"), outputs, strict=True):
            np.testing.assert_allclose(output, golden[name + suffix], atol=1e-5)
    model.compile()
    features = dict(
        zip(("tokens", "segments", "valid_lens", "pred_positions"), inputs, strict=True)
    )
    log = model.evaluate(
        features,
        {"mlm": golden["mlm_Y"], "nsp": golden["nsp_y"]},
        sample_weight={"mlm": golden["mlm_weights"], "nsp": np.ones(len(inputs[0]))},
        batch_size=len(inputs[0]),
        verbose=0,
        return_dict=True,
    )
    assert log["mlm_loss"] == pytest.approx(float(golden["weighted_mlm_l"]), rel=1e-5)
    assert log["nsp_loss"] == pytest.approx(float(golden["book_nsp_l"]), rel=1e-5)


GOOGLE_PARTS = [
    ("encoder/token_embedding/embeddings", "bert/embeddings/word_embeddings"),
    ("encoder/segment_embedding/embeddings", "bert/embeddings/token_type_embeddings"),
    ("encoder/pos_embedding", "bert/embeddings/position_embeddings"),
    ("encoder/embedding_ln", "bert/embeddings/LayerNorm"),
    ("encoder/blk_", "bert/encoder/layer_"),
    ("attention/W_q", "attention/self/query"),
    ("attention/W_k", "attention/self/key"),
    ("attention/W_v", "attention/self/value"),
    ("attention/W_o", "attention/output/dense"),
    ("addnorm1/ln", "attention/output/LayerNorm"),
    ("ffn/dense1", "intermediate/dense"),
    ("ffn/dense2", "output/dense"),
    ("addnorm2/ln", "output/LayerNorm"),
    ("hidden", "bert/pooler/dense"),
    ("mlm/mlp/dense", "cls/predictions/transform/dense"),
    ("mlm/mlp/ln", "cls/predictions/transform/LayerNorm"),
    ("mlm/bias", "cls/predictions/output_bias"),
    ("nsp/dense/kernel", "cls/seq_relationship/output_weights"),
    ("nsp/dense/bias", "cls/seq_relationship/output_bias"),
]


def google_name(path):
    for ours, theirs in GOOGLE_PARTS:
        path = re.sub(f"(^|/){ours}", rf"\1{theirs}", path)
    return path


def hugging_face_name(path):
    name = google_name(path).replace("layer_", "layer.").replace("output_weights", "weight")
    name = name.replace("seq_relationship/output_bias", "seq_relationship/bias")
    name = name.replace("predictions/output_bias", "predictions/bias")
    for old, new in (("kernel", "weight"), ("gamma", "weight"), ("beta", "bias")):
        name = name.replace(old, new)
    return re.sub("(_embeddings)$", r"\1.weight", name).replace("/", ".")


def golden_model(weights, swap, **options):
    """A model of the golden folder's size, with google's architecture."""
    model = BERTModel(1000, 64, 128, 4, 2, 0.0, 64, layer_norm_epsilon=1e-12, **GOOGLE, **options)
    weights = {
        name: value[None] if "position_embeddings" in name else value
        for name, value in weights.items()
    }
    for name in swap:  # both programs keep "is next" in column 0 and the kernel as (2, D)
        weights[name] = weights[name][::-1]
    return model, weights


GOOGLE = {"embedding_norm": True, "tie_embeddings": True, "initializer": "truncated_normal"}
HF_NSP = ("cls.seq_relationship.weight", "cls.seq_relationship.bias")
GOOGLE_NSP = ("cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias")


def hugging_face_batches(golden):
    """Labels of all positions -> our gathered ones."""
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


def test_hugging_faces_logits(data_dir):
    golden = dict(np.load(data_dir / "golden/hf/io.npz"))
    model, weights = golden_model(
        load_file(data_dir / "golden/hf/model.safetensors"), HF_NSP, activation="gelu"
    )
    assign(model, weights, hugging_face_name, transpose=True)
    features, _, _ = next(hugging_face_batches(golden))
    encoded, mlm, nsp = model(*features.values())
    valid = np.arange(encoded.shape[1]) < features["valid_lens"][:, None]
    hidden = golden["hidden_states"][-1]
    np.testing.assert_allclose(encoded.numpy()[valid], hidden[valid], atol=1e-5)
    expected = np.take_along_axis(golden["mlm_logits"], features["pred_positions"][..., None], 1)
    np.testing.assert_allclose(mlm, expected, atol=1e-5)
    np.testing.assert_allclose(nsp.numpy()[:, ::-1], golden["nsp_logits"], atol=1e-5)


@pytest.mark.parametrize(("file", "clip_norm"), [("adamw5.npz", None), ("adamw5_clip1.npz", 1.0)])
def test_five_steps_of_torchs_adamw(data_dir, file, clip_norm):
    steps = dict(np.load(data_dir / "golden/hf" / file))
    model, weights = golden_model(
        load_file(data_dir / "golden/hf/model.safetensors"), HF_NSP, activation="gelu"
    )
    assign(model, weights, hugging_face_name, transpose=True)
    model.compile(BERTAdamW(1e-3, clip_norm=clip_norm))
    batches = hugging_face_batches(dict(np.load(data_dir / "golden/hf/io.npz")))
    losses = []
    for features, labels, mask in batches:
        model.reset_metrics()  # else the log holds the mean since the first batch
        log = model.train_on_batch(features, labels, sample_weight=mask, return_dict=True)
        losses.append(log["loss"])
    np.testing.assert_allclose(losses, steps["losses"], rtol=1e-5)
    compare_weights(model, steps, HF_NSP, hugging_face_name, transpose=True)


def test_five_steps_of_googles_optimizer(data_dir):
    folder = data_dir / "golden/google_tf1"
    steps, golden = dict(np.load(folder / "adamwd5.npz")), dict(np.load(folder / "io.npz"))
    model, weights = golden_model(
        dict(np.load(folder / "weights.npz")), GOOGLE_NSP, activation="gelu_tanh"
    )
    weights[GOOGLE_NSP[0]] = weights[GOOGLE_NSP[0]].T
    assign(model, weights, google_name, transpose=False)
    schedule = WarmupLinearDecay(1e-3, 2, 10, decay_from_start=True)
    np.testing.assert_allclose([schedule(s) for s in range(5)], steps["learning_rates"], atol=1e-9)
    model.compile(BERTAdamW(schedule, bias_correction=False))
    for index in range(5):
        batch = {k.split("/")[1]: v for k, v in golden.items() if k.startswith(f"batch{index}/")}
        features = {
            "tokens": batch["input_ids"],
            "segments": batch["segment_ids"],
            "valid_lens": batch["input_mask"].sum(1),
            "pred_positions": batch["masked_lm_positions"],
        }
        is_next = 1 - batch["next_sentence_labels"].reshape(-1)
        log = model.train_on_batch(
            features,
            {"mlm": batch["masked_lm_ids"], "nsp": is_next},
            sample_weight={"mlm": batch["masked_lm_weights"], "nsp": np.ones(len(is_next))},
            return_dict=True,
        )
        if index == 0:
            assert log["loss"] == pytest.approx(float(steps["losses"][0]), rel=1e-4)
    compare_weights(model, steps, GOOGLE_NSP, google_name, transpose=False)


def compare_weights(model, steps, nsp_names, name_of, transpose):
    compared = 0
    for variable in model.weights:
        name = name_of(variable.path.removeprefix(model.name + "/"))
        if f"w/{name}" not in steps or name.endswith(("key.bias", "key/bias")):
            continue  # the gradient of a key's bias is rounding noise, which Adam blows up
        value = variable.numpy()
        if variable.name == TRANSPOSED and (transpose or name in nsp_names):
            value = value.T
        value = value[::-1] if name in nsp_names else value
        expected = steps[f"w/{name}"].reshape(value.shape)
        np.testing.assert_allclose(value, expected, atol=2e-5, err_msg=name)
        compared += 1
    assert compared >= 5
