"""The model that a fine-tuning run starts from."""

import dataclasses

import numpy as np
import pytest

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    SequenceClassifier,
    TextExamples,
    Tokenizer,
    Vocab,
    save_pretrained,
)
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.training.finetuning.start import load_model

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a b".split())
CONFIG = BERTConfig(len(VOCAB), 8, 12, 2, 1, 0.0, 8, pooler=False, next_sentence=False)
EXAMPLES = TextExamples(texts=["a", "b"], labels=["bad", "good"])


@pytest.fixture
def start(tmp_path):
    """Return a function that saves a model and loads it with the options of a run."""

    def start(model, **options):
        save_pretrained(model, tmp_path / "start")
        given = {"task": "classify", "model": tmp_path / "start", "train": tmp_path / "a.tsv"}
        said = []
        record = TaskRunOptions.from_dict({**given, "precision": "float32", **options})
        return load_model(record, EXAMPLES, EXAMPLES, said.append), said

    return start


def make_bert():
    bert = BERTModel.from_bert_config(CONFIG)
    bert.tokenizer = Tokenizer(VOCAB)
    return bert


def test_a_bert_gets_the_dropout_of_the_run_and_a_head(start):
    bert = make_bert()
    model, said = start(bert, dropout=0.2)
    assert said == ["New head: SequenceClassifier (labels: bad, good; pooling: mean)"]
    assert model.bert_config == dataclasses.replace(CONFIG, dropout=0.2, embedding_dropout=0.2)
    assert model.encoder.blks[0].addnorm1.dropout.rate == 0.2
    assert model.encoder.embedding_dropout.rate == 0.2
    kept = {name: x for name, x in named_weights(bert).items() if name.startswith("encoder/")}
    assert len(kept) > 10
    for name, weight in kept.items():
        np.testing.assert_array_equal(named_weights(model)[name], weight)


def test_without_the_option_the_dropout_is_that_of_the_checkpoint(start):
    model, _ = start(make_bert())
    assert (model.bert_config.dropout, model.bert_config.embedding_dropout) == (0.0, 0.0)


def test_the_pooling_is_that_of_the_run_or_of_the_fine_tuned_model(start):
    pooled = BERTModel.from_bert_config(dataclasses.replace(CONFIG, pooler=True))
    pooled.tokenizer = Tokenizer(VOCAB)
    assert start(pooled)[0].pooling == "cls"
    trained, _ = start(pooled, pooling="mean")
    assert start(trained)[0].pooling == "mean"
    with pytest.raises(ValueError, match="match the checkpoint, 'mean'.*pooling='cls'"):
        start(trained, pooling="cls")
    with pytest.raises(ValueError, match="`pooling` is for the tasks .*task='tag'"):
        start(pooled, task="tag", pooling="mean")


def test_dropout_is_rejected_for_embeddings_and_fine_tuned_models(start):
    pooled = BERTModel.from_bert_config(dataclasses.replace(CONFIG, pooler=True))
    trained = SequenceClassifier(pooled, ["bad", "good"], tokenizer=Tokenizer(VOCAB))
    with pytest.raises(ValueError, match="BERT without a task.*0.1 and a SequenceClassifier"):
        start(trained, dropout=0.1)
    with pytest.raises(ValueError, match="not for the task 'embed'"):
        start(make_bert(), task="embed", dropout=0.1)
