"""data_report: measurements with known results."""

import random
import re

import numpy as np
import pytest

from keras_bert_d2l.data.pretraining.masking import Masking
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, make_examples
from keras_bert_d2l.data.report import measures, report
from keras_bert_d2l.data.report.report import data_report
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

WORDS = "play ##ing ##s the script alert & game".split()
TOKENIZER = Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(0)
    sentences = [
        "alert the script",
        "playing the game",
        "plays & games the",
        "unknown words the",
        "play",
    ]
    return [[draw.choice(sentences) for _ in range(draw.randint(2, 9))] for _ in range(40)]


@pytest.fixture(scope="module")
def store(texts, documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "store"
    return build_store(documents(texts), TOKENIZER, folder)


@pytest.fixture(scope="module")
def found(store):
    return data_report(store, TOKENIZER, max_len=32)


def test_the_report_counts_the_text(found, store, texts):
    ids = TOKENIZER.tokenize([s for document in texts for s in document]).values.numpy()
    assert ("tokens", f"{len(ids):,}") in found.groups()["Text"]
    assert found.unknown_rate == pytest.approx(np.mean(ids == 1))
    assert found.num_unused == 0
    most, times = found.most_frequent[0]
    assert times == np.bincount(ids).max() == np.sum(ids == TOKENIZER.vocab[most])
    assert dict(found.groups()["Vocabulary"])["most frequent"].startswith(f"{most} ")


def test_sentence_lengths_do_not_depend_on_the_size_of_a_block(store, texts, monkeypatch):
    monkeypatch.setattr(measures, "_AT_ONCE", 7)
    lengths = TOKENIZER.tokenize([s for document in texts for s in document]).row_lengths().numpy()
    counts = measures.sentence_lengths(store)
    np.testing.assert_array_equal(counts, np.bincount(lengths))
    expected = np.quantile(lengths, (0.5, 0.9, 1), method="inverted_cdf")
    assert measures.quantiles(counts) == tuple(expected)


def test_the_report_finds_duplicates(found, texts):
    sentences = [s for document in texts for s in document]
    assert found.lines.share == pytest.approx(1 - 5 / len(sentences))
    assert found.documents.share == pytest.approx(1 - len(set(map(tuple, texts))) / 40)
    assert [times for _, times in found.repeated_lines] == sorted(
        (sentences.count(s) for s in set(sentences)), reverse=True
    )
    assert "playing the game" in dict(found.repeated_lines)


def test_duplicates_of_a_large_corpus_are_estimated_from_a_sample(monkeypatch):
    monkeypatch.setattr(measures, "_COMPARED", 1000)
    hashes = np.random.default_rng(0).integers(0, 1 << 63, 10_000).astype(np.uint64)
    twice = np.concatenate([hashes, hashes])
    found = measures.find_copies([twice[:7000], twice[7000:]], len(twice))
    assert (found.sampled, found.share) == (20, 0.5)
    assert all(twice[place] % np.uint64(20) == 0 for place, _ in found.most_repeated)


def test_a_sentence_hash_does_not_depend_on_its_block(store, monkeypatch):
    whole = np.concatenate(list(measures.sentence_hashes(store)))
    monkeypatch.setattr(measures, "_SENTENCES_AT_ONCE", 7)
    np.testing.assert_array_equal(np.concatenate(list(measures.sentence_hashes(store))), whole)
    by_sentence = {}
    for index, one in enumerate(whole.tolist()):
        assert by_sentence.setdefault(tuple(store.sentence(index)), one) == one
    assert len(set(by_sentence.values())) == len(by_sentence) == 5


def test_the_report_uses_the_examples_of_training(found, store):
    examples = make_examples(store, ExampleOptions(max_len=32), epoch=0)
    assert found.num_examples == len(examples)
    assert found.example_lengths[2] == examples.lengths().max()
    assert found.mean_length == pytest.approx(examples.lengths().mean())
    assert found.positive_share == pytest.approx(examples.labels.mean())
    assert found.padding["packed"] <= found.padding["bucketed"] <= found.padding["padded"] < 1


def test_the_report_measures_the_masks(store):
    masking = Masking(rate=0.4, replace=(0.5, 0.5, 0.0))
    found = data_report(store, TOKENIZER, max_len=32, masking=masking)
    assert found.mask_rate == pytest.approx(0.4, abs=0.05)
    assert sum(found.replaced.values()) == pytest.approx(1)
    assert found.replaced["masked"] == pytest.approx(0.5, abs=0.1)
    assert found.replaced["kept"] < 0.1  # a random token may equal the original


@pytest.mark.parametrize(
    ("objective", "labels"), [("nsp", {"next", "not next"}), ("sop", {"in order", "swapped"})]
)
def test_the_report_shows_a_sample_as_text(store, objective, labels, monkeypatch):
    monkeypatch.setattr(measures, "_NUM_SHOWN", 30)
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
    found = data_report(text, tokenizer, max_len=16, masking=Masking(rate=0.9))
    assert tokenizer.vocab["play"] in found.masking.exclude


def test_without_a_sentence_pair_objective_there_are_no_labels(store):
    found = data_report(store, TOKENIZER, max_len=32, objective="none")
    assert found.positive_share is None
    assert all(example.startswith("[CLS] ") for example in found.examples)
    assert "labeled" not in repr(found)


def test_examples_of_a_large_store_come_from_a_sample_of_documents(store, found, monkeypatch):
    monkeypatch.setattr(report, "_SAMPLED_TOKENS", store.num_tokens // 2)
    half = data_report(store, TOKENIZER, max_len=32)
    assert half.num_examples == pytest.approx(found.num_examples, rel=0.2)  # an estimate
    assert half.num_examples != found.num_examples


def test_the_seed_determines_the_examples(store, found):
    again, other = (data_report(store, TOKENIZER, max_len=32, seed=seed) for seed in (0, 1))
    assert again.examples == found.examples != other.examples


@pytest.mark.parametrize(
    "options", [{"objective": "both"}, {"short_seq_prob": 2}, {"seed": -1}, {"max_len": 3}]
)
def test_the_error_for_an_invalid_argument_names_the_argument(store, options):
    with pytest.raises(ValueError, match=f"`{next(iter(options))}`"):
        data_report(store, TOKENIZER, **options)


def test_a_text_without_pairs_is_rejected(documents, tmp_path):
    single = build_store(documents([["the game"], ["play"]]), TOKENIZER, tmp_path / "single")
    with pytest.raises(ValueError, match="no example of two sentences"):
        data_report(single, TOKENIZER, objective="sop")
