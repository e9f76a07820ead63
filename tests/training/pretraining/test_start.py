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
from keras_bert_d2l.training.pretraining.pretrain import (
    compiled_model,
    from_checkpoint,
    from_scratch,
)


@pytest.fixture
def start(text):
    """Return a function that returns the start of a run, and what it said."""

    def start(given=None, **options):
        options = {"vocab_size": 40, "max_len": 24, **options}
        if given is not None:
            options["bert_config"] = "of_the_object.json"
        said, corpus = [], Corpus.open(text, layout="lines")
        record = PretrainingOptions(corpus=text, **options)
        return from_scratch(record, corpus, say=said.append, bert_config=given), said

    return start


def test_the_size_of_a_learned_vocabulary_is_reported(start):
    for size in (40, 1000):
        found, said = start(vocab_size=size)
        reason = "" if size == 40 else ", because the text has no more repeated pieces"
        assert said[-2:] == [
            f"Vocabulary: learning {size:,} tokens from the text",
            f"Vocabulary: {len(found.tokenizer.vocab):,} tokens{reason}",
        ]


@pytest.mark.parametrize("preset", ["google", "codertimo"])
def test_dropout_replaces_all_rates_of_the_architecture(start, preset):
    given = BERTConfig.preset(preset)
    config = start(given, dropout=0)[0].config
    assert config.activation == given.activation
    assert {
        config.dropout,
        config.attention_dropout or config.dropout,
        config.embedding_dropout,
        config.ffn_dropout,
        config.block_dropout,
    } == {0.0}


def test_the_architecture_may_come_from_the_config_of_a_checkpoint(start, tmp_path):
    given = BERTConfig(50, 8, 16, num_heads=2, num_blks=1, dropout=0.0, max_len=24)
    words = "[PAD] [UNK] [CLS] [SEP] [MASK]".split() + [f"w{n}" for n in range(45)]
    classifier = SequenceClassifier(BERTModel.from_bert_config(given), ["bad", "good"])
    save_pretrained(classifier, tmp_path / "model", tokenizer=Tokenizer(Vocab(words)))
    given.to_json(tmp_path / "config.json")
    for file in (tmp_path / "model" / "config.json", tmp_path / "config.json"):
        found, _ = start(bert_config=str(file))
        assert found.config == dataclasses.replace(given, vocab_size=len(found.tokenizer.vocab))
        assert found.weights is None


def test_without_a_next_sentence_head_there_is_no_pooler_to_train(start):
    given = BERTConfig.preset("tiny", next_sentence=False)
    assert given.pooler
    assert not start(given)[0].config.pooler


def test_the_attention_may_have_a_dropout_rate_of_its_own(start):
    config = start(attention_dropout=0)[0].config
    assert (config.attention_dropout, config.dropout) == (0.0, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("init", "expected"), [("", "best"), ("last", "last")])
def test_init_starts_from_the_best_checkpoint_of_a_run_or_from_a_checkpoint(
    finished, text, init, expected
):
    options = PretrainingOptions(corpus=text, init=finished.run / init, max_len=24)
    found = from_checkpoint(options, options.init, verbose=False)
    assert found.tokenizer.vocab == finished.result.tokenizer.vocab
    assert found.config == finished.result.model.bert_config
    weights = load_pretrained(finished.run / expected).model.get_weights()
    for ours, theirs in zip(found.weights, weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_positions_start_after_the_padding_token_of_the_vocabulary(start):
    found, _ = start(preset="roberta-base")
    assert (found.config.pad_id, found.config.first_position_id) == (0, 1)
    assert config_to_dict(found.config, vocab=found.tokenizer.vocab)["pad_token_id"] == 0


@pytest.mark.long
def test_the_seed_alone_decides_the_initial_weights(start, text):
    made, found = start(preset="tiny")[0], []
    for number, seed in enumerate((0, 0, 1)):
        keras.utils.set_random_seed(number)
        options = PretrainingOptions(corpus=text, seed=seed, precision="float32")
        found.append(compiled_model(made, options).encoder.token_embedding.embeddings.numpy())
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
