"""data_report: measurements with known results."""

import random
import re

import numpy as np
import pytest

from keras_bert_d2l.data import report
from keras_bert_d2l.data.pretraining.masking import Masking
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, make_examples
from keras_bert_d2l.data.report import data_report
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

WORDS = "play ##ing ##s the script alert & game".split()
TOKENIZER = Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(0)
    sentences = ["alert the script", "playing the game", "plays & games the", "unknown the", "play"]
    return [[draw.choice(sentences) for _ in range(draw.randint(2, 9))] for _ in range(40)]


@pytest.fixture(scope="module")
def store(texts, documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "store"
    return build_store(documents(texts), TOKENIZER, folder)


@pytest.fixture(scope="module")
def found(store):
    return data_report(store, TOKENIZER, max_len=32)


@pytest.mark.parametrize("at_once", [7, 1 << 22])
def test_the_report_counts_the_text(store, texts, monkeypatch, at_once):
    monkeypatch.setattr(report, "_AT_ONCE", at_once)
    found = data_report(store, TOKENIZER, max_len=32)
    rows = TOKENIZER.tokenize([s for document in texts for s in document])
    ids = rows.flat_values.numpy()
    assert ("tokens", f"{len(ids):,}") in found.groups()["Text"]
    assert found.unknown_rate == pytest.approx(np.mean(ids == 1))
    assert found.num_unused == 0


def test_the_report_uses_the_examples_of_training(found, store):
    examples = make_examples(store, ExampleOptions(max_len=32), epoch=0)
    assert found.num_examples == len(examples)
    assert found.mean_length == pytest.approx(examples.lengths().mean())


@pytest.mark.parametrize(
    ("objective", "labels"), [("nsp", {"next", "not next"}), ("sop", {"in order", "swapped"})]
)
def test_the_report_shows_a_sample_as_text(store, objective, labels, monkeypatch):
    monkeypatch.setattr(report, "_NUM_SHOWN", 30)
    found = data_report(store, TOKENIZER, max_len=32, objective=objective)
    assert len(found.examples) == 30
    assert {example.partition(": [CLS]")[0] for example in found.examples} == labels
    text = "\n".join(found.examples)
    assert text.count("[MASK](") == text.count("[MASK]") > 0
    assert re.search(r"\S\[MASK\]\((ing|s)\)", text)  # without a space before the suffix
    assert re.search(r" (\w+)\(\1\)", text)  # kept
    restored = re.sub(r"(\[MASK\]|(?<= )\w+)\((\w+)\)", r"\2", text)
    assert restored.count("playing the game") > text.count("playing the game")


def test_special_tokens_of_the_user_are_not_masked(tmp_path):
    tokenizer = Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]), special_tokens=["play"])
    documents = [["play the script", "alert play"]] * 4
    text = build_store(Corpus.open(documents), tokenizer, tmp_path / "store")
    masking = Masking(rate=0.9, replace=(1, 0, 0))
    shown = "\n".join(data_report(text, tokenizer, max_len=16, masking=masking).examples)
    assert "[MASK](the)" in shown
    assert "(play)" not in shown


def test_without_a_sentence_pair_objective_there_are_no_labels(store):
    found = data_report(store, TOKENIZER, max_len=32, objective="none")
    assert all(example.startswith("[CLS] ") for example in found.examples)


def test_examples_of_a_large_store_come_from_a_sample_of_documents(store, found, monkeypatch):
    monkeypatch.setattr(report, "_SAMPLED_TOKENS", store.num_tokens // 2)
    half = data_report(store, TOKENIZER, max_len=32)
    assert half.num_examples == pytest.approx(found.num_examples, rel=0.2)  # an estimate
    assert half.num_examples != found.num_examples


def test_the_seed_determines_the_examples(store, found):
    again, other = (data_report(store, TOKENIZER, max_len=32, seed=seed) for seed in (0, 1))
    assert again.examples == found.examples != other.examples


def test_a_text_without_pairs_is_rejected(documents, tmp_path):
    single = build_store(documents([["the game"], ["play"]]), TOKENIZER, tmp_path / "single")
    with pytest.raises(ValueError, match="no example of two sentences"):
        data_report(single, TOKENIZER, objective="sop")
