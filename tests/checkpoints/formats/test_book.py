"""The book's parameters: names, layout and outputs of its PyTorch edition."""

import json
import shutil
import warnings

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from keras_bert_d2l.book import _get_batch_loss_bert
from keras_bert_d2l.checkpoints.formats import state_dicts
from keras_bert_d2l.checkpoints.weights import load_weights, named_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.vocab import Vocab

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


def random_model(config=CONFIG):
    """Return a model with random weights, so that every weight affects the outputs."""
    model, rng = BERTModel.from_bert_config(config), np.random.default_rng(0)
    for weight in named_weights(model).values():
        weight.assign(rng.normal(size=weight.shape))
    return model


def loaded(path, num_heads=None):
    checkpoint = state_dicts.describe(path, num_heads)
    model = BERTModel.from_bert_config(checkpoint.config)
    load_weights(model, checkpoint.table, checkpoint.arrays)
    assert sorted(model.missing_heads) == []
    return model


def assert_same_weights(one, other):
    others = named_weights(other)
    assert named_weights(one).keys() == others.keys()
    for name, weight in named_weights(one).items():
        np.testing.assert_array_equal(weight, others[name], err_msg=name)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "bert.tiny"
    folder.mkdir()
    state_dicts.write(random_model(), folder, VOCAB, {"lowercase": True})
    return folder


def rewritten(folder, metadata=None, **arrays):
    """Replace arrays of the parameters, or remove them (`None`)."""
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE) | arrays
    weights = {name: array for name, array in weights.items() if array is not None}
    metadata = {"num_heads": "3"} if metadata is None else metadata
    safetensors.numpy.save_file(weights, folder / WEIGHTS_FILE, metadata=metadata)
    return folder


def as_npz(folder, **arrays):
    """Convert the parameters to an npz file."""
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    (folder / WEIGHTS_FILE).unlink()
    np.savez(folder / "pretrained.npz", **weights, **arrays)
    return folder / "pretrained.npz"


# Writing


def test_the_weight_names_match_the_books_state_dict(folder):
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    blocks = {f"encoder.blks.{index}.{name}" for index in range(2) for name in IN_BLOCK_0}
    assert set(weights) == blocks | AROUND_THE_BLOCKS


def test_the_layout_matches_pytorch(folder):
    weights, ours = (
        safetensors.numpy.load_file(folder / WEIGHTS_FILE),
        named_weights(random_model()),
    )
    kernel = ours["encoder/blk_1/ffn/dense1/kernel"].numpy()  # (in, out)
    np.testing.assert_array_equal(weights["encoder.blks.1.ffn.dense1.weight"], kernel.T)
    np.testing.assert_array_equal(
        weights["encoder.pos_embedding"], ours["encoder/pos_embedding"].numpy()
    )
    # Column 1 means "is next" in the book, too.
    np.testing.assert_array_equal(
        weights["nsp.output.weight"][1], ours["nsp/dense/kernel"].numpy()[:, 1]
    )


def test_the_vocabulary_is_the_list_of_tokens(folder):
    assert json.loads((folder / "vocab.json").read_text(encoding="utf-8")) == list(VOCAB.tokens)


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
def test_the_field_that_the_book_cannot_express_is_named(field, value, tmp_path):
    model = BERTModel.from_bert_config(BERTConfig(**{**CONFIG.to_dict(), field: value}))
    with pytest.raises(ValueError, match=f"cannot express.*Received: {field}={value!r}"):
        state_dicts.write(model, tmp_path, None, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["attention_dropout", "embedding_dropout"])
def test_a_dropout_rate_that_cannot_be_stored_causes_a_warning(name, tmp_path, monkeypatch):
    model = BERTModel.from_bert_config(BERTConfig(**{**CONFIG.to_dict(), name: 0.5}))
    told = []
    monkeypatch.setattr(warnings, "warn", lambda message, **_: told.append(message))
    state_dicts.write(model, tmp_path, None, {})
    assert any(f"cannot store {name}=0.5" in message for message in told)


def test_a_case_sensitive_tokenizer_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="lowercase=False"):
        state_dicts.write(random_model(), tmp_path, VOCAB, {"lowercase": False})


# Reading


@pytest.mark.parametrize("prefix", ["", "w/"])
def test_a_single_npz_file_is_read(folder, tmp_path, prefix):
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    others = {"tokens": np.ones((2, 3), "int32")} if prefix else {}
    arrays = {prefix + name: weight for name, weight in weights.items()}
    np.savez(tmp_path / "net.npz", num_heads=3, **arrays, **others)
    assert state_dicts.recognizes(tmp_path / "net.npz")
    assert_same_weights(loaded(tmp_path / "net.npz"), random_model())


def test_safetensors_are_preferred_to_npz_and_pickles_are_ignored(folder):
    (folder / "pretrained.npz").write_bytes(b"not looked at")
    (folder / "pretrained.params").write_bytes(b"not looked at")
    assert_same_weights(loaded(folder), random_model())


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


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_named(folder, tmp_path, kept):
    files = [folder / WEIGHTS_FILE, as_npz(shutil.copytree(folder, tmp_path / "copy"), num_heads=3)]
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content[: int(kept * len(content))])
        with pytest.raises(ValueError, match=f"{file.name}' is not a complete"):
            state_dicts.describe(file.parent)


def test_damaged_values_inside_an_npz_file_are_detected(folder):
    file = as_npz(folder, num_heads=3)
    number = named_weights(random_model())["hidden/kernel"].numpy().tobytes()[:4]
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
    checkpoint = state_dicts.describe(rewritten(folder, **dict.fromkeys(names)))
    model = BERTModel.from_bert_config(checkpoint.config)
    load_weights(model, checkpoint.table, checkpoint.arrays)
    assert sorted(model.missing_heads) == ["nsp"]


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


@pytest.mark.slow
def test_evaluate_returns_the_weighted_loss_of_the_books_model(data_dir):
    path = data_dir / "golden/variants/d2l.npz"
    golden, model = dict(np.load(path)), loaded(path)
    model.compile()
    log = model.evaluate(
        {name: golden[name] for name in ("tokens", "segments", "valid_lens", "pred_positions")},
        {"mlm": golden["mlm_Y"], "nsp": golden["nsp_y"]},
        sample_weight={"mlm": golden["mlm_weights"], "nsp": np.ones(len(golden["tokens"]))},
        batch_size=len(golden["tokens"]),
        verbose=0,
        return_dict=True,
    )
    assert log["mlm_loss"] == pytest.approx(float(golden["weighted_mlm_l"]), abs=1e-5)
    assert log["nsp_loss"] == pytest.approx(float(golden["book_nsp_l"]), abs=1e-5)
