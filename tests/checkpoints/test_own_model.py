import ml_dtypes
import numpy as np
import pytest

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    Tokenizer,
    Vocab,
    load_pretrained,
    load_tokenizer,
    quickstart,
    save_pretrained,
)
from keras_bert_d2l.checkpoints import location
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.cli import main
from keras_bert_d2l.training.options import checkpoint

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split())


@pytest.fixture
def model():
    sizes = {"num_hiddens": 8, "ffn_num_hiddens": 16, "num_heads": 2, "num_blks": 1, "max_len": 16}
    config = BERTConfig.preset("google", vocab_size=len(VOCAB), **sizes)
    model = BERTModel.from_bert_config(config)
    model.tokenizer = Tokenizer(VOCAB)
    return model


@pytest.fixture
def own_folder(model, tmp_path, monkeypatch):
    """A folder in place of the package's, in an empty working directory."""
    folder = tmp_path / "package/novels_small"
    save_pretrained(model, folder, dtype="bfloat16")
    monkeypatch.setattr(location, "_OWN_FOLDER", folder)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return folder


def test_bfloat16_halves_the_file_and_rounds_the_weights(model, tmp_path):
    sizes = []
    for dtype in ("float32", "bfloat16"):
        save_pretrained(model, tmp_path / dtype, dtype=dtype)
        sizes.append((tmp_path / dtype / "model.safetensors").stat().st_size)
    assert 0.4 < sizes[1] / sizes[0] < 0.8  # the header stays
    loaded = named_weights(load_pretrained(tmp_path / "bfloat16").model)
    for name, weight in named_weights(model).items():
        rounded = np.asarray(weight).astype(ml_dtypes.bfloat16).astype("float32")
        np.testing.assert_array_equal(loaded[name], rounded)


def test_dtypes_that_a_format_cannot_store_are_rejected(model, tmp_path):
    with pytest.raises(ValueError, match="one of 'float32', 'bfloat16'. Received: dtype='int8'"):
        save_pretrained(model, tmp_path / "a", dtype="int8")
    with pytest.raises(ValueError, match="must be \"float32\" for the format 'google'"):
        save_pretrained(model, tmp_path / "a", dtype="bfloat16", format="google")


def test_the_packages_model_is_loaded_by_name_unless_a_path_has_that_name(own_folder, model):
    loaded = load_pretrained("novels-small")
    assert loaded.config == model.bert_config
    assert load_tokenizer("novels-small").vocab == VOCAB
    assert checkpoint("init", "novels-small") == "novels-small"
    other = BERTModel.from_bert_config(BERTConfig.preset("tiny", vocab_size=9))
    save_pretrained(other, "novels-small")
    assert load_pretrained("novels-small").config == other.bert_config


def test_commands_use_the_packages_model_if_none_is_named(own_folder, capsys):
    (quickstart.RUNS / "1").mkdir(parents=True)  # makes no difference
    with pytest.raises(SystemExit) as end:
        main(["fill-mask", "the [MASK] sat", "--top-k", "1"])
    assert not end.value.code
    assert capsys.readouterr().out.startswith("the [MASK] sat\n")
    with pytest.raises(SystemExit):
        main(["similar", "the cat", "the dog"])
    assert "was not trained to compare texts" in capsys.readouterr().err
