"""What a pretraining run from scratch starts from."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_bert_d2l.checkpoints.formats.huggingface.config import config_to_dict
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.start import compiled_model, from_checkpoint, from_scratch


def test_the_size_of_a_learned_vocabulary_is_reported(text):
    corpus = Corpus.open(text, layout="lines")
    said = []
    for size in (40, 1000):
        options = PretrainingOptions(corpus=text, vocab_size=size, max_len=24)
        start = from_scratch(options, corpus, say=said.append)
        learned = len(start.tokenizer.vocab)
        reason = "" if size == 40 else ", because the text has no more repeated pieces"
        assert said[-2:] == [
            f"Vocabulary: learning {size:,} tokens from the text",
            f"Vocabulary: {learned:,} tokens{reason}",
        ]


@pytest.mark.parametrize("preset", ["google", "codertimo"])
def test_dropout_replaces_all_rates_of_the_architecture(text, preset):
    options = PretrainingOptions(
        corpus=text, vocab_size=40, max_len=24, dropout=0, bert_config="of_the_object.json"
    )
    given = BERTConfig.preset(preset)
    corpus = Corpus.open(text, layout="lines")
    config = from_scratch(options, corpus, say=lambda _: None, bert_config=given).config
    assert config.activation == given.activation
    assert {
        config.dropout,
        config.attention_dropout or config.dropout,
        config.embedding_dropout,
        config.ffn_dropout,
        config.block_dropout,
    } == {0.0}


def test_the_architecture_may_come_from_the_config_of_a_checkpoint(text, tmp_path):
    given = BERTConfig(50, 8, 16, num_heads=2, num_blks=1, dropout=0.0, max_len=24)
    words = "[PAD] [UNK] [CLS] [SEP] [MASK]".split() + [f"w{n}" for n in range(45)]
    tokenizer = Tokenizer(Vocab(words))
    classifier = SequenceClassifier(BERTModel.from_bert_config(given), ["bad", "good"])
    save_pretrained(classifier, tmp_path / "model", tokenizer=tokenizer)
    given.to_json(tmp_path / "config.json")
    corpus = Corpus.open(text, layout="lines")
    for file in (tmp_path / "model" / "config.json", tmp_path / "config.json"):
        options = PretrainingOptions(corpus=text, vocab_size=40, max_len=24, bert_config=str(file))
        start = from_scratch(options, corpus, say=lambda _: None)
        assert start.config == dataclasses.replace(given, vocab_size=len(start.tokenizer.vocab))
        assert start.weights is None


def test_without_a_next_sentence_head_there_is_no_pooler_to_train(text):
    options = PretrainingOptions(
        corpus=text, vocab_size=40, max_len=24, bert_config="of_the_object.json"
    )
    given = BERTConfig.preset("tiny", next_sentence=False)
    assert given.pooler
    corpus = Corpus.open(text, layout="lines")
    config = from_scratch(options, corpus, say=lambda _: None, bert_config=given).config
    assert not config.pooler


def test_the_attention_may_have_a_dropout_rate_of_its_own(text):
    options = PretrainingOptions(corpus=text, vocab_size=40, max_len=24, attention_dropout=0)
    corpus = Corpus.open(text, layout="lines")
    config = from_scratch(options, corpus, say=lambda _: None).config
    assert (config.attention_dropout, config.dropout) == (0.0, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("init", "expected"), [("", "best"), ("last", "last")])
def test_init_starts_from_the_best_checkpoint_of_a_run_or_from_a_checkpoint(
    finished, text, init, expected
):
    options = PretrainingOptions(corpus=text, init=finished.run / init, max_len=24)
    start = from_checkpoint(options, options.init, verbose=False)
    assert start.tokenizer.vocab == finished.result.tokenizer.vocab
    assert start.config == finished.result.model.bert_config
    weights = load_pretrained(finished.run / expected).model.get_weights()
    for ours, theirs in zip(start.weights, weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_positions_start_after_the_padding_token_of_the_vocabulary(text):
    options = PretrainingOptions(corpus=text, vocab_size=40, max_len=24, preset="roberta-base")
    start = from_scratch(options, Corpus.open(text, layout="lines"), say=lambda _: None)
    assert (start.config.pad_id, start.config.first_position_id) == (0, 1)
    assert config_to_dict(start.config, vocab=start.tokenizer.vocab)["pad_token_id"] == 0


def test_the_seed_alone_decides_the_initial_weights(text):
    given = {"corpus": text, "vocab_size": 40, "max_len": 24, "preset": "tiny"}
    records = [PretrainingOptions(**given, seed=seed, precision="float32") for seed in (0, 0, 1)]
    start = from_scratch(records[0], Corpus.open(text, layout="lines"), say=lambda _: None)
    found = []
    for number, options in enumerate(records):
        keras.utils.set_random_seed(number)
        found.append(compiled_model(start, options).encoder.token_embedding.embeddings.numpy())
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
