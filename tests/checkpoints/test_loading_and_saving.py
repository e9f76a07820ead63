import importlib.util
import pathlib
import shutil
import sys

import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.checkpoints.detection import inspect_checkpoint
from keras_bert_d2l.checkpoints.loading import load_pretrained, load_tokenizer
from keras_bert_d2l.checkpoints.saving import (
    convert_checkpoint,
    save_pretrained,
    save_tokenizer,
)
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE = "config.json", "vocab.txt", "model.safetensors"
VOCAB = Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"])
SMALL = {
    "vocab_size": len(VOCAB),
    "num_hiddens": 4,
    "ffn_num_hiddens": 8,
    "num_heads": 2,
    "num_blks": 1,
    "max_len": 16,
}
BOOK = BERTConfig.preset("d2l", **SMALL)
OF_FORMAT = {  # for each format, a model that it can express
    "native": BOOK,
    "huggingface": BERTConfig.preset("huggingface", **SMALL),
    "google": BERTConfig.preset("google", **SMALL),
    "book": BERTConfig.preset("d2l-torch", **SMALL),
}
FORMATS = list(OF_FORMAT)


@pytest.fixture
def tokenizer():
    return Tokenizer(VOCAB)


@pytest.fixture
def checkpoint(tmp_path, tokenizer):
    """A folder with a checkpoint in the native format."""
    folder = tmp_path / "checkpoint"
    save_pretrained(BERTModel.from_bert_config(BOOK), folder, tokenizer=tokenizer)
    return folder


def model_of(config):
    """Return a model in which no two weights are equal, including biases."""
    model = BERTModel.from_bert_config(config)
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return model


def assert_same_weights(one, other):
    one, other = named_weights(one), named_weights(other)
    assert one.keys() == other.keys()
    for name, weight in one.items():
        np.testing.assert_array_equal(weight, other[name], err_msg=name)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def without(folder, *parts):
    """Remove the weights of some parts of the model from a weights file."""
    weights = safetensors.numpy.load_file(folder / WEIGHTS_FILE)
    kept = {name: array for name, array in weights.items() if not name.startswith(parts)}
    safetensors.numpy.save_file(kept, folder / WEIGHTS_FILE)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_restores_model_config_and_tokenizer(format, tmp_path, tokenizer):
    config = OF_FORMAT[format]
    model = model_of(config)
    save_pretrained(model, tmp_path / "new" / "checkpoint", tokenizer=tokenizer, format=format)
    loaded = load_pretrained(tmp_path / "new" / "checkpoint")
    assert loaded.config == loaded.model.bert_config == config
    assert loaded.tokenizer.vocab == VOCAB
    assert loaded.tokenizer.options["lowercase"] is True
    assert_same_weights(loaded.model, model)


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_model_gives_the_same_bytes(format, tmp_path, tokenizer):
    for name in ("one", "two"):
        model = model_of(OF_FORMAT[format])
        save_pretrained(model, tmp_path / name / "x", tokenizer=tokenizer, format=format)
    assert contents(tmp_path / "one/x") == contents(tmp_path / "two/x")


@pytest.mark.parametrize("format", FORMATS)
def test_special_tokens_of_the_user_are_saved_or_refused(format, tmp_path):
    model, tokenizer = model_of(OF_FORMAT[format]), Tokenizer(VOCAB, special_tokens=["b"])
    if format in ("google", "book"):
        with pytest.raises(ValueError, match="with special_tokens"):
            save_pretrained(model, tmp_path / "model", tokenizer=tokenizer, format=format)
        return
    save_pretrained(model, tmp_path / "model", tokenizer=tokenizer, format=format)
    again = load_pretrained(tmp_path / "model", verbose=False).tokenizer
    assert again.options == tokenizer.options
    assert load_tokenizer(tmp_path / "model").options == tokenizer.options


@pytest.mark.parametrize("format", ["google", "book"])
@pytest.mark.parametrize(
    "options",
    [
        {"split_special_tokens": True},
        {"compat": "huggingface", "strip_accents": False},
        {"compat": "huggingface", "tokenize_chinese_chars": False},
    ],
)
def test_tokenizer_options_that_a_format_would_lose_are_refused(format, options, tmp_path):
    tokenizer = Tokenizer(VOCAB, **options)
    with pytest.raises(ValueError, match=f"tokenizer with {list(options)[-1]}="):
        save_pretrained(
            model_of(OF_FORMAT[format]), tmp_path / "model", tokenizer=tokenizer, format=format
        )


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_without_the_rules_of_hugging_face_says_so(format, tmp_path, capsys):
    tokenizer = Tokenizer(VOCAB, compat="huggingface")
    save_pretrained(
        model_of(OF_FORMAT[format]), tmp_path / "model", tokenizer=tokenizer, format=format
    )
    line = f"The format {format!r} cannot store compat='huggingface'"
    assert capsys.readouterr().out.startswith(line) == (format in ("google", "book"))
    compat = load_pretrained(tmp_path / "model", verbose=False).tokenizer.options["compat"]
    assert compat == ("google" if format in ("google", "book") else "huggingface")


OPTIONS = [
    {},
    {"lowercase": False, "special_tokens": ["b", "a"]},
    {"compat": "huggingface", "strip_accents": False, "tokenize_chinese_chars": False},
    {"split_special_tokens": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "default")
def test_a_tokenizer_saved_alone_is_restored_exactly(options, tmp_path):
    tokenizer = Tokenizer(VOCAB, **options)
    for _ in range(2):  # the second time, it replaces the first
        save_tokenizer(tokenizer, tmp_path / "tokenizer")
    again = load_tokenizer(tmp_path / "tokenizer")
    assert again.vocab == VOCAB
    assert again.options == tokenizer.options


def test_a_tokenizer_does_not_replace_a_model(checkpoint):
    with pytest.raises(FileExistsError, match="not part of a tokenizer"):
        save_tokenizer(Tokenizer(VOCAB), checkpoint)
    assert load_pretrained(checkpoint, verbose=False).model


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    save_pretrained(BERTModel.from_bert_config(BOOK), tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="has no vocabulary"):
        load_tokenizer(tmp_path / "model")
    save_tokenizer(Tokenizer(VOCAB), tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text('{"strip_accents": "no"}')
    with pytest.raises(ValueError, match="has strip_accents='no', which is not supported"):
        load_tokenizer(tmp_path / "tokenizer")


@pytest.mark.parametrize("format", FORMATS)
def test_a_checkpoint_may_have_no_vocabulary(format, tmp_path):
    save_pretrained(BERTModel.from_bert_config(OF_FORMAT[format]), tmp_path / "x", format=format)
    assert load_pretrained(tmp_path / "x").tokenizer is None


@pytest.mark.slow
def test_weights_are_bitwise_identical_after_conversion_through_all_formats(tmp_path, tokenizer):
    config = BERTConfig.preset("google", **SMALL)
    model = model_of(config)
    save_pretrained(model, tmp_path / "0", tokenizer=tokenizer, format="google")
    for step, format in enumerate(("native", "huggingface", "native", "google", "huggingface"), 1):
        convert_checkpoint(tmp_path / str(step - 1), tmp_path / str(step), format)
    loaded = load_pretrained(tmp_path / str(step))
    assert loaded.config == config
    assert loaded.tokenizer.vocab == VOCAB
    assert_same_weights(loaded.model, model)
    assert contents(tmp_path / "4") == contents(tmp_path / "0")


def test_loading_prints_a_one_line_summary(editable, capsys):
    load_pretrained(editable)
    num_weights = BERTModel.from_bert_config(BOOK).count_params()
    assert capsys.readouterr().out == (
        f"{editable}: keras_bert_d2l checkpoint; 1 blocks, 4 wide, 2 attention heads, 8 tokens, "
        f"{num_weights} weights; heads: pooler, mlm, nsp\n"
    )
    (editable / VOCAB_FILE).unlink()
    load_pretrained(editable, verify=False)
    assert capsys.readouterr().out.endswith("heads: pooler, mlm, nsp; no vocabulary\n")


def test_the_summary_can_be_turned_off(checkpoint, capsys):
    load_pretrained(checkpoint, verbose=False)
    assert capsys.readouterr() == ("", "")


def test_a_missing_head_is_always_reported_and_initialized_at_random(editable, capsys):
    without(editable, "mlm", "nsp")
    weights = [named_weights(load_pretrained(editable, verbose=False).model) for _ in range(2)]
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert said[0].endswith("heads: pooler; missing and freshly initialized: mlm, nsp")
    kernels = [np.asarray(one["nsp/dense/kernel"]) for one in weights]
    assert 0 < np.abs(kernels).max() <= 0.0401  # TruncatedNormal(0.02)
    assert (kernels[0] != kernels[1]).all()
    np.testing.assert_array_equal(*(one["hidden/kernel"] for one in weights))


def test_an_incomplete_encoder_is_rejected(editable):
    without(editable, "encoder/blk_0/ffn")
    with pytest.raises(ValueError, match="lacks weights of the model: encoder/blk_0/ffn/dense1"):
        load_pretrained(editable)


def test_the_random_seed_determines_missing_heads(editable):
    without(editable, "nsp")
    kernels = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        model = load_pretrained(editable).model
        kernels.append(np.asarray(model.nsp.dense.kernel))
    np.testing.assert_array_equal(*kernels)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_checkpoint_can_be_loaded_in_a_different_dtype_policy(policy, tmp_path):
    model = BERTModel.from_bert_config(BOOK, dtype=policy)
    save_pretrained(model, tmp_path / "checkpoint")
    in_float32 = load_pretrained(tmp_path / "checkpoint").model
    keras.config.set_dtype_policy(policy)
    in_policy = load_pretrained(tmp_path / "checkpoint").model
    assert in_float32.dtype_policy.name == "float32"
    assert in_policy.dtype_policy.name == policy
    assert_same_weights(in_float32, model)
    assert_same_weights(in_policy, model)


def test_without_tensorflow_text_only_the_model_is_loaded(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    with pytest.warns(UserWarning, match="without its tokenizer.*tensorflow-text"):
        loaded = load_pretrained(checkpoint)
    assert loaded.tokenizer is None
    assert loaded.config == BOOK
    convert_checkpoint(checkpoint, tmp_path / "same")  # the vocabulary is not lost
    assert contents(tmp_path / "same") == contents(checkpoint)


@pytest.mark.slow
def test_saving_replaces_the_existing_checkpoint_completely(checkpoint):
    for format, config in OF_FORMAT.items():
        save_pretrained(BERTModel.from_bert_config(config), checkpoint, format=format)
        assert load_pretrained(checkpoint).config == config
        assert not (checkpoint / VOCAB_FILE).exists()
        assert [entry.name for entry in checkpoint.parent.iterdir()] == ["checkpoint"]


def test_a_failed_save_does_not_change_the_existing_checkpoint(checkpoint, monkeypatch):
    before, open_file = contents(checkpoint), pathlib.Path.open

    def no_space(path, mode="r", *arguments, **options):
        if "w" in mode:
            raise OSError(28, "No space left on device")
        return open_file(path, mode, *arguments, **options)

    with monkeypatch.context() as full:
        full.setattr(pathlib.Path, "open", no_space)
        with pytest.raises(OSError, match="No space left"):
            save_pretrained(BERTModel.from_bert_config(BOOK), checkpoint)
    assert contents(checkpoint) == before
    assert [entry.name for entry in checkpoint.parent.iterdir()] == ["checkpoint"]


def test_a_rejected_conversion_changes_nothing(checkpoint):
    before = contents(checkpoint)
    for format in ("huggingface", "google", "book"):
        with pytest.raises(ValueError, match="cannot express"):
            convert_checkpoint(checkpoint, checkpoint, format)
        assert contents(checkpoint) == before


def test_a_folder_with_other_files_is_not_overwritten(checkpoint, tmp_path):
    (checkpoint / "metrics.jsonl").write_text("{}")
    before = contents(checkpoint)
    with pytest.raises(FileExistsError, match=r"contains 'metrics.jsonl'.*a separate folder"):
        save_pretrained(BERTModel.from_bert_config(BOOK), checkpoint)
    with pytest.raises(FileExistsError, match=r"contains 'metrics.jsonl'.*a separate folder"):
        convert_checkpoint(tmp_path / "not looked at", checkpoint)
    assert contents(checkpoint) == before
    load_pretrained(checkpoint)  # other files do not prevent loading


def test_a_checkpoint_replaces_neither_a_file_nor_the_working_directory(tmp_path, monkeypatch):
    model = BERTModel.from_bert_config(BOOK)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file. Give the path of a folder"):
        save_pretrained(model, tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must not be the working directory '.'"):
        save_pretrained(model, ".")


def test_an_unknown_format_is_rejected(checkpoint, tmp_path):
    model = BERTModel.from_bert_config(BOOK)
    with pytest.raises(ValueError, match="`format` .*'google'.*Received: format='torch'"):
        save_pretrained(model, tmp_path / "x", format="torch")
    with pytest.raises(ValueError, match="`format` must be one of.*Received: format='notebook'"):
        convert_checkpoint(checkpoint, tmp_path / "x", "notebook")
    assert not (tmp_path / "x").exists()


def test_a_vocabulary_of_the_wrong_size_is_rejected(editable):
    model = BERTModel.from_bert_config(BOOK)
    tokenizer = Tokenizer(Vocab([*VOCAB.tokens, "more"]))
    with pytest.raises(ValueError, match="8 tokens that the model was made for.*9 tokens"):
        save_pretrained(model, editable, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="Received: a model without one"):
        check_vocabulary(model, None)
    tokenizer.vocab.to_file(editable / VOCAB_FILE)
    with pytest.raises(ValueError, match="checkpoint': the vocabulary has 9 tokens.*vocab_size=8"):
        load_pretrained(editable)


def test_weights_that_are_not_finite_are_rejected(editable):
    weights = safetensors.numpy.load_file(editable / WEIGHTS_FILE)
    weights["hidden/bias"][1] = np.nan
    safetensors.numpy.save_file(weights, editable / WEIGHTS_FILE)
    with pytest.raises(ValueError, match="model.safetensors' contains values.*'hidden/bias'"):
        load_pretrained(editable)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_changed_file_is_reported_unless_verification_is_skipped(format, tmp_path, tokenizer):
    folder = tmp_path / "checkpoint"
    save_pretrained(model_of(OF_FORMAT[format]), folder, tokenizer=tokenizer, format=format)
    expected = load_pretrained(folder).model
    *_, largest = sorted(folder.iterdir(), key=lambda file: file.stat().st_size)
    content = largest.read_bytes()
    largest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for load in (load_pretrained, inspect_checkpoint):
        with pytest.raises(ValueError, match=f"{largest.name}' has changed.*'SHA256SUMS'"):
            load(folder)
    if format != "google":  # TensorFlow compares its own checksums
        found = load_pretrained(folder, verify=False).model
        with pytest.raises(AssertionError):
            assert_same_weights(found, expected)


def test_a_path_that_does_not_exist_is_named():
    with pytest.raises(FileNotFoundError, match="There is no file or folder 'no/where'"):
        load_pretrained("no/where")


def test_the_error_for_an_unknown_folder_lists_the_known_formats(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config.json.*\(native\).*bert_model.ckpt.index"):
        load_pretrained(tmp_path)


def test_the_checkpoints_inside_a_folder_are_named(checkpoint):
    folder = checkpoint.parent
    shutil.copytree(checkpoint, folder / "new")
    checkpoint.rename(folder / "old")
    BOOK.to_json(folder / CONFIG_FILE)
    VOCAB.to_file(folder / VOCAB_FILE)
    with pytest.raises(
        FileNotFoundError, match=r"contains checkpoints; pass the path of one.*/new, .*/old\."
    ):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'{"format": "ker', "Unterminated string"), (b"\xff{}", "utf-8"), (b"[1]", "Looked for")],
)
def test_an_invalid_configuration_file_is_reported(content, message, editable):
    (editable / CONFIG_FILE).write_bytes(content)
    with pytest.raises(
        FileNotFoundError, match=f"is not a checkpoint of a known format.*{message}"
    ):
        load_pretrained(editable)


def test_a_missing_configuration_is_reported(editable):
    (editable / CONFIG_FILE).unlink()
    with pytest.raises(FileNotFoundError, match="is not a checkpoint of a known format"):
        load_pretrained(editable)


def test_the_number_of_heads_can_be_passed_if_the_file_does_not_record_it(tmp_path, checkpoint):
    model = model_of(OF_FORMAT["book"])
    save_pretrained(model, tmp_path / "book", format="book")
    weights = safetensors.numpy.load_file(tmp_path / "book" / "pretrained.safetensors")
    safetensors.numpy.save_file(weights, tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match="how many attention heads.*`num_heads`"):
        load_pretrained(tmp_path / "bare.safetensors")
    loaded = load_pretrained(tmp_path / "bare.safetensors", num_heads=2)
    assert loaded.config.num_heads == 2
    assert_same_weights(loaded.model, model)
    with pytest.raises(ValueError, match="`num_heads` must match the value in.*, 2. Received.*4"):
        load_pretrained(checkpoint, num_heads=4)


@pytest.mark.parametrize("format", FORMATS)
def test_inspection_lists_every_weight_with_mean_and_std(format, tmp_path, tokenizer):
    model = model_of(OF_FORMAT[format])
    save_pretrained(model, tmp_path / "x", tokenizer=tokenizer, format=format)
    summary, weights = inspect_checkpoint(tmp_path / "x")
    assert summary.startswith(f"{tmp_path / 'x'}: ")
    weights = list(weights)
    assert [one.name for one in weights] == sorted(one.name for one in weights)
    expected = [np.asarray(weight) for weight in named_weights(model).values()]
    found = sorted((one.mean, one.std) for one in weights)
    np.testing.assert_allclose(found, sorted((x.mean(), x.std()) for x in expected), atol=1e-6)
    assert {one.dtype.lower() for one in weights} <= {"f32", "float32"}


def test_inspection_shows_weights_that_would_not_load(editable):
    weights = safetensors.numpy.load_file(editable / WEIGHTS_FILE)
    weights["hidden/bias"] = np.array([np.nan] * 5, "float16")
    safetensors.numpy.save_file(weights, editable / WEIGHTS_FILE)
    _, found = inspect_checkpoint(editable)
    bias = next(one for one in found if one.name == "hidden/bias")
    assert (bias.shape, bias.dtype) == ((5,), "F16")
    assert np.isnan(bias.mean)


def test_loading_draws_no_random_weights(checkpoint, monkeypatch):
    def drawn(*args, **kwargs):
        raise AssertionError("a weight was drawn at random")

    for name in ("TruncatedNormal", "GlorotUniform", "RandomUniform", "RandomNormal"):
        monkeypatch.setattr(getattr(keras.initializers, name), "__call__", drawn)
    load_pretrained(checkpoint)
    with pytest.raises(AssertionError, match="drawn at random"):
        BERTModel.from_bert_config(BOOK)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None,
    reason='needs JAX: pip install "keras-bert-d2l[jax]", or make test-peers',
)
def test_the_jax_backend_loads_the_same_model(tmp_path, checkpoint, fresh_process):
    code = """
        import sys
        import keras
        import numpy as np
        from keras_bert_d2l.checkpoints.loading import load_pretrained
        from keras_bert_d2l.checkpoints.saving import save_pretrained

        assert keras.backend.backend() == "jax"
        model, tokenizer, _ = load_pretrained(sys.argv[1])
        batch = {name: tensor.numpy() for name, tensor in tokenizer(["a [MASK]", "b"]).items()}
        np.savez(sys.argv[2], encoded=np.asarray(model(**batch)[0]))
        save_pretrained(model, sys.argv[3], tokenizer=tokenizer)
    """
    paths = tmp_path / "answers.npz", tmp_path / "from_jax"
    fresh_process(code, checkpoint, *paths, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    model, tokenizer, _ = load_pretrained(checkpoint)
    encoded, _, _ = model(**tokenizer(["a [MASK]", "b"]))
    np.testing.assert_allclose(np.load(paths[0])["encoded"], encoded, atol=1e-5)
    assert contents(paths[1]) == contents(checkpoint)
