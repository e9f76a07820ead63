import pathlib
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l import (
    BERTModel,
    Tokenizer,
    Vocab,
    convert_checkpoint,
    inspect_checkpoint,
    load_pretrained,
    load_tokenizer,
    save_pretrained,
    save_tokenizer,
)
from keras_bert_d2l.checkpoints.checks import check_vocabulary
from tests.checkpoints.small import (
    BATCH,
    OF_FORMAT,
    VOCAB,
    assert_same_weights,
    contents,
    drop_weights,
    edit_weights,
    values,
)
from tests.jax_backend import JAX, needs_jax
from tests.nightly import nightly_except

CONFIG_FILE, VOCAB_FILE = "config.json", "vocab.txt"
FORMATS = list(OF_FORMAT)


@pytest.fixture(scope="module")
def model(models):
    return models["native"]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_restores_model_config_and_tokenizer(format, models, saved, tmp_path, capsys):
    model, folder = models[format], saved[format]
    loaded = load_pretrained(folder)
    said = capsys.readouterr().out
    assert loaded.config == loaded.model.bert_config == OF_FORMAT[format]
    assert loaded.tokenizer is loaded.model.tokenizer
    assert loaded.tokenizer.vocab == VOCAB
    assert loaded.tokenizer.options["lowercase"] is True
    assert_same_weights(loaded.model, model)
    save_pretrained(loaded.model, tmp_path / "checkpoint", format=format)
    assert contents(tmp_path / "checkpoint") == contents(folder)  # bytes depend only on the model
    summary, weights = inspect_checkpoint(folder)
    assert said == f"{summary}\n"
    assert summary.startswith(f"{folder}: ")
    weights = list(weights)
    assert [one.name for one in weights] == sorted(one.name for one in weights)
    found = sorted((one.mean, one.std) for one in weights)
    expected = sorted((x.mean(), x.std()) for x in values(model).values())
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert {one.dtype.lower() for one in weights} <= {"f32", "float32"}


OPTIONS = [
    {"lowercase": False, "special_tokens": ["b", "a"]},
    {"split_special_tokens": True},
    {"compat": "huggingface", "strip_accents": False, "tokenize_chinese_chars": False},
    {"compat": "huggingface"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options))
def test_options_of_a_tokenizer_are_restored_or_refused(options, models, tmp_path, capsys):
    tokenizer = Tokenizer(VOCAB, **options)
    for _ in range(2):  # the second time, it replaces the first
        save_tokenizer(tokenizer, tmp_path / "tokenizer")
    again = load_tokenizer(tmp_path / "tokenizer")
    assert (again.vocab, again.options) == (VOCAB, tokenizer.options)
    refused = [name for name in options if name != "compat"]
    for format in FORMATS:
        folder = tmp_path / format
        if format == "book" and refused:  # it stores few options of a tokenizer
            with pytest.raises(ValueError, match=f"tokenizer with {refused[0]}="):
                save_pretrained(models[format], folder, tokenizer=tokenizer, format=format)
            continue
        save_pretrained(models[format], folder, tokenizer=tokenizer, format=format)
        lost = format == "book"
        line = f"The format {format!r} cannot store compat='huggingface'"
        assert capsys.readouterr().out.startswith(line) == lost
        found = load_tokenizer(folder).options
        assert found == {**tokenizer.options, **({"compat": "google"} if lost else {})}


def test_a_tokenizer_json_of_another_program_is_not_read(models, tmp_path):
    tokenizer = Tokenizer(VOCAB, lowercase=False)
    save_pretrained(models["native"], tmp_path / "bert", tokenizer=tokenizer)
    (tmp_path / "bert" / "tokenizer.json").write_text('{"model": {"type": "WordLevel"}}')
    assert load_tokenizer(tmp_path / "bert").options == tokenizer.options


def test_a_folder_without_a_tokenizer_is_named(editable, tmp_path):
    (editable / VOCAB_FILE).unlink()
    with pytest.raises(FileNotFoundError, match="has no vocabulary"):
        load_tokenizer(editable)
    save_tokenizer(Tokenizer(VOCAB), tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text('{"strip_accents": "no"}')
    with pytest.raises(ValueError, match="has strip_accents='no', which is not supported"):
        load_tokenizer(tmp_path / "tokenizer")


def test_loading_prints_a_one_line_summary(editable, model, capsys):
    load_pretrained(editable, verbose=False)
    assert capsys.readouterr() == ("", "")
    (editable / VOCAB_FILE).unlink()
    assert load_pretrained(editable, verify=False).tokenizer is None
    assert capsys.readouterr().out == (
        f"{editable}: keras_bert_d2l checkpoint; 1 blocks, 4 wide, 2 attention heads, 8 tokens, "
        f"{model.count_params()} weights; heads: pooler, mlm, nsp; no tokenizer\n"
    )


def test_a_missing_head_is_always_reported_and_initialized_by_the_seed(editable, capsys):
    drop_weights(editable, "mlm", "nsp")
    found = []
    for seed in (3, 3, 4):
        keras.utils.set_random_seed(seed)
        found.append(values(load_pretrained(editable, verbose=False).model))
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3
    assert said[0].endswith("heads: pooler; missing and freshly initialized: mlm, nsp")
    one, same, other = (weights["nsp/dense/kernel"] for weights in found)
    assert 0 < np.abs(one).max() <= 0.0401  # TruncatedNormal(0.02)
    assert (one == same).all()
    assert (one != other).all()
    np.testing.assert_array_equal(found[0]["hidden/kernel"], found[2]["hidden/kernel"])


def test_a_checkpoint_can_be_saved_and_loaded_in_any_dtype_policy(saved, model, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    in_policy = load_pretrained(saved["native"]).model
    assert in_policy.dtype_policy.name == "mixed_bfloat16"
    assert_same_weights(in_policy, model)
    save_pretrained(in_policy, tmp_path / "checkpoint")
    assert contents(tmp_path / "checkpoint") == contents(saved["native"])


@pytest.mark.slow
def test_saving_replaces_the_existing_checkpoint_completely(checkpoint, models):
    for format, config in OF_FORMAT.items():
        save_pretrained(models[format], checkpoint, format=format)
        loaded = load_pretrained(checkpoint)
        assert (loaded.config, loaded.tokenizer) == (config, None)
        assert [entry.name for entry in checkpoint.parent.iterdir()] == ["checkpoint"]
    with pytest.raises(FileNotFoundError, match="has no vocabulary"):
        load_tokenizer(checkpoint)


def test_a_failed_save_changes_nothing(checkpoint, models, monkeypatch):
    before, open_file = contents(checkpoint), pathlib.Path.open

    def no_space(path, mode="r", *arguments, **options):
        if "w" in mode:
            raise OSError(28, "No space left on device")
        return open_file(path, mode, *arguments, **options)

    with monkeypatch.context() as full:
        full.setattr(pathlib.Path, "open", no_space)
        with pytest.raises(OSError, match="No space left"):
            save_pretrained(models["native"], checkpoint)
    for format in FORMATS[1:]:
        with pytest.raises(ValueError, match="cannot express"):
            convert_checkpoint(checkpoint, checkpoint, format)
    assert contents(checkpoint) == before
    assert [entry.name for entry in checkpoint.parent.iterdir()] == ["checkpoint"]


def test_other_files_and_the_working_directory_are_not_replaced(
    checkpoint, model, tmp_path, monkeypatch
):
    (checkpoint / "metrics.jsonl").write_text("{}")
    before = contents(checkpoint)
    for save in (
        lambda: save_pretrained(model, checkpoint),
        lambda: convert_checkpoint(tmp_path / "not looked at", checkpoint),
    ):
        with pytest.raises(FileExistsError, match=r"contains 'metrics.jsonl'.*a separate folder"):
            save()
    assert contents(checkpoint) == before
    load_pretrained(checkpoint)  # other files do not prevent loading
    with pytest.raises(FileExistsError, match="is a file. Give the path of a folder"):
        save_pretrained(model, checkpoint / "metrics.jsonl")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ValueError, match="must not be the working directory"):
        save_pretrained(model, ".")


def test_an_unknown_format_is_rejected(checkpoint, model, tmp_path):
    with pytest.raises(ValueError, match="`format` .*'kerashub'.*Received: format='torch'"):
        save_pretrained(model, tmp_path / "x", format="torch")
    assert not (tmp_path / "x").exists()


def test_a_vocabulary_of_the_wrong_size_is_rejected(editable, model):
    tokenizer = Tokenizer(Vocab([*VOCAB.tokens, "more"]))
    with pytest.raises(ValueError, match="8 tokens that the model was made for.*9 tokens"):
        save_pretrained(model, editable, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="Received: a model without one"):
        check_vocabulary(model, None)
    tokenizer.vocab.to_file(editable / VOCAB_FILE)
    with pytest.raises(ValueError, match="checkpoint': the vocabulary has 9 tokens.*vocab_size=8"):
        load_pretrained(editable)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "content", [b"", b"cat\ndog\n", b"\xff\xfe\n", b"[1, 2]", b"[PAD]\n[UNK]", None]
)
def test_without_the_tokenizer_the_vocabulary_may_hold_anything(format, content, saved, tmp_path):
    folder = shutil.copytree(saved[format], tmp_path / "copy")
    for file in folder.glob("vocab.*"):
        file.unlink()
        if content is None:
            file.symlink_to("nothing")
        else:
            file.write_bytes(content)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises((OSError, ValueError), match=r"vocab|tokens|\[UNK\]|copy"):
        load_pretrained(folder)
    loaded = load_pretrained(folder, tokenizer=False)
    assert loaded.tokenizer is loaded.model.tokenizer is None
    assert loaded.config == OF_FORMAT[format]


def test_weights_that_are_not_finite_are_rejected_but_listed(editable):
    edit_weights(editable, lambda old: {**old, "hidden/bias": np.array([np.nan] * 4, "float16")})
    with pytest.raises(ValueError, match="model.safetensors' contains values.*'hidden/bias'"):
        load_pretrained(editable)
    bias = next(one for one in inspect_checkpoint(editable)[1] if one.name == "hidden/bias")
    assert (bias.shape, bias.dtype) == ((4,), "F16")
    assert np.isnan(bias.mean)


@pytest.mark.slow
@pytest.mark.parametrize("format", nightly_except({"native"}, FORMATS))
def test_a_changed_file_is_reported_unless_verification_is_skipped(format, saved, models, tmp_path):
    folder = shutil.copytree(saved[format], tmp_path / "checkpoint")
    *_, largest = sorted(folder.iterdir(), key=lambda file: file.stat().st_size)
    content = largest.read_bytes()
    largest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for load in (load_pretrained, inspect_checkpoint):
        with pytest.raises(ValueError, match=f"{largest.name}' has changed.*'SHA256SUMS'"):
            load(folder)
    found = load_pretrained(folder, verify=False).model
    with pytest.raises(AssertionError):
        assert_same_weights(found, models[format])


def test_the_error_for_an_unknown_path_says_what_was_looked_for(checkpoint):
    with pytest.raises(FileNotFoundError, match="There is no file or folder 'no/where'"):
        load_pretrained("no/where")
    folder = checkpoint.parent
    shutil.copytree(checkpoint, folder / "new")
    checkpoint.rename(folder / "old")
    OF_FORMAT["native"].to_json(folder / CONFIG_FILE)
    VOCAB.to_file(folder / VOCAB_FILE)
    with pytest.raises(FileNotFoundError, match="config.json.*native.*google"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": "ker', "is not a JSON file: Unterminated string"),
        (b"\xff{}", "is not UTF-8"),
    ],
)
def test_a_damaged_configuration_file_is_reported(content, message, editable):
    (editable / CONFIG_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=rf"config.json' .*{message}"):
        load_pretrained(editable)


def test_a_missing_configuration_file_is_reported(editable):
    (editable / CONFIG_FILE).unlink()
    with pytest.raises(FileNotFoundError, match="is not a checkpoint of a known format"):
        load_pretrained(editable)
    (editable / CONFIG_FILE).symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="config.json': it is a link"):
        load_pretrained(editable)


def test_the_number_of_heads_can_be_passed_if_the_file_does_not_record_it(saved, models, tmp_path):
    weights = safetensors.numpy.load_file(saved["book"] / "pretrained.safetensors")
    safetensors.numpy.save_file(weights, tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match="how many attention heads.*`num_heads`"):
        load_pretrained(tmp_path / "bare.safetensors")
    loaded = load_pretrained(tmp_path / "bare.safetensors", num_heads=2)
    assert loaded.config.num_heads == 2
    assert_same_weights(loaded.model, models["book"])
    with pytest.raises(ValueError, match="`num_heads` must match the value in.*, 2. Received.*4"):
        load_pretrained(saved["native"], num_heads=4)


def test_loading_draws_no_random_weights(saved, monkeypatch):
    def drawn(*args, **kwargs):
        raise AssertionError("a weight was drawn at random")

    for name in ("TruncatedNormal", "GlorotUniform", "RandomUniform", "RandomNormal"):
        monkeypatch.setattr(getattr(keras.initializers, name), "__call__", drawn)
    load_pretrained(saved["native"])
    with pytest.raises(AssertionError, match="drawn at random"):
        BERTModel.from_bert_config(OF_FORMAT["native"])


@pytest.mark.slow
@needs_jax
def test_the_jax_backend_loads_the_same_model(tmp_path, saved, model, fresh_process):
    code = """
        import json
        import sys
        import keras
        import numpy as np
        from keras_bert_d2l import load_pretrained, save_pretrained

        assert keras.backend.backend() == "jax"
        model, tokenizer, _ = load_pretrained(sys.argv[1])
        names = "tokens", "segments", "valid_lens"
        batch = {name: np.array(json.loads(text)) for name, text in zip(names, sys.argv[4:])}
        np.savez(sys.argv[2], encoded=np.asarray(model(**batch)[0]))
        save_pretrained(model, sys.argv[3], tokenizer=tokenizer)
    """
    paths = tmp_path / "answers.npz", tmp_path / "from_jax"
    batch = [array.tolist() for array in BATCH.values()]
    fresh_process(code, saved["native"], *paths, *batch, **JAX)
    np.testing.assert_allclose(np.load(paths[0])["encoded"], model(**BATCH)[0], atol=1e-5)
    assert contents(paths[1]) == contents(saved["native"])
