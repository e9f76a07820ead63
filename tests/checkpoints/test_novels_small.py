"""The model that is part of the package has the quality that its model card states."""

import json
import lzma
import tarfile

import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL, find_checkpoint


@pytest.fixture(scope="module")
def model():
    return kb.load_pretrained(OWN_MODEL, verbose=False).model


def test_its_size_is_that_of_the_model_card(model):
    assert model.count_params() < 10_000_000
    folder = find_checkpoint(OWN_MODEL)
    assert (folder / "model.safetensors").stat().st_size < 20_000_000
    assert not model.missing_heads
    assert model.tokenizer("She")["tokens"][0, 1] == model.tokenizer.vocab["she"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{model.count_params():,} weights" in card


@pytest.mark.long
def test_it_prefers_grammatical_sentences(model, data_dir):
    with lzma.open(data_dir / "minimal_pairs/blimp.jsonl.xz", "rt", encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file][::335]  # 3 of nearly every phenomenon
    assert len(pairs) == 200
    # 70.0 % of 13,400 pairs; the standard error of 200 pairs is 3.3 %.
    assert 0.62 < kb.minimal_pairs(model, pairs).accuracy < 0.78


@pytest.mark.slow
def test_it_predicts_the_words_of_chapters_that_it_has_not_seen(model, data_dir, tmp_path):
    name = "Burnett_Garden_1911.txt"
    with tarfile.open(data_dir / "corpus/novels_2.tar.xz") as archive:
        [member] = [member for member in archive if member.name.endswith(name)]
        archive.extract(member, tmp_path, filter="data")
    # Two of its 43 chapters were among the 2 % that were held out.
    held_out = kb.pretraining_dataset(
        kb.Corpus.open(tmp_path / member.name),
        model.tokenizer,
        batch_size=16,
        max_len=128,
        split="held_out",
        held_out=0.02,
        drop_remainder=False,
        masking=kb.Masking(replace=(1, 0, 0)),
        cache_dir=tmp_path,
    )
    model.compile()
    metrics = model.evaluate(held_out, return_dict=True, verbose=0)
    assert 0.33 < metrics["mlm_accuracy"] < 0.47  # 0.408 on all held-out chapters
