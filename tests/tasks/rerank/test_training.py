"""`finetune rerank`: losses, mined negatives, evaluation, predictions and resuming."""

import dataclasses
import json

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.contract.task import task_named
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.models.losses import WeightedBinaryCrossEntropy
from keras_bert_d2l.training.finetuning.data import TaskData
from keras_bert_d2l.training.finetuning.options import FinetuningOptions
from tests.eager import running_eagerly
from tests.training.conftest import AfterSteps, press_ctrl_c

RIGHT, WRONG = "ada bob cat dog".split(), "eva fox gnu hen".split()
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", *RIGHT, *WRONG]
TOKENIZER = kb.Tokenizer(kb.Vocab(WORDS))
SMALL = {"epochs": 2, "learning_rate": 2e-2, "batch_size": 4, "verbose": 0}


@pytest.fixture(autouse=True)
def eager():
    with running_eagerly():
        yield


def make_bert():
    keras.utils.set_random_seed(0)
    return kb.BERTModel(14, 16, 24, num_heads=2, num_blks=1, dropout=0.0, max_len=16)


def make_model():
    return kb.Reranker(make_bert(), tokenizer=TOKENIZER)


def make_examples(number=24, scale=1):
    """Return queries with 2 to 4 texts, each a word, of which one is right."""
    random = np.random.default_rng(0)
    documents, labels = [], []
    for size in random.integers(1, 4, number):
        first = [random.choice(RIGHT), *random.choice(WRONG, size, replace=False)]
        documents.append([*map(str, first)])
        labels.append([scale] + [0] * size)
    queries = [f"who {WORDS[6 + n % 8]} {WORDS[6 + n // 8]}" for n in range(number)]
    return kb.RankExamples(queries=queries, documents=documents, labels=labels)


def silent(line):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        WeightedBinaryCrossEntropy(),
        pytest.param(kb.LambdaLoss(), marks=pytest.mark.long),
        pytest.param(kb.MarginMSELoss(), marks=pytest.mark.long),
    ],
)
def test_an_easy_order_is_learned(loss):
    examples, model = make_examples(), make_model()
    before = kb.evaluate(model, examples).metrics["ndcg@10"]
    rows = TaskRows.encode(examples, TOKENIZER, max_len=16).for_loss(loss)
    model.compile(kb.BERTAdamW(2e-2), loss)
    model.fit(rows.batches(len(rows)), epochs=20, verbose=0)
    found = kb.evaluate(model, examples)
    assert found.metrics["ndcg@10"] > 0.95 > before + 0.1
    assert [len(one) for one in found.predictions] == [len(one) for one in examples.documents]
    assert all(one.gold and one.predicted != one.gold for one in found.errors)


def test_more_queries_than_float32_can_number_are_refused():
    rows = TaskRows.encode(make_examples(), TOKENIZER, max_len=16)
    rows = dataclasses.replace(rows, examples=rows.examples + 2**24)
    with pytest.raises(ValueError, match="`examples` must be at most 16,777,216"):
        rows.for_loss(kb.LambdaLoss())


@pytest.mark.long
def test_a_run_with_a_listwise_loss_resumes_exactly(tmp_path):
    examples, options = make_examples(12), {**SMALL, "loss": "lambda"}
    _, metrics = kb.finetune(make_model(), examples, examples, tmp_path / "whole", **options)
    assert metrics["monitor"] == "val_ndcg@10"
    assert {"val_mrr@10", "val_map", "val_recall@10", "val_loss"} <= metrics["best"].keys()
    stop = [AfterSteps(4, press_ctrl_c)]
    with pytest.raises(KeyboardInterrupt):
        kb.finetune(make_model(), examples, examples, tmp_path / "run", callbacks=stop, **options)
    kb.finetune(make_model(), examples, examples, tmp_path / "run", resume=True, **options)
    for file in ("metrics.json", "last/variables.safetensors", "last/training_state.json"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_the_texts_of_a_query_stay_in_one_batch_if_the_loss_compares_them():
    examples = make_examples()
    sizes = [*map(len, examples.documents)]
    for loss, together in (("binary", False), ("lambda", True)):
        options = FinetuningOptions(batch_size=4, loss=loss)
        data = TaskData(make_model(), examples, examples, options, silent)
        labels = [labels.numpy() for _, labels in data.train(0)]
        assert sum(map(len, labels)) == sum(sizes)
        if together:
            of_batches = [set(batch[:, 0].astype(int)) for batch in labels]
            assert [len(queries) for queries in of_batches] == [4] * 6
            assert set.union(*of_batches) == set(range(24))
            texts = [sum(sizes[query] for query in queries) for queries in of_batches]
            assert [*map(len, labels)] == texts
        else:
            assert {batch.shape for batch in labels[:-1]} == {(4,)}


@pytest.mark.parametrize(
    ("options", "scale", "message"),
    [
        ({"loss": "cosine"}, 1, "`loss` must be one of"),
        ({}, 3, "`labels` must be from 0 to 1 for the loss 'binary'"),
        ({}, 0.6, None),
        ({"temperature": 0.1}, 1, "`temperature` must be omitted"),
    ],
)
def test_labels_and_options_must_fit_the_loss(options, scale, message):
    examples, options = make_examples(4, scale), FinetuningOptions(**options)
    if message is None:
        TaskData(make_model(), examples, examples, options, silent)
        return
    with pytest.raises(ValueError, match=message):
        TaskData(make_model(), examples, examples, options, silent)


def test_a_step_in_micro_batches_is_the_same_also_if_they_divide_the_texts_of_a_query():
    examples, loss, steps = make_examples(6), kb.LambdaLoss(), []
    batches = TaskRows.encode(examples, TOKENIZER, max_len=16).for_loss(loss).batches(6)
    for number in (1, 5):
        model = make_model()
        model.compile(keras.optimizers.SGD(0.1), loss, micro_batches=number)
        found = model.fit(batches, verbose=0).history["loss"]
        steps.append([*map(np.asarray, (found, *model.get_weights()))])
    for whole, parts in zip(*steps, strict=True):
        np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_rankings_need_wrong_texts():
    examples = kb.RankExamples(queries=["who"], documents=[["ada"]], labels=[[1]])
    with pytest.raises(ValueError, match="each ranking needs wrong texts"):
        kb.evaluate(make_model(), examples)
    with pytest.raises(ValueError, match="each ranking needs wrong texts"):
        TaskData(make_model(), examples, examples, FinetuningOptions(), silent)


@pytest.mark.long
def test_negatives_are_mined_with_an_embedder_and_scores_are_learned_from_a_file(tmp_path, capsys):
    bert = make_bert()
    kb.save_pretrained(bert, tmp_path / "bert", tokenizer=TOKENIZER)
    rows = [{"query": f"who {word}", "positive": f"{word} hen"} for word in WORDS[6:]]
    train = tmp_path / "train.jsonl"
    train.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = {"task": "rerank", "model": tmp_path / "bert", "train": train, "held_out": 0.3}
    given |= {"epochs": 1, "precision": "float32", "verbose": 2}
    with pytest.raises(ValueError, match="`embedder` must be a text embedder"):
        kb.finetune_files(tmp_path / "a", mine_negatives=True, **given)
    with pytest.raises(ValueError, match="`embedder` needs `mine_negatives`"):
        kb.finetune_files(tmp_path / "a", embedder=tmp_path / "bert", **given)
    mined = {"mine_negatives": True, "embedder": tmp_path / "bert"}
    model, _ = kb.finetune_files(tmp_path / "run", **given, **mined)
    said = capsys.readouterr().out
    # An easy negative is left out where it is the right text or the hard negative.
    for part in ("30 most similar other texts", "6 examples in 15 rows", "2 examples in 4 rows"):
        assert part in said

    # The scores of this model are the lesson of another one.
    examples, task = make_examples(8), task_named("rerank")
    options = {"batch_size": 4, "max_len": None}
    records = [*task.records(model, examples, options)]
    best = kb.rerank(model, records[0]["query"], [one["text"] for one in records[:2]])
    assert best[0].score == pytest.approx(max(one["score"] for one in records[:2]))
    assert [*records[0]] == ["id", "query", "text", "score"]
    scored = kb.read_examples("rerank", records)
    assert scored.documents == tuple(map(tuple, examples.documents))
    assert scored.labels[0][0] == records[0]["score"]
