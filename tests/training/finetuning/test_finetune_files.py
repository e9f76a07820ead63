"""Fine-tuning on files: the model that a run starts from."""

import dataclasses

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.training.finetuning.finetune import load_model
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from tests.training.conftest import TOPICS, VOCAB

PLAIN = kb.BERTConfig(len(VOCAB), 8, 12, 2, 1, 0.0, 8, pooler=False, next_sentence=False)
EXAMPLES = kb.TextExamples(texts=["a", "b"], labels=["bad", "good"])


@pytest.fixture
def start(tmp_path):
    """Return a function that saves a model and loads it with the options of a run."""

    def start(model, **options):
        kb.save_pretrained(model, tmp_path / "start")
        given = {"task": "classify", "model": tmp_path / "start", "train": tmp_path / "a.tsv"}
        said = []
        record = TaskRunOptions.from_dict({**given, "precision": "float32", **options})
        return load_model(record, EXAMPLES, EXAMPLES, said.append), said

    return start


def make_bert():
    bert = kb.BERTModel.from_bert_config(PLAIN)
    bert.tokenizer = kb.Tokenizer(VOCAB)
    return bert


@pytest.mark.parametrize("labels", [["a", "b"], ["bad", "fine"], ["bad", "good", "fine"]])
def test_a_classifier_gets_a_new_head_if_the_data_has_other_labels(labels, start):
    old = kb.SequenceClassifier(make_bert(), labels)
    model, said = start(old)
    is_new = "good" not in labels
    assert [line.partition(":")[0] for line in said] == ["New head"] * is_new
    assert model.labels == (("bad", "good") if is_new else tuple(labels))
    np.testing.assert_array_equal(*(one.encoder.get_weights()[0] for one in (model, old)))


def test_a_bert_gets_the_dropout_of_the_run_and_a_head(start):
    bert = make_bert()
    model, said = start(bert, dropout=0.2)
    assert said == ["New head: SequenceClassifier (labels: bad, good; pooling: mean)"]
    assert model.bert_config == dataclasses.replace(PLAIN, dropout=0.2, embedding_dropout=0.2)
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
    pooled = kb.BERTModel.from_bert_config(dataclasses.replace(PLAIN, pooler=True))
    pooled.tokenizer = kb.Tokenizer(VOCAB)
    assert start(pooled)[0].pooling == "cls"
    trained, _ = start(pooled, pooling="mean")
    assert start(trained)[0].pooling == "mean"
    with pytest.raises(ValueError, match="`pooling`.* must stay 'mean'.*pooling='cls'"):
        start(trained, pooling="cls")
    with pytest.raises(ValueError, match="`pooling` must be omitted for the task 'tag'"):
        start(pooled, task="tag", pooling="mean")


def test_dropout_is_rejected_for_embeddings_and_fine_tuned_models(start):
    pooled = kb.BERTModel.from_bert_config(dataclasses.replace(PLAIN, pooler=True))
    trained = kb.SequenceClassifier(pooled, ["bad", "good"], tokenizer=kb.Tokenizer(VOCAB))
    with pytest.raises(ValueError, match="`dropout` of the fine-tuned Seq.*dropout=0.1"):
        start(trained, dropout=0.1)
    with pytest.raises(ValueError, match="omitted for the task 'embed'"):
        start(make_bert(), task="embed", dropout=0.1)


def test_taggers_train_in_small_batches_by_default():
    given = {"model": "bert", "train": "train.tsv"}
    for task, size in (("tag", 8), ("classify", 32)):
        options = TaskRunOptions.from_dict({"task": task, **given})
        assert options.batch_size == size
        options = TaskRunOptions.from_dict({"task": task, "batch_size": 5, **given})
        assert options.batch_size == 5
    with pytest.raises(ValueError, match="`batch_size`"):
        TaskRunOptions.from_dict({"task": "tag", "batch_size": 0, **given})


@pytest.mark.long
def test_an_embedder_learns_from_pairs_with_mined_negatives(tmp_path, capsys):
    kb.save_pretrained(make_bert(), tmp_path / "bert")
    lines = [f"{topic[0]} a7 {topic[1]}\t{topic[2]} a7" for topic in TOPICS]
    (tmp_path / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *lines]) + "\n")
    data = {"model": tmp_path / "bert"} | dict.fromkeys(("train", "dev"), tmp_path / "pairs.tsv")
    options = {"epochs": 20, "batch_size": 3, "learning_rate": 1e-2, "verbose": 2}
    run = tmp_path / "run"
    _, metrics = kb.finetune_files(run, task="embed", mine_negatives=True, **data, **options)
    assert "Mining negatives" in capsys.readouterr().out
    assert (metrics["monitor"], metrics["best"]["val_recall@1"]) == ("val_recall@1", 1.0)


def test_embeddings_are_trained_on_one_device():
    with pytest.raises(ValueError, match="`devices` must be omitted for the task 'embed'"):
        TaskRunOptions(task="embed", model="a", train="b", devices="data")
