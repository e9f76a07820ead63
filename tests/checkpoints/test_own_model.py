"""The model that is part of the package: where it is found, and the quality on its model card."""

import json
import lzma

import ml_dtypes
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l import quickstart
from keras_bert_d2l.checkpoints import location
from keras_bert_d2l.checkpoints.location import OWN_MODEL, find_checkpoint
from keras_bert_d2l.cli import main
from keras_bert_d2l.training.options import checkpoint
from tests.checkpoints.small import VOCAB, values


@pytest.fixture
def own_folder(models, tmp_path, monkeypatch):
    """A folder in place of the package's, in an empty working directory."""
    folder = tmp_path / "package/novels_small"
    kb.save_pretrained(
        models["huggingface"], folder, dtype="bfloat16", tokenizer=kb.Tokenizer(VOCAB)
    )
    monkeypatch.setattr(location, "_OWN_FOLDER", folder)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return folder


def test_it_is_loaded_by_name_unless_a_path_has_that_name(own_folder, models):
    loaded = kb.load_pretrained(OWN_MODEL)
    for name, value in values(models["huggingface"]).items():
        rounded = value.astype(ml_dtypes.bfloat16).astype("float32")
        np.testing.assert_array_equal(values(loaded.model)[name], rounded)
    assert {weight.dtype for weight in kb.inspect_checkpoint(OWN_MODEL)[1]} == {"BF16"}
    assert kb.load_tokenizer(OWN_MODEL).vocab == VOCAB
    assert checkpoint("init", OWN_MODEL) == OWN_MODEL
    kb.save_pretrained(models["native"], OWN_MODEL)
    assert kb.load_pretrained(OWN_MODEL).config == models["native"].bert_config


def test_dtypes_that_a_format_cannot_store_are_rejected(models, tmp_path):
    with pytest.raises(ValueError, match="one of 'float32', 'bfloat16'. Received: dtype='int8'"):
        kb.save_pretrained(models["huggingface"], tmp_path / "a", dtype="int8")
    with pytest.raises(ValueError, match="must be \"float32\" for the format 'book'"):
        kb.save_pretrained(models["huggingface"], tmp_path / "a", dtype="bfloat16", format="book")


def test_commands_use_it_if_no_model_is_named(own_folder, capsys):
    (quickstart.RUNS / "1").mkdir(parents=True)  # makes no difference
    with pytest.raises(SystemExit) as end:
        main(["fill-mask", "a [MASK] b", "--top-k", "1"])
    assert not end.value.code
    assert capsys.readouterr().out.startswith("a [MASK] b\n")
    with pytest.raises(SystemExit):
        main(["similar", "a", "b"])
    assert "was not trained to compare texts" in capsys.readouterr().err


@pytest.fixture(scope="module")
def novels_small():
    return kb.load_pretrained(OWN_MODEL, verbose=False).model


def test_it_has_the_size_of_the_model_card_and_knows_a_sentence(novels_small):
    assert novels_small.count_params() < 10_000_000
    folder = find_checkpoint(OWN_MODEL)
    assert (folder / "model.safetensors").stat().st_size < 20_000_000
    assert not novels_small.missing_heads
    assert novels_small.tokenizer("She")["tokens"][0, 1] == novels_small.tokenizer.vocab["she"]
    [[best]] = kb.fill_mask(novels_small, "She shut the [MASK] behind her.", top_k=1)
    assert best.token == "door"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{novels_small.count_params():,} weights" in card


@pytest.mark.long
def test_it_prefers_grammatical_sentences(novels_small, data_dir):
    with lzma.open(data_dir / "minimal_pairs/blimp.jsonl.xz", "rt", encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file][::335]  # 3 of nearly every phenomenon
    assert len(pairs) == 200
    # 70.0 % of 13,400 pairs; the standard error of 200 pairs is 3.3 %.
    assert 0.62 < kb.minimal_pairs(novels_small, pairs).accuracy < 0.78
