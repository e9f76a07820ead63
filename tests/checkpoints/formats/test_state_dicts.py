"""State dicts of the book, the notebook and the blog: names, layouts and outputs."""

import dataclasses
import json
import math
import shutil
import warnings

import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l import BERTConfig, Vocab
from keras_bert_d2l.book import _get_batch_loss_bert
from keras_bert_d2l.checkpoints.formats import state_dicts
from tests.checkpoints.small import (
    assert_same_weights,
    edit_weights,
    model_of,
    random_model,
    values,
)

VOCAB = Vocab(["<unk>", "<pad>", "<mask>", "<cls>", "<sep>", "the", "café", "東"])
CONFIG = BERTConfig.preset(
    "d2l-torch",
    vocab_size=len(VOCAB),
    num_hiddens=6,
    ffn_num_hiddens=10,
    num_heads=3,
    max_len=7,
)
WEIGHTS_FILE = "pretrained.safetensors"

# The classes of section 15.8, under the names that their weights have in PyTorch.
IN_BLOCK_0 = {
    *(f"attention.W_{letter}.{part}" for letter in "qkvo" for part in ("weight", "bias")),
    "addnorm1.ln.weight",
    "addnorm1.ln.bias",
    "ffn.dense1.weight",
    "ffn.dense1.bias",
    "ffn.dense2.weight",
    "ffn.dense2.bias",
    "addnorm2.ln.weight",
    "addnorm2.ln.bias",
}
AROUND_THE_BLOCKS = {
    "encoder.token_embedding.weight",
    "encoder.segment_embedding.weight",
    "encoder.pos_embedding",
    "hidden.0.weight",
    "hidden.0.bias",
    "mlm.mlp.0.weight",
    "mlm.mlp.0.bias",
    "mlm.mlp.2.weight",
    "mlm.mlp.2.bias",
    "mlm.mlp.3.weight",
    "mlm.mlp.3.bias",
    "nsp.output.weight",
    "nsp.output.bias",
}


def loaded(path, num_heads=None):
    model = model_of(state_dicts.describe(path, num_heads))
    assert not model.missing_heads
    return model


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIG)


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    state_dicts.write(model, folder, VOCAB, {"lowercase": True})
    return folder


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "bert.tiny")


def rewritten(folder, metadata=None, **arrays):
    """Replace arrays of the parameters, or remove them (`None`)."""

    def edit(weights):
        return {name: x for name, x in (weights | arrays).items() if x is not None}

    edit_weights(folder, edit, WEIGHTS_FILE, {"num_heads": "3"} if metadata is None else metadata)
    return folder


def as_npz(folder, **arrays):
    """Convert the parameters to an npz file."""
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).unlink()
    np.savez(folder / "pretrained.npz", **weights, **arrays)
    return folder / "pretrained.npz"


# Writing


def test_names_layout_and_vocabulary_are_those_of_the_book(written, model):
    weights, ours = safetensors.numpy.load_file(written / WEIGHTS_FILE), values(model)
    blocks = {f"encoder.blks.{index}.{name}" for index in range(2) for name in IN_BLOCK_0}
    assert set(weights) == blocks | AROUND_THE_BLOCKS
    for name, value in {
        "encoder.blks.1.ffn.dense1.weight": ours["encoder/blk_1/ffn/dense1/kernel"].T,
        "encoder.pos_embedding": ours["encoder/pos_embedding"],
        "nsp.output.weight": ours["nsp/dense/kernel"].T,  # column 1 means "is next", too
    }.items():
        np.testing.assert_array_equal(weights[name], value)
    tokens = json.loads((written / "vocab.json").read_text(encoding="utf-8"))
    assert tokens == list(VOCAB.tokens)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_norm_epsilon", 1e-3),  # the value in the book's TensorFlow edition
        ("activation", "gelu"),
        ("tie_embeddings", True),
        ("embedding_norm", True),
        ("num_segments", 3),
        ("positions", "sinusoidal"),
        ("norm_first", True),
        ("pooler", False),
        ("mask_from", "tokens"),
    ],
)
def test_the_field_that_the_book_cannot_express_is_named(
    field, value, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(model, "bert_config", dataclasses.replace(CONFIG, **{field: value}))
    with pytest.raises(ValueError, match=f"cannot express.*Received: {field}={value!r}"):
        state_dicts.write(model, tmp_path, None, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["attention_dropout", "embedding_dropout"])
def test_a_dropout_rate_that_cannot_be_stored_causes_a_warning(name, model, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "bert_config", dataclasses.replace(CONFIG, **{name: 0.5}))
    told = []
    monkeypatch.setattr(warnings, "warn", lambda message, **_: told.append(message))
    state_dicts.write(model, tmp_path, None, {})
    assert any(f"cannot store {name}=0.5" in message for message in told)


def test_a_case_sensitive_tokenizer_is_rejected(model, tmp_path):
    with pytest.raises(ValueError, match="lowercase=False"):
        state_dicts.write(model, tmp_path, VOCAB, {"lowercase": False})


# Reading


@pytest.mark.parametrize("prefix", ["", "w/"])
def test_a_single_npz_file_is_read(folder, model, tmp_path, prefix):
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    others = {"tokens": np.ones((2, 3), "int32")} if prefix else {}
    arrays = {prefix + name: weight for name, weight in weights.items()}
    np.savez(tmp_path / "net.npz", num_heads=3, **arrays, **others)
    assert state_dicts.recognizes(tmp_path / "net.npz")
    assert_same_weights(loaded(tmp_path / "net.npz"), model)


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


@pytest.mark.parametrize(("metadata", "num_heads"), [({}, 3), ({"num_heads": "3"}, None)])
def test_the_number_of_heads_comes_from_the_file_or_the_argument(folder, metadata, num_heads):
    checkpoint = state_dicts.describe(rewritten(folder, metadata), num_heads)
    assert checkpoint.config.num_heads == 3


def test_the_error_for_a_missing_number_of_heads_explains_how_to_specify_it(folder):
    with pytest.raises(ValueError, match=r"how many attention heads.*Pass `num_heads`.*metadata="):
        state_dicts.describe(rewritten(folder, metadata={}))


@pytest.mark.parametrize(
    ("metadata", "num_heads", "message"),
    [
        ({"num_heads": "4"}, None, r"safetensors': `num_hiddens` must be a multiple.*num_heads=4"),
        ({"num_heads": "three"}, None, "`num_heads` must be one number. Received: 'three'"),
        (
            {"num_heads": "3", "dropout": "1"},
            None,
            "`dropout` must be a finite number of at least 0 and below 1",
        ),
        ({}, 0, "`num_heads` must be an integer of at least 1"),
    ],
)
def test_an_impossible_number_of_heads_is_rejected(folder, metadata, num_heads, message):
    with pytest.raises(ValueError, match=message):
        state_dicts.describe(rewritten(folder, metadata), num_heads)


# Invalid input


@pytest.mark.parametrize("path", ["pretrained.params", "."])
def test_a_pickle_is_rejected_with_instructions_for_safetensors(tmp_path, path):
    (tmp_path / "pretrained.params").write_bytes(b"\x80\x02}q\x00.")
    assert state_dicts.recognizes(tmp_path / path)
    with pytest.raises(
        ValueError, match=r"MXNet pickle.*may run code.*safetensors\.torch\.save_file.*num_heads"
    ):
        state_dicts.describe(tmp_path / path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="pretrained.safetensors"):
        state_dicts.describe(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"net\.npz"):
        state_dicts.describe(tmp_path / "net.npz")


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_named(folder, tmp_path, kept):
    files = [folder / WEIGHTS_FILE, as_npz(shutil.copytree(folder, tmp_path / "copy"), num_heads=3)]
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(ValueError, match=f"{file.name}' is not a complete"):
            state_dicts.describe(file.parent)


def test_damaged_values_inside_an_npz_file_are_detected(folder, model):
    file = as_npz(folder, num_heads=3)
    number = values(model)["hidden/kernel"].tobytes()[:4]
    content = file.read_bytes()
    assert number in content
    file.write_bytes(content.replace(number, bytes(4)))
    with pytest.raises(ValueError, match=r"npz' is not a complete npz file.*CRC"):
        loaded(folder)


def test_arrays_of_python_objects_are_not_unpickled(folder):
    rewritten(folder, **{"hidden.0.bias": None})
    as_npz(folder, num_heads=3, **{"hidden.0.bias": [{}] * 6})
    with pytest.raises(ValueError, match=r"floating-point numbers. Received: 'hidden.0.bias' in o"):
        loaded(folder)


def test_a_number_of_heads_stored_as_a_python_object_is_not_unpickled(folder):
    as_npz(folder, num_heads={})
    with pytest.raises(
        ValueError, match="not a complete npz file of numeric arrays.*allow_pickle=False"
    ):
        loaded(folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("encoder.token_embedding.weight", None, "lacks the weight 'encoder.token_embedding"),
        ("encoder.pos_embedding", np.zeros((7, 6), "float32"), "must have 3 axes.*(7, 6)"),
        ("encoder.blks.1.ffn.dense2.bias", None, "lacks weights of the model: encoder.blks.1.ffn"),
        ("hidden.0.weight", np.zeros((6, 5), "float32"), r"hidden.0.weight is \(6, 5\) instead"),
        ("encoder.final.weight", np.zeros(6, "float32"), "does not have: encoder.final.weight"),
        ("mlm.mlp.3.bias", np.full(8, np.nan, "float32"), "not finite in 'mlm.mlp.3.bias'"),
    ],
)
def test_weights_that_do_not_match_are_named(folder, name, array, message):
    with pytest.raises(ValueError, match=rf"pretrained.safetensors'.*{message}"):
        loaded(rewritten(folder, **{name: array}))


def test_a_missing_head_is_reported(folder):
    names = ("nsp.output.weight", "nsp.output.bias")
    model = model_of(state_dicts.describe(rewritten(folder, **dict.fromkeys(names))))
    assert model.missing_heads == {"nsp"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'["<unk>', "Unterminated string"),
        (b"\xff[]", "utf-8"),
        (b'{"the": 0}', "must be a JSON list of tokens"),
        (b'["the", 7]', "Tokens must be strings"),
        (b'["the"]', "Missing"),
    ],
)
def test_an_invalid_vocabulary_file_is_rejected(folder, content, message):
    (folder / "vocab.json").write_bytes(content)
    with pytest.raises(
        ValueError, match=f"vocab.json' is not a vocabulary of the book: .*{message}"
    ):
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

V, D, FFN, N, L, MAX_LEN = 11, 6, 24, 3, 2, 8
LINEARS_OF_A_NOTEBOOK_BLOCK = {
    **{f"self_attn.linear_layers.{number}": (D, D) for number in range(3)},
    "self_attn.output_layer": (D, D),
    "feed_forward.w_1": (FFN, D),
    "feed_forward.w_2": (D, FFN),
}
LINEARS_OF_A_BLOG_BLOCK = {
    **{f"sublayer_1.w_{letter}": (D, D) for letter in "qkvo"},
    "sublayer_2.linear_1": (FFN, D),
    "sublayer_2.linear_2": (D, FFN),
}
TO_THE_REPOSITORYS_SPELLING = {
    "self_attn.output_layer": "attention.output_linear",
    "self_attn": "attention",
    "sublayers.0": "input_sublayer",
    "sublayers.1": "output_sublayer",
}


def linears(shapes):
    names = {f"{name}.weight": shape for name, shape in shapes.items()}
    return names | {f"{name}.bias": shape[:1] for name, shape in shapes.items()}


def norms(names, parts):
    return {f"{name}.{part}": (D,) for name in names for part in parts}


def drawn(shapes):
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()}


def positions():
    table = np.zeros((1, MAX_LEN, D), "float32")
    for position in range(MAX_LEN):
        for column in range(0, D, 2):
            angle = position / 10000 ** (column / D)
            table[0, position, column : column + 2] = math.sin(angle), math.cos(angle)
    return table


@pytest.fixture
def of_the_notebook():
    """A state dict of the notebook."""
    block = linears(LINEARS_OF_A_NOTEBOOK_BLOCK)
    block |= norms(("sublayers.0.norm", "sublayers.1.norm"), ("a_2", "b_2"))
    shapes = {
        "bert.embedding.token.weight": (V, D),
        "bert.embedding.segment.weight": (3, D),
        **{f"bert.transformer_blocks.{i}.{name}": block[name] for i in range(L) for name in block},
        **linears({"next_sentence.linear": (2, D), "mask_lm.linear": (V, D)}),
    }
    return drawn(shapes) | {"bert.embedding.position.pe": positions()}


@pytest.fixture
def of_the_blog():
    """A state dict of the blog."""
    block = linears(LINEARS_OF_A_BLOG_BLOCK) | norms(("norm_1", "norm_2"), ("weight", "bias"))
    shapes = {
        "ebd.t.weight": (V, D),
        "ebd.p.weight": (MAX_LEN, D),
        "ebd.s.weight": (3, D),
        **{f"blks.{index}.{name}": block[name] for index in range(L) for name in block},
        **linears({"nsp.fc": (2, D), "mlm.fc": (V, D)}),
    }
    return drawn(shapes)


def saved(weights, path, num_heads=N):
    if path.suffix == ".npz":
        np.savez(path, num_heads=num_heads, **weights)
    else:
        safetensors.numpy.save_file(weights, path, metadata={"num_heads": str(num_heads)})
    return path


def load_tutorial(path, num_heads=None):
    assert state_dicts.recognizes(path)
    model = model_of(state_dicts.describe(path, num_heads))
    return model, sorted(model.missing_heads)


# The notebook


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_the_notebooks_configuration_is_inferred_from_the_shapes(of_the_notebook, tmp_path):
    expected = BERTConfig(
        vocab_size=V,
        num_hiddens=D,
        ffn_num_hiddens=FFN,
        num_heads=N,
        num_blks=L,
        dropout=0.1,
        max_len=MAX_LEN,
        embedding_dropout=0.1,
        ffn_dropout=0.1,
        block_dropout=0.1,
        num_segments=3,
        first_segment_id=1,
        positions="sinusoidal",
        norm_first=True,
        layer_norm_epsilon=1e-6,
        layer_norm="unbiased",
        activation="gelu_tanh",
        mask_from="tokens",
        pooler=False,
        mlm_head="linear",
    )
    checkpoint = state_dicts.describe(saved(of_the_notebook, tmp_path / "bert.npz"))
    assert checkpoint.config == expected
    assert checkpoint.vocab is None


def test_the_weight_names_of_the_repository_are_supported(of_the_notebook, tmp_path):
    renamed = {}
    for name, weight in of_the_notebook.items():
        for old, new in TO_THE_REPOSITORYS_SPELLING.items():
            name = name.replace(old, new)
        renamed[name] = weight
    model, _ = load_tutorial(saved(of_the_notebook, tmp_path / "notebook.npz"))
    other, missing = load_tutorial(saved(renamed, tmp_path / "repository.npz"))
    assert missing == []
    assert_same_weights(model, other)


def test_an_encoder_without_heads_is_loaded_and_the_missing_heads_are_reported(
    of_the_notebook, tmp_path
):
    encoder = {
        name.removeprefix("bert."): weight
        for name, weight in of_the_notebook.items()
        if name.startswith("bert.")
    }
    model, missing = load_tutorial(saved(encoder, tmp_path / "bert.npz"))
    assert missing == ["mlm", "nsp"]
    table = model.encoder.token_embedding.embeddings
    np.testing.assert_array_equal(table, encoder["embedding.token.weight"])


def test_positions_that_are_not_sinusoidal_are_rejected(of_the_notebook, tmp_path):
    of_the_notebook["bert.embedding.position.pe"][0, 3, 1] += 0.1
    with pytest.raises(ValueError, match=r"position.pe' must contain sinusoidal positions"):
        load_tutorial(saved(of_the_notebook, tmp_path / "bert.npz"))


def test_positions_of_the_wrong_width_are_rejected(of_the_notebook, tmp_path):
    of_the_notebook["bert.embedding.position.pe"] = np.zeros((1, MAX_LEN, D + 2), "float32")
    with pytest.raises(ValueError, match=r"Received: different values of shape \(1, 8, 8\)"):
        load_tutorial(saved(of_the_notebook, tmp_path / "bert.npz"))


# The blog


def test_the_blogs_weights_are_assigned_to_the_right_layers(of_the_blog, tmp_path):
    model, missing = load_tutorial(saved(of_the_blog, tmp_path / "bert.npz"))
    assert missing == []
    ours = values(model)
    expected = {
        "encoder/token_embedding/embeddings": of_the_blog["ebd.t.weight"],
        "encoder/segment_embedding/embeddings": of_the_blog["ebd.s.weight"],
        "encoder/pos_embedding": of_the_blog["ebd.p.weight"][None],
        "encoder/blk_1/attention/W_q/kernel": of_the_blog["blks.1.sublayer_1.w_q.weight"].T,
        "encoder/blk_1/attention/W_k/bias": of_the_blog["blks.1.sublayer_1.w_k.bias"],
        "encoder/blk_1/attention/W_v/bias": of_the_blog["blks.1.sublayer_1.w_v.bias"],
        "encoder/blk_1/attention/W_o/bias": of_the_blog["blks.1.sublayer_1.w_o.bias"],
        "encoder/blk_1/addnorm1/ln/gamma": of_the_blog["blks.1.norm_1.weight"],
        "encoder/blk_1/addnorm2/ln/beta": of_the_blog["blks.1.norm_2.bias"],
        "encoder/blk_1/ffn/dense1/kernel": of_the_blog["blks.1.sublayer_2.linear_1.weight"].T,
        "encoder/blk_1/ffn/dense2/kernel": of_the_blog["blks.1.sublayer_2.linear_2.weight"].T,
        "mlm/mlp/logits/kernel": of_the_blog["mlm.fc.weight"].T,
        "nsp/dense/kernel": of_the_blog["nsp.fc.weight"].T,  # column 1 means "is next" in both
    }
    for name, weight in expected.items():
        np.testing.assert_array_equal(ours[name], weight, err_msg=name)
    assert len(ours) == len(of_the_blog)


def test_the_blogs_configuration_is_inferred_from_the_shapes(of_the_blog, tmp_path):
    expected = BERTConfig(
        vocab_size=V,
        num_hiddens=D,
        ffn_num_hiddens=FFN,
        num_heads=N,
        num_blks=L,
        dropout=0.1,
        max_len=MAX_LEN,
        num_segments=3,
        first_segment_id=1,
        layer_norm_epsilon=1e-5,
        activation="gelu",
        mask_from="tokens",
        pooler=False,
        mlm_head="linear",
    )
    assert state_dicts.describe(saved(of_the_blog, tmp_path / "bert.npz")).config == expected


def test_other_files_are_not_recognized_and_the_number_of_heads_is_needed(of_the_blog, tmp_path):
    file = tmp_path / "bert.npz"
    assert not state_dicts.recognizes(saved({"a": np.ones(D, "float32")}, file))
    np.savez(file, **of_the_blog)
    with pytest.raises(ValueError, match=r"how many attention heads.*Pass `num_heads`"):
        load_tutorial(file)
    with pytest.raises(ValueError, match=r"bert.npz': `num_hiddens` must be a multiple.*=4"):
        load_tutorial(file, num_heads=4)
    assert load_tutorial(file, num_heads=3)[0].bert_config.num_heads == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blks.0.sublayer_2.linear_1.bias": None}, "lacks the weight 'blks.0.sublayer_2"),
        ({"ebd.p.weight": np.zeros((1, 8, 6), "float32")}, "must have 2 axes"),
        ({"blks.2.norm_1.bias": np.zeros(6, "float32")}, "lacks weights of the model: blks.2"),
        ({"input": np.zeros((2, 3), "int32")}, "does not have: input"),
    ],
)
def test_weights_that_do_not_match_the_blog_are_named(of_the_blog, tmp_path, change, message):
    weights = {name: array for name, array in (of_the_blog | change).items() if array is not None}
    with pytest.raises(ValueError, match=rf"bert.npz'.*{message}"):
        load_tutorial(saved(weights, tmp_path / "bert.npz"))


# Outputs of the original programs


@pytest.mark.parametrize(
    ("name", "tokens", "segments"),
    [("codertimo", "x", "segment_label"), ("iksran", "input", "segment")],
)
def test_the_outputs_match_the_original_programs(data_dir, name, tokens, segments):
    path = data_dir / f"golden/variants/{name}.npz"
    golden, (model, missing) = dict(np.load(path)), load_tutorial(path)
    assert missing == []
    assert model.bert_config.first_segment_id == 1
    assert ((golden[segments] == 0) == (golden[tokens] == 0)).all()  # only padding has segment 0
    inputs = golden[tokens], np.maximum(golden[segments] - 1, 0)
    inside = model.encoder(*inputs, return_hidden_states=True, return_attention=True)
    every = np.broadcast_to(np.arange(inputs[0].shape[1]), inputs[0].shape)
    encoded, mlm, nsp = model(*inputs, None, every)
    received = {
        "hidden_states": np.stack(inside["hidden_states"]),
        "encoded": encoded,
        "attn_last": inside["attention"][-1],
        "mlm_logits": mlm,
        "nsp_logits": nsp,
        "mlm_logprobs": log_softmax(mlm),
        "nsp_logprobs": log_softmax(nsp),
        "mlm_probs": np.exp(log_softmax(mlm)),
        "nsp_probs": np.exp(log_softmax(nsp)),
    }
    outputs = {key for key in golden if not key.startswith("w/")}
    outputs -= {tokens, segments, "num_heads"}
    assert outputs <= received.keys()
    for key in outputs:
        np.testing.assert_allclose(received[key], golden[key], rtol=0, atol=1e-5, err_msg=key)
