"""State dicts of the book, the notebook and the blog: names, layouts and outputs."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l import BERTConfig, BERTModel, Vocab, load_pretrained, save_pretrained
from keras_bert_d2l.book import _get_batch_loss_bert
from keras_bert_d2l.checkpoints.formats import state_dicts
from tests.checkpoints.small import (
    assert_same_weights,
    edit_weights,
    model_of,
    random_model,
    values,
)
from tests.checkpoints.torch_writer import write_arrays

VOCAB = Vocab(["<unk>", "<pad>", "<mask>", "<cls>", "<sep>", "the", "café", "東"])
CONFIG = BERTConfig.preset(
    "d2l-torch", vocab_size=len(VOCAB), num_hiddens=6, ffn_num_hiddens=10, num_heads=3, max_len=7
)
WEIGHTS_FILE = "pretrained.safetensors"


def loaded(path):
    model = model_of(state_dicts.describe(path))
    assert not model.missing_heads
    return model


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIG)


@pytest.fixture
def folder(model, tmp_path):
    folder = tmp_path / "bert.tiny"
    folder.mkdir()
    state_dicts.write(model, folder, VOCAB, {"lowercase": True})
    return folder


def rewritten(folder, metadata=None, **arrays):
    """Replace arrays of the parameters, or remove them (`None`)."""

    def edit(weights):
        return {name: x for name, x in (weights | arrays).items() if x is not None}

    edit_weights(folder, edit, WEIGHTS_FILE, {"num_heads": "3"} if metadata is None else metadata)
    return folder


# Writing


def test_names_layout_and_vocabulary_are_those_of_the_book(folder, model, data_dir):
    weights, ours = safetensors.numpy.load_file(folder / WEIGHTS_FILE), values(model)
    stored = np.load(data_dir / "golden/variants/d2l.npz").files
    assert set(weights) == {n.removeprefix("w/") for n in stored if n.startswith("w/")}
    for name, value in {
        "encoder.blks.1.ffn.dense1.weight": ours["encoder/blk_1/ffn/dense1/kernel"].T,
        "encoder.pos_embedding": ours["encoder/pos_embedding"],
        "nsp.output.weight": ours["nsp/dense/kernel"].T,  # column 1 means "is next", too
    }.items():
        np.testing.assert_array_equal(weights[name], value)
    tokens = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    assert tokens == list(VOCAB.tokens)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_norm_epsilon", 1e-3),  # that of the TensorFlow edition
        ("num_segments", 3),
        ("pooler", False),
    ],
)
def test_a_field_that_the_book_cannot_express_is_named(field, value, tmp_path):
    model = BERTModel.from_bert_config(dataclasses.replace(CONFIG, **{field: value}))
    with pytest.raises(ValueError, match=f"the book cannot.*Received: {field}={value!r}"):
        state_dicts.write(model, tmp_path, None, {})
    assert not list(tmp_path.iterdir())


# Reading


@pytest.mark.parametrize("prefix", ["", "w/"])
def test_a_single_npz_file_is_read(folder, model, tmp_path, prefix):
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    others = {"tokens": np.ones((2, 3), "int32")} if prefix else {}
    arrays = {prefix + name: weight for name, weight in weights.items()}
    np.savez(tmp_path / "net.npz", num_heads=3, **arrays, **others)
    assert state_dicts.recognizes(tmp_path / "net.npz")
    assert_same_weights(loaded(tmp_path / "net.npz"), model)


@pytest.mark.parametrize("name", ["pretrained.params", "net.pt", "net.pth", "net.bin", "a.ckpt"])
def test_files_of_pytorch_are_read(folder, model, name):
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).unlink()
    path = folder if name == "pretrained.params" else folder / name
    write_arrays(folder / name, {f"module.{key}": array for key, array in weights.items()})
    assert state_dicts.recognizes(path)
    checkpoint = state_dicts.describe(path, num_heads=3)
    assert "without the prefix 'module.'" in checkpoint.description
    assert_same_weights(model_of(checkpoint), model)
    with pytest.raises(ValueError, match="does not record how many attention heads"):
        state_dicts.describe(path)


def test_safetensors_are_preferred_to_npz_and_pickles_are_ignored(folder, model):
    (folder / "pretrained.npz").write_bytes(b"not looked at")
    (folder / "pretrained.params").write_bytes(b"not looked at")
    assert_same_weights(loaded(folder), model)


def test_other_folders_and_files_are_not_detected_as_the_books(tmp_path):
    np.savez(tmp_path / "net.npz", weights=np.ones(3, "float32"))
    (tmp_path / "vocab.json").write_text("[]")
    assert not state_dicts.recognizes(tmp_path)
    assert not state_dicts.recognizes(tmp_path / "net.npz")
    assert not state_dicts.recognizes(tmp_path / "model.ckpt")


@pytest.mark.parametrize(
    ("metadata", "num_heads", "message"),
    [
        ({"num_heads": "4"}, None, r"safetensors': `num_hiddens` must be a multiple.*num_heads=4"),
        ({"num_heads": "three"}, None, "has no number as `num_heads`: .*'three'"),
        ({"num_heads": "3", "dropout": "1"}, None, "`dropout` must be .*dropout=1"),
        ({}, 0, "`num_heads` must be an integer of at least 1"),
    ],
)
def test_an_impossible_number_of_heads_is_rejected(folder, metadata, num_heads, message):
    with pytest.raises(ValueError, match=message):
        state_dicts.describe(rewritten(folder, metadata), num_heads)


# Invalid input


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="pretrained.safetensors"):
        state_dicts.describe(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"net\.npz"):
        state_dicts.describe(tmp_path / "net.npz")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("encoder.token_embedding.weight", None, "must have an array 'encoder.token_embedding"),
        ("encoder.pos_embedding", np.zeros((7, 6), "float32"), "with 3 axes.*(7, 6)"),
        ("hidden.0.weight", np.zeros((6, 5), "float32"), r"hidden.0.weight is \(6, 5\) instead"),
    ],
)
def test_weights_that_do_not_match_are_named(folder, name, array, message):
    with pytest.raises(ValueError, match=rf"pretrained.safetensors'.*{message}"):
        loaded(rewritten(folder, **{name: array}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'["<unk>', "Unterminated string"),
        (b'{"the": 0}', "must be a JSON list of tokens"),
        (b'["the"]', "Missing"),
    ],
)
def test_an_invalid_vocabulary_file_is_rejected(folder, content, message):
    (folder / "vocab.json").write_bytes(content)
    with pytest.raises(ValueError, match=f"vocab.json' is not .*{message}"):
        state_dicts.describe(folder)


# The book's own code


def test_outputs_and_losses_match_the_book(data_dir):
    path = data_dir / "golden/variants/d2l.npz"
    golden, model = dict(np.load(path)), loaded(path)
    features = [golden[name] for name in ("tokens", "segments", "valid_lens", "pred_positions")]
    tokens, segments, valid_lens, pred_positions = features
    for suffix, lens in (("", valid_lens), ("_novl", None)):
        outputs = model(tokens, segments, lens, pred_positions)
        for name, output in zip(("encoded_X", "mlm_Y_hat", "nsp_Y_hat"), outputs, strict=True):
            np.testing.assert_allclose(output, golden[name + suffix], rtol=0, atol=1e-5)
    labels = [golden[name] for name in ("mlm_weights", "mlm_Y", "nsp_y")]
    weighted_mlm_l, nsp_l, _ = _get_batch_loss_bert(
        model, model.bert_config.vocab_size, *features, *labels, training=False
    )
    # The book's PyTorch code averages over padded predictions too, as if all weights were 1.
    labels[0] = np.ones_like(labels[0])
    mlm_l, _, sum_l = _get_batch_loss_bert(
        model, model.bert_config.vocab_size, *features, *labels, training=False
    )
    losses = {
        "weighted_mlm_l": weighted_mlm_l,
        "book_nsp_l": nsp_l,
        "book_mlm_l": mlm_l,
        "book_l": sum_l,
    }
    for name, loss in losses.items():
        assert float(loss) == pytest.approx(float(golden[name]), abs=1e-5), name
    model.compile(run_eagerly=True)
    log = model.evaluate(
        dict(zip(("tokens", "segments", "valid_lens", "pred_positions"), features, strict=True)),
        {"mlm": golden["mlm_Y"], "nsp": golden["nsp_y"]},
        sample_weight={"mlm": golden["mlm_weights"], "nsp": np.ones(len(tokens))},
        batch_size=len(tokens),
        verbose=0,
        return_dict=True,
    )
    assert log["mlm_loss"] == pytest.approx(float(golden["weighted_mlm_l"]), abs=1e-5)
    assert log["nsp_loss"] == pytest.approx(float(golden["book_nsp_l"]), abs=1e-5)


# The notebook and the blog

SIZES = {"vocab_size": 1000, "num_hiddens": 64, "num_heads": 4, "num_blks": 2, "max_len": 64}
FFN_SIZES = {"codertimo": 256, "iksran": 128}
TO_THE_REPOSITORYS_SPELLING = {
    "self_attn.output_layer": "attention.output_linear",
    "self_attn": "attention",
    "sublayers.0": "input_sublayer",
    "sublayers.1": "output_sublayer",
}


@pytest.fixture
def golden(data_dir):
    """Return a function that returns the weights that a program has written."""

    def read(program):
        stored = np.load(data_dir / f"golden/variants/{program}.npz")
        return {n.removeprefix("w/"): stored[n] for n in stored.files if n.startswith("w/")}

    return read


@pytest.fixture
def load_tutorial(tmp_path):
    """Return a function that returns the model of some weights, and what they lack."""

    def load(weights):
        np.savez(tmp_path / "bert.npz", num_heads=4, **weights)
        assert state_dicts.recognizes(tmp_path / "bert.npz")
        model = model_of(state_dicts.describe(tmp_path / "bert.npz"))
        return model, sorted(model.missing_heads)

    return load


def test_the_weight_names_of_the_notebooks_repository_are_supported(golden, load_tutorial):
    weights, renamed = golden("codertimo"), {}
    for name, weight in weights.items():
        for old, new in TO_THE_REPOSITORYS_SPELLING.items():
            name = name.replace(old, new)
        renamed[name] = weight
    other, missing = load_tutorial(renamed)
    assert missing == []
    assert_same_weights(load_tutorial(weights)[0], other)


def test_a_state_dict_of_the_book_is_written_back_bit_by_bit(golden, tmp_path):
    weights = golden("d2l")
    np.savez(tmp_path / "net.npz", num_heads=4, dropout=0.3, **weights)
    save_pretrained(load_pretrained(tmp_path / "net.npz").model, tmp_path / "back", format="book")
    written = safetensors.numpy.load_file(tmp_path / "back" / WEIGHTS_FILE)
    assert written.keys() == weights.keys()
    for key, array in weights.items():
        np.testing.assert_array_equal(written[key], array, err_msg=key, strict=True)
    assert load_pretrained(tmp_path / "back").config.dropout == 0.3


def test_the_encoder_of_the_notebook_alone_has_its_weights_and_its_dropout(golden, tmp_path):
    weights, prefix = golden("codertimo"), "bert."
    encoder = {n.removeprefix(prefix): x for n, x in weights.items() if n.startswith(prefix)}
    found = []
    for arrays in (weights, encoder):
        np.savez(tmp_path / "net.npz", num_heads=4, dropout=0.3, **arrays)
        found.append(load_pretrained(tmp_path / "net.npz").model)
    whole, alone = found
    assert alone.missing_heads == {"mlm", "nsp"}
    assert alone.bert_config == whole.bert_config
    assert whole.bert_config.block_dropout == 0.3
    encoders = [{n: x for n, x in values(m).items() if n.startswith("encoder")} for m in found]
    assert encoders[0].keys() == encoders[1].keys()
    for name, value in encoders[0].items():
        np.testing.assert_array_equal(value, encoders[1][name], err_msg=name)


def test_positions_that_are_not_sinusoidal_are_rejected(golden, load_tutorial):
    weights, positions = golden("codertimo"), "bert.embedding.position.pe"
    weights[positions][0, 3, 1] += 0.1
    with pytest.raises(ValueError, match=r"position.pe' must contain sinusoidal positions"):
        load_tutorial(weights)
    weights[positions] = np.zeros((1, 64, 66), "float32")
    with pytest.raises(ValueError, match=r"Received: different values of shape \(1, 64, 66\)"):
        load_tutorial(weights)


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("name", "tokens", "segments"),
    [("codertimo", "x", "segment_label"), ("iksran", "input", "segment")],
)
def test_the_outputs_match_the_original_programs(data_dir, name, tokens, segments):
    path = data_dir / f"golden/variants/{name}.npz"
    golden, model = dict(np.load(path)), loaded(path)
    config = BERTConfig.preset(name, **SIZES, ffn_num_hiddens=FFN_SIZES[name])
    assert model.bert_config == config
    assert model.tokenizer is None
    assert ((golden[segments] == 0) == (golden[tokens] == 0)).all()  # only padding has segment 0
    inputs = golden[tokens], np.maximum(golden[segments] - 1, 0)
    inside = model.encoder(*inputs, return_hidden_states=True, return_attention=True)
    every = np.broadcast_to(np.arange(inputs[0].shape[1]), inputs[0].shape)
    encoded, mlm, nsp = model(*inputs, None, every)
    mlm_logs, nsp_logs = log_softmax(mlm), log_softmax(nsp)
    received = {
        "hidden_states": np.stack(inside["hidden_states"]),
        "encoded": encoded,
        "attn_last": inside["attention"][-1],
        "mlm_logits": mlm,
        "nsp_logits": nsp,
        "mlm_logprobs": mlm_logs,
        "nsp_logprobs": nsp_logs,
        "mlm_probs": np.exp(mlm_logs),
        "nsp_probs": np.exp(nsp_logs),
    }
    outputs = {key for key in golden if not key.startswith("w/")}
    outputs -= {tokens, segments, "num_heads"}
    assert outputs <= received.keys()
    for key in outputs:
        np.testing.assert_allclose(received[key], golden[key], rtol=0, atol=1e-5, err_msg=key)
