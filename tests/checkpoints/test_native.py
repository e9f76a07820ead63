import importlib.util
import json
import pathlib

import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l.checkpoints.native import (
    CONFIG_FILE,
    VOCAB_FILE,
    WEIGHTS_FILE,
    load_pretrained,
    named_weights,
    save_pretrained,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text import tokenizer as tokenizer_module
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

VOCAB = Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"])
BOOK = BERTConfig(len(VOCAB), 4, 8, 2, 1, 0.1, 16)
GOOGLE = BERTConfig(
    len(VOCAB), 4, 8, 2, 1, 0.1, 16, embedding_norm=True, tie_embeddings=True, activation="gelu"
)

IN_A_BLOCK = [
    *(f"attention/W_{letter}/{part}" for letter in "qkvo" for part in ("kernel", "bias")),
    *(f"addnorm{number}/ln/{part}" for number in (1, 2) for part in ("gamma", "beta")),
    *(f"ffn/dense{number}/{part}" for number in (1, 2) for part in ("kernel", "bias")),
]
OF_THE_BOOK = {
    "encoder/token_embedding/embeddings",
    "encoder/segment_embedding/embeddings",
    "encoder/pos_embedding",
    *(f"encoder/blk_0/{name}" for name in IN_A_BLOCK),
    "hidden/kernel",
    "hidden/bias",
    "mlm/mlp/dense/kernel",
    "mlm/mlp/dense/bias",
    "mlm/mlp/ln/gamma",
    "mlm/mlp/ln/beta",
    "mlm/mlp/logits/kernel",
    "mlm/mlp/logits/bias",
    "nsp/dense/kernel",
    "nsp/dense/bias",
}
OF_GOOGLE = (OF_THE_BOOK - {"mlm/mlp/logits/kernel", "mlm/mlp/logits/bias"}) | {
    "mlm/bias",
    "encoder/embedding_ln/gamma",
    "encoder/embedding_ln/beta",
}


@pytest.fixture
def tokenizer():
    return Tokenizer(VOCAB)


@pytest.fixture
def checkpoint(tmp_path, tokenizer):
    """A folder with a checkpoint."""
    folder = tmp_path / "checkpoint"
    save_pretrained(BERTModel.from_bert_config(BOOK), folder, tokenizer)
    return folder


def answers(model):
    tokens = np.array([[2, 5, 4, 7, 3, 0], [2, 4, 3, 0, 0, 0]])
    return model(tokens, np.zeros_like(tokens), np.array([5, 3]), np.array([[2], [1]]))


def assert_same_answers(model, expected):
    for one, other in zip(answers(model), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def stored_weights(folder):
    return safetensors.numpy.load_file(folder / WEIGHTS_FILE)


def rewrite_config(folder, **changes):
    fields = json.loads((folder / CONFIG_FILE).read_text()) | changes
    (folder / CONFIG_FILE).write_text(json.dumps(fields))


def rewrite_weights(folder, change):
    weights = stored_weights(folder)
    change(weights)
    safetensors.numpy.save_file(weights, folder / WEIGHTS_FILE)


@pytest.mark.parametrize("config", [BOOK, GOOGLE], ids=["book", "google"])
def test_a_checkpoint_gives_back_model_tokenizer_and_configuration(config, tmp_path, tokenizer):
    model = BERTModel.from_bert_config(config)
    save_pretrained(model, tmp_path / "new" / "checkpoint", tokenizer)
    loaded = load_pretrained(tmp_path / "new" / "checkpoint")
    assert loaded.config == loaded.model.bert_config == config
    assert loaded.tokenizer.vocab == VOCAB
    assert_same_answers(loaded.model, answers(model))


@pytest.mark.parametrize(
    ("config", "names"), [(BOOK, OF_THE_BOOK), (GOOGLE, OF_GOOGLE)], ids=["book", "google"]
)
def test_weights_are_stored_in_float32_by_readable_names(config, names, tmp_path):
    save_pretrained(BERTModel.from_bert_config(config), tmp_path / "checkpoint")
    weights = stored_weights(tmp_path / "checkpoint")
    assert set(weights) == names
    assert {array.dtype for array in weights.values()} == {np.dtype("float32")}


def test_names_of_weights_do_not_depend_on_the_model_s_name_or_scope():
    with keras.name_scope("outer"):
        model = BERTModel.from_bert_config(BOOK, name="encoder")
    assert set(named_weights(model)) == OF_THE_BOOK


def test_the_configuration_file_holds_the_fields_of_the_model(checkpoint):
    fields = json.loads((checkpoint / CONFIG_FILE).read_text())
    extra = {"format": "keras_bert_d2l", "format_version": 1, "lowercase": True}
    assert fields == extra | BOOK.to_dict()


def test_the_same_model_gives_the_same_bytes(tmp_path, tokenizer):
    model = BERTModel.from_bert_config(BOOK)
    contents = []
    for name in ("one", "two"):
        save_pretrained(model, tmp_path / name, tokenizer)
        contents.append([file.read_bytes() for file in sorted((tmp_path / name).iterdir())])
    assert contents[0] == contents[1]


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_checkpoint_passes_between_dtype_policies(policy, tmp_path):
    model = BERTModel.from_bert_config(BOOK, dtype=policy)
    save_pretrained(model, tmp_path / "checkpoint")
    in_float32 = load_pretrained(tmp_path / "checkpoint").model
    keras.config.set_dtype_policy(policy)
    in_policy = load_pretrained(tmp_path / "checkpoint").model
    assert in_float32.dtype_policy.name == "float32"
    assert in_policy.dtype_policy.name == policy
    for weight, same, again in zip(
        model.weights, in_float32.weights, in_policy.weights, strict=True
    ):
        np.testing.assert_array_equal(weight, same)
        np.testing.assert_array_equal(weight, again)


def test_a_tokenizer_of_cased_words_comes_back_as_one(tmp_path):
    model = BERTModel.from_bert_config(BOOK)
    save_pretrained(model, tmp_path / "checkpoint", Tokenizer(VOCAB, lowercase=False))
    assert load_pretrained(tmp_path / "checkpoint").tokenizer.lowercase is False


def test_a_checkpoint_may_have_no_vocabulary(tmp_path):
    save_pretrained(BERTModel.from_bert_config(BOOK), tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint" / VOCAB_FILE).exists()
    assert load_pretrained(tmp_path / "checkpoint").tokenizer is None


def test_without_tensorflow_text_the_model_is_loaded_alone(checkpoint, monkeypatch):
    def missing():
        raise ImportError("tensorflow-text has no wheel here")

    monkeypatch.setattr(tokenizer_module, "tensorflow_text", missing)
    with pytest.warns(UserWarning, match="without its tokenizer.*no wheel here"):
        loaded = load_pretrained(checkpoint)
    assert loaded.tokenizer is None
    assert loaded.config == BOOK


def test_saving_replaces_the_older_checkpoint_as_a_whole(checkpoint):
    save_pretrained(BERTModel.from_bert_config(GOOGLE), checkpoint)
    assert {file.name for file in checkpoint.iterdir()} == {CONFIG_FILE, WEIGHTS_FILE}
    assert [entry.name for entry in checkpoint.parent.iterdir()] == ["checkpoint"]
    assert load_pretrained(checkpoint).config == GOOGLE


def test_a_save_that_fails_leaves_the_older_checkpoint_as_it_was(checkpoint, monkeypatch):
    before = {file.name: file.read_bytes() for file in checkpoint.iterdir()}

    def no_space(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", no_space)
    with pytest.raises(OSError, match="No space left"):
        save_pretrained(BERTModel.from_bert_config(GOOGLE), checkpoint)
    assert {file.name: file.read_bytes() for file in checkpoint.iterdir()} == before
    assert [entry.name for entry in checkpoint.parent.iterdir()] == ["checkpoint"]


def test_a_folder_that_holds_something_else_is_not_touched(checkpoint):
    (checkpoint / "metrics.jsonl").write_text("{}")
    before = {file.name: file.read_bytes() for file in checkpoint.iterdir()}
    with pytest.raises(FileExistsError, match=r"holds 'metrics.jsonl'.*a folder of its own"):
        save_pretrained(BERTModel.from_bert_config(BOOK), checkpoint)
    assert {file.name: file.read_bytes() for file in checkpoint.iterdir()} == before
    load_pretrained(checkpoint)  # reading is not in the way of other files


def test_a_checkpoint_needs_a_folder_of_its_own(tmp_path, monkeypatch):
    model = BERTModel.from_bert_config(BOOK)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file: name a folder"):
        save_pretrained(model, tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="working directory '.' must not be"):
        save_pretrained(model, ".")


def test_a_vocabulary_of_another_size_is_refused(checkpoint):
    tokenizer = Tokenizer(Vocab([*VOCAB.tokens, "more"]))
    with pytest.raises(ValueError, match="8 tokens that the model was made for.*9 tokens"):
        save_pretrained(BERTModel.from_bert_config(BOOK), checkpoint, tokenizer)
    tokenizer.vocab.to_file(checkpoint / VOCAB_FILE)
    with pytest.raises(ValueError, match="vocab.txt' has 9 tokens, but config.json.*vocab_size=8"):
        load_pretrained(checkpoint)


def test_a_vocabulary_without_its_case_is_refused(checkpoint):
    rewrite_config(checkpoint, lowercase=None)
    with pytest.raises(ValueError, match="`lowercase` is null or missing.*set it to true"):
        load_pretrained(checkpoint)


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE])
def test_a_missing_file_is_named(name, checkpoint):
    (checkpoint / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=f"checkpoint' is no checkpoint: it has no '{name}'"
    ):
        load_pretrained(checkpoint)


def test_a_folder_of_checkpoints_names_them(checkpoint):
    BOOK.to_json(checkpoint.parent / CONFIG_FILE)  # as the folder of a run has it
    with pytest.raises(FileNotFoundError, match="Checkpoints in it: checkpoint"):
        load_pretrained(checkpoint.parent)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": "ker', "Unterminated string"),
        (b"\xff{}", "utf-8"),
        (b"[1]", '"format": "keras_bert_d2l"'),
        (b'{"model_type": "bert"}', '"format": "keras_bert_d2l"'),
        (b'{"format": "keras_bert_d2l", "format_version": 2}', "`format_version` must be 1.*newer"),
        (b'{"format": "keras_bert_d2l", "format_version": 1}', "needs the field"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(content, message, checkpoint):
    (checkpoint / CONFIG_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=f"config.json' is no configuration.*{message}"):
        load_pretrained(checkpoint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, "Unknown field 'colour'"),
        ({"num_heads": 3}, "`num_hiddens` must be a multiple"),
        ({"lowercase": "yes"}, "`lowercase` must be true, false or null"),
    ],
)
def test_a_wrong_field_of_the_configuration_is_named(changes, message, checkpoint):
    rewrite_config(checkpoint, **changes)
    with pytest.raises(ValueError, match=f"config.json' is no configuration.*{message}"):
        load_pretrained(checkpoint)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_of_weights_is_refused(kept, checkpoint):
    file = checkpoint / WEIGHTS_FILE
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match="model.safetensors' is no whole safetensors file.*again"):
        load_pretrained(checkpoint)


def test_missing_weights_are_named(checkpoint):
    def drop(weights):
        for name in sorted(weights)[:5]:
            del weights[name]

    rewrite_weights(checkpoint, drop)
    with pytest.raises(ValueError, match="lacks weights.*encoder/blk_0/addnorm1.*and 2 more"):
        load_pretrained(checkpoint)


def test_left_over_weights_are_named(checkpoint):
    rewrite_weights(checkpoint, lambda weights: weights.update(extra=np.zeros(3, "float32")))
    with pytest.raises(ValueError, match="holds weights that the model has not: extra"):
        load_pretrained(checkpoint)


@pytest.mark.parametrize(
    "array", [np.zeros((9, 4), "float32"), np.zeros((8, 4), "float16")], ids=["shape", "dtype"]
)
def test_weights_that_do_not_fit_the_configuration_are_named(array, checkpoint):
    name = "encoder/token_embedding/embeddings"
    rewrite_weights(checkpoint, lambda weights: weights.update({name: array}))
    with pytest.raises(ValueError, match=rf"config.json: {name} is .* instead of .*\(8, 4\)"):
        load_pretrained(checkpoint)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None,
    reason='needs JAX: pip install "keras-bert-d2l[jax]", or make test-peers',
)
def test_the_jax_backend_reads_the_same_model(tmp_path, checkpoint, fresh_process):
    code = """
        import sys
        import keras
        import numpy as np
        from keras_bert_d2l.checkpoints.native import load_pretrained, save_pretrained

        assert keras.backend.backend() == "jax"
        model, tokenizer, _ = load_pretrained(sys.argv[1])
        batch = {name: tensor.numpy() for name, tensor in tokenizer(["a [MASK]", "b"]).items()}
        np.savez(sys.argv[2], encoded=np.asarray(model(**batch)[0]))
        save_pretrained(model, sys.argv[3], tokenizer)
    """
    paths = tmp_path / "answers.npz", tmp_path / "from_jax"
    fresh_process(code, checkpoint, *paths, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    model, tokenizer, _ = load_pretrained(checkpoint)
    encoded, _, _ = model(**tokenizer(["a [MASK]", "b"]))
    np.testing.assert_allclose(np.load(paths[0])["encoded"], encoded, atol=1e-5)
    for name, weight in stored_weights(checkpoint).items():
        np.testing.assert_array_equal(stored_weights(paths[1])[name], weight)
