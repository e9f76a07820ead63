"""The data of a fine-tuning run, and what the run records about its predictions."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l import BERTConfig, BERTModel, Tokenizer, Vocab
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import (
    Evaluation,
    Mistake,
    evaluate,
)
from keras_bert_d2l.models.embedding_losses import RankingLoss
from keras_bert_d2l.models.pair_losses import CosineLoss
from keras_bert_d2l.tasks.answer.examples import Answer, QuestionExamples
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.examples import PairExamples
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.training.finetuning.data import TaskData, divided, record_of
from keras_bert_d2l.training.finetuning.options import FinetuningOptions

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a b c".split())
BERT = BERTConfig(len(VOCAB), 8, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=8)
TEXTS = TextExamples(texts=["a", "b"], labels=["x", "y"], source="f.tsv")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(VOCAB)


def make_model(kind=SequenceClassifier, tokenizer=None, **options):
    return kind(BERTModel.from_bert_config(BERT), tokenizer=tokenizer, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("long_texts", "longest"), [("cut", 8), ("mean", 14)])
def test_rows_are_as_long_as_the_windows_of_a_text_and_pairs_as_one_window(
    tokenizer, long_texts, longest
):
    model = make_model(SequenceClassifier, tokenizer, labels=["x", "y"], long_texts=long_texts)
    long = " ".join("abc" * 4)
    single = TextExamples(texts=[long, "b"], labels=["x", "y"])
    pairs = TextExamples(texts=[long, "b"], texts_b=["a", "b"], labels=["x", "y"])
    for examples, expected in ((single, longest), (pairs, 8)):
        data = TaskData(
            model, examples, examples, FinetuningOptions(batch_size=2), lambda line: None
        )
        [(features, _)] = data.train(0)
        assert features["tokens"].shape == (2, expected)


def test_unusable_data_is_reported_before_tokenization(tokenizer, monkeypatch):
    monkeypatch.setattr("keras_bert_d2l.training.finetuning.data.TaskRows", None)
    options, model = FinetuningOptions(), make_model(labels=["x", "y"])
    with pytest.raises(ValueError, match="need a tokenizer"):
        TaskData(model, TEXTS, TEXTS, options, print)
    model.tokenizer = tokenizer
    other = TextExamples(texts=["a"], labels=["z"], source="dev.tsv")
    with pytest.raises(ValueError, match=r"labels are 'x', 'y'. Received: 'dev\.tsv' has 'z'"):
        TaskData(model, TEXTS, other, options, print)
    several = make_model(tokenizer=tokenizer, labels=["x", "y"], multi_label=True)
    with pytest.raises(ValueError, match="any number of labels per text. Received: examples with"):
        TaskData(several, TEXTS, TEXTS, options, print)
    pairs = TextExamples(texts=["a"], texts_b=["b"], labels=["x"], source="dev.tsv")
    with pytest.raises(ValueError, match=r"dev\.tsv must contain single texts.*ived: pairs of"):
        TaskData(model, TEXTS, pairs, options, print)
    with pytest.raises(ValueError, match=r"f\.tsv must contain pairs of texts.*ived: single"):
        TaskData(model, pairs, TEXTS, options, print)
    with pytest.raises(ValueError, match="`max_len` must be from 1 to 8"):
        TaskData(model, TEXTS, TEXTS, FinetuningOptions(max_len=9), print)


@pytest.mark.slow
def test_data_in_memory_are_read_for_the_task_of_the_model(tokenizer):
    model = make_model(SequenceClassifier, tokenizer, labels=["x", "y"], multi_label=True)
    columns = {"text": ["a", "b", None], "labels": [["x"], ["x", "y"], []]}
    said = []
    data = TaskData(model, columns, columns, FinetuningOptions(), said.append)
    assert data.facts["data"]["train"]["dropped"] == {"empty text": 1}
    assert said[0].startswith("Training data: 2 examples from the dict")
    assert "micro_f1" in evaluate(model, columns).metrics
    with pytest.raises(ValueError, match="must be a path, a DataFrame"):
        TaskData(model, 3, 3, FinetuningOptions(), said.append)


@pytest.mark.slow
def test_the_data_is_reported_and_shuffled_for_each_epoch(tokenizer):
    texts = ["a", "a b c a b c a b c", "b"]
    train = TextExamples(
        texts=texts,
        labels=["x", "y", "x"],
        source="train.tsv",
        sha256="0f",
        dropped={"empty text": 2},
        first_dropped={"empty text": "line 7"},
    )
    said = []
    model = make_model(labels=["x", "y"], tokenizer=tokenizer)
    data = TaskData(model, train, TEXTS, FinetuningOptions(batch_size=1), said.append)
    assert said == [
        "Training data: 3 examples from train.tsv",
        "  1 (33.3%) truncated to 8 tokens",
        "  2 dropped: empty text (first: line 7)",
        "Development data: 2 examples from f.tsv",
    ]
    assert data.facts["data"]["train"] == {
        "source": "train.tsv",
        "sha256": "0f",
        "examples": 3,
        "labels": {"x": 2, "y": 1},
        "dropped": {"empty text": 2},
        "rows": 3,
        "truncated": 1,
    }
    orders = [
        [features["valid_lens"].tolist() for features, _ in data.train(epoch).as_numpy_iterator()]
        for epoch in (0, 0, 1, 2, 3)
    ]
    assert orders[0] == orders[1]
    assert any(order != orders[0] for order in orders)
    assert len(set(data.fingerprint)) == 2


@pytest.mark.slow
def test_a_question_too_long_for_a_row_is_reported_and_skipped(tokenizer):
    questions = QuestionExamples(
        questions=["a", "a b c a b c"],
        contexts=["b c", "b c"],
        answers=[[Answer("c", 2)], [Answer("b", 0)]],
        source="q.json",
    )
    said = []
    model = make_model(QuestionAnswerer, tokenizer)
    data = TaskData(model, questions, questions, FinetuningOptions(), said.append)
    (reason,) = data.facts["data"]["dev"]["dropped"]
    assert said[1] == f"  1 skipped: {reason}"
    assert data.score(model).metrics == evaluate(model, questions, max_len=8).metrics
    assert data.score(model).metrics["unread_questions"] == 1


@pytest.mark.slow
def test_the_loss_of_pairs_depends_on_their_scores(tokenizer):
    model, silent = make_model(TextEmbedder, tokenizer), [].append
    pairs = PairExamples(texts=["a", "b", "c"], texts_b=["b", "c", "a"])
    scored = dataclasses.replace(pairs, labels=(0.0, 3.0, 5.0))
    data = TaskData(model, pairs, scored, FinetuningOptions(temperature=0.1), silent)
    assert data.loss.get_config() == RankingLoss(0.1).get_config()
    assert data.score(model).metrics.keys() == {"spearman", "pearson"}
    [(features, groups)] = data.dev  # the development loss needs similar texts
    assert (len(features["tokens"]), groups.numpy().tolist()) == (4, [0, 0, 0, 0])  # both have c
    assert data.facts["data"]["dev"]["examples"] == 3
    low = dataclasses.replace(pairs, labels=(0.1, 0.2, 0.3), source="dev.tsv")
    with pytest.raises(ValueError, match=r"dev\.tsv must contain similar.* scores from 0.1 to 0.3"):
        TaskData(model, pairs, low, FinetuningOptions(), silent)
    data = TaskData(model, scored, low, FinetuningOptions(), silent)
    assert isinstance(data.loss, CosineLoss)
    [(_, cosines)] = data.dev  # divided by 5, the highest training score
    np.testing.assert_allclose(cosines[::2], [0.02, 0.04, 0.06], rtol=1e-6)
    with pytest.raises(ValueError, match="`temperature` must be omitted for the loss 'cosine'"):
        TaskData(model, scored, scored, FinetuningOptions(temperature=0.1), silent)
    with pytest.raises(ValueError, match="Received: pairs of texts without scores"):
        TaskData(model, scored, pairs, FinetuningOptions(), silent)
    long = make_model(TextEmbedder, tokenizer, long_texts="mean")
    assert TaskData(long, pairs, pairs, FinetuningOptions(), silent).facts["max_len"] > 8
    model = make_model(labels=["x", "y"])
    model.tokenizer = tokenizer
    with pytest.raises(ValueError, match="`temperature` must be omitted for the task"):
        TaskData(model, TEXTS, TEXTS, FinetuningOptions(temperature=0.1), silent)


TRIPLETS = PairExamples(texts=["a", "b", "c"], texts_b=["b", "c", "a"], negatives=["c", "a", "b"])


@pytest.mark.parametrize(
    ("options", "labels", "expected"),
    [
        ({}, None, "RankingLoss"),
        ({"loss": "triplet"}, None, "TripletLoss"),
        ({"matryoshka": "8,4"}, None, "MatryoshkaLoss"),
        ({"loss": "cosent", "temperature": 0.1}, (0.0, 3.0, 5.0), "CoSENTLoss"),
        ({"loss": "cosent", "matryoshka": "8, 4"}, (0.0, 3.0, 5.0), "MatryoshkaLoss"),
    ],
)
def test_the_option_chooses_among_the_losses_that_fit(tokenizer, options, labels, expected):
    model = make_model(TextEmbedder, tokenizer)
    given = {"labels": labels, "negatives": None} if labels else {}
    examples = dataclasses.replace(TRIPLETS, **given)
    data = TaskData(model, examples, examples, FinetuningOptions(**options), [].append)
    assert type(data.loss).__name__ == expected
    config = data.loss.get_config()
    assert config.get("temperature", 0.1) == options.get(
        "temperature", config.get("temperature", 0.1)
    )
    assert config.get("dims", [8, 4]) == [8, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "cosent"}, "`loss` must be one of 'ranking', 'triplet' for triplets, .*'cosent'"),
        ({"loss": "rank"}, "`loss` must be one of None, 'ranking', .*Did you mean 'ranking'"),
        ({"loss": "triplet", "temperature": 0.1}, "`temperature` .* for the loss 'triplet'"),
        ({"matryoshka": "16,8"}, "`matryoshka` must be widths from 1 to 8, .*: matryoshka='16,8'"),
        ({"matryoshka": "8,x"}, "`matryoshka` must be widths .*separated by commas.*'8,x'"),
    ],
)
def test_a_loss_that_does_not_fit_is_rejected_by_name(tokenizer, options, message):
    model = make_model(TextEmbedder, tokenizer)
    with pytest.raises(ValueError, match=message):
        TaskData(model, TRIPLETS, TRIPLETS, FinetuningOptions(**options), [].append)


def test_a_student_learns_the_margins_of_a_larger_model(tokenizer):
    model, margins = make_model(TextEmbedder, tokenizer), (0.5, -1.0, 2.0)
    examples = dataclasses.replace(TRIPLETS, labels=margins)
    for widths in (None, "8,4"):
        options = FinetuningOptions(matryoshka=widths)
        data = TaskData(model, examples, examples, options, [].append)
        [(features, scores)] = data.dev
        np.testing.assert_array_equal(scores[:, 0], np.repeat([0, 1, 2], 3))
        np.testing.assert_allclose(scores[1::3, 1] - scores[2::3, 1], margins)
        model.compile("sgd", data.loss, run_eagerly=True)
        vectors = keras.ops.normalize(model(features)[:, : 4 if widths else 8]).numpy()
        found = np.sum(vectors[::3] * (vectors[1::3] - vectors[2::3]), axis=1)
        expected = np.mean((found - margins) ** 2)
        if widths:
            expected += TaskData(model, examples, examples, FinetuningOptions(), print).loss(
                scores, model(features)
            )
        assert model.evaluate(data.dev, verbose=0) == pytest.approx(float(expected), rel=1e-5)
    assert "recall@1" in data.score(model).metrics


TAGS = [kb.Tag("Ada", "B-PER", 0.9, None, None), kb.Tag("left", "O", 0.8, None, None)]
CASES = {
    "classify": (
        kb.TextExamples(texts=["a film"], labels=["good"]),
        kb.Classification("bad", 0.7, {"bad": 0.7, "good": 0.3}, ("bad",)),
        ("a film", "good", "bad", 0.7, False),
    ),
    "several labels": (
        kb.TextExamples(texts=["a film"], labels=[("x", "y")]),
        kb.Classification("y", 0.7, {"x": 0.6, "y": 0.7}, ("y", "x")),
        ("a film", "x, y", "y, x", 0.7, True),
    ),
    "regress": (
        kb.TextExamples(texts=["a"], texts_b=["b"], labels=[3.5], task="regress"),
        kb.Regression(3.25, {"similarity": 3.25}),
        ("a | b", "3.5", "3.250", None, None),
    ),
    "tag": (
        kb.WordExamples(words=[["Ada", "left"]], labels=[["B-PER", "O"]]),
        TAGS,
        ("Ada left", "Ada B-PER", "Ada B-PER", None, True),
    ),
    "answer": (
        kb.QuestionExamples(questions=["What?"], contexts=["A crane."], answers=[[]]),
        kb.FoundAnswer("crane", 0.6, 2, 7, 1.0, 0.0),
        ("What?", "", "crane", 0.6, False),
    ),
    "choose": (
        kb.ChoiceExamples(texts=["She opens"], choices=[["the door", "the sky"]], labels=[0]),
        kb.Choice(0, "the door", 0.8, (0.8, 0.2)),
        ("She opens", "the door", "the door", 0.8, True),
    ),
    "embed": (
        kb.PairExamples(texts=["a"], texts_b=["b"]),
        0.25,
        ("a | b", None, "0.250", None, None),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_samples_show_text_gold_prediction_and_score(name):
    examples, found, (text, gold, predicted, score, is_right) = CASES[name]
    evaluation = Evaluation(examples.task, {}, [found], [], None, 1)
    assert record_of(evaluation, examples) == {
        "samples": [
            {"text": text, "gold": gold, "answers": [(predicted, score)], "is_right": is_right}
        ],
        "errors": [],
        "confusion": None,
    }


def test_samples_are_spread_over_the_examples_and_long_texts_are_shortened():
    examples = kb.PairExamples(
        texts=[f"{n} " + "word " * 200 for n in range(91)], texts_b=["b"] * 91
    )
    mistakes = [Mistake("1", examples.texts[0], "b", "c", 0.5)]
    found = record_of(Evaluation("embed", {}, [0.5] * 91, mistakes, None, 91), examples)
    texts = [sample["text"] for sample in found["samples"]]
    assert [int(text.split()[0]) for text in texts] == list(range(0, 91, 10))
    assert all(len(text) <= 300 and text.endswith(" ...") for text in texts)
    [error] = found["errors"]
    assert error["text"].endswith("word ...")
    assert (error["gold"], error["predicted"], error["score"]) == ("b", "c", 0.5)


def test_batches_are_filled_with_copies_of_weight_0_and_divided_over_processes():
    x = tf.range(5)[:, None]
    batches = tf.data.Dataset.from_tensor_slices(({"x": x}, x[:, 0])).batch(3)
    first, second = divided(batches, 2).as_numpy_iterator()
    assert first[0]["x"].tolist() == [[0], [1], [2], [2]]
    assert (first[1].tolist(), first[2].tolist()) == ([0, 1, 2, 2], [1, 1, 1, 0])
    assert (second[1].tolist(), second[2].tolist()) == ([3, 4], [1, 1])
    parts = [list(divided(batches, 2, index, 2).as_numpy_iterator()) for index in range(2)]
    for whole, *own in zip((first, second), *parts, strict=True):
        joined = tf.nest.map_structure(lambda *x: np.concatenate(x).tolist(), *own)
        assert joined == tf.nest.map_structure(np.ndarray.tolist, whole)
    assert divided(batches, 2, 1, 2).cardinality() == 2


def test_the_worst_errors_of_the_best_epoch_are_explained():
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] ada left it".split()))
    bert = kb.BERTModel(8, 8, 8, num_heads=2, num_blks=1, dropout=0.0, max_len=4)
    tagger = kb.TokenClassifier(bert, ["O", "B-PER"], tokenizer=tokenizer)
    words = [["ada"], ["ada", "left", "it"]]  # "it" is in a second window
    examples = kb.WordExamples(words=words, labels=[["B-PER"], ["O", "O", "O"]])
    data = TaskData(tagger, examples, examples, FinetuningOptions(), lambda line: None)
    errors = [Mistake("1", "left", "O", "B-PER", 0.9, 1), Mistake("1", "it", "O", "B-PER", 0.8, 2)]
    evaluation = Evaluation("tag", {}, kb.tag(tagger, words), errors, None, 2)
    assert "explanations" not in data.record(evaluation)["errors"][0]
    explained, beyond = data.record(evaluation, tagger)["errors"]
    [found] = explained["explanations"]
    assert ([one["word"] for one in found["words"]], found["word"]) == (words[1], 1)
    assert beyond["explanations"] == []


def test_the_worst_rankings_are_explained_by_the_first_and_a_right_text():
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] ada left it".split()))
    bert = kb.BERTModel(8, 8, 8, num_heads=2, num_blks=1, dropout=0.0, max_len=12)
    reranker = kb.Reranker(bert, tokenizer=tokenizer)
    texts = (("ada", "left"), ("it", "it left"))
    examples = kb.RankExamples(queries=("left", "ada"), documents=texts, labels=((0, 1), (0, 0)))
    data = TaskData(reranker, examples, examples, FinetuningOptions(), lambda line: None)
    errors = [Mistake("1", "ada", "", "it left", 0.9), Mistake("0", "left", "left", "ada", 0.8)]
    evaluation = Evaluation("rerank", {}, [[0.8, 0.1], [0.2, 0.9]], errors, None, 2)
    first, second = (one["explanations"] for one in data.record(evaluation, reranker)["errors"])
    shown = [(one["of"], [word["word"] for word in one["words"]]) for one in (*first, *second)]
    expected = [("predicted", ["ada", "it", "left"]), ("predicted", ["left", "ada"])]
    assert shown == [*expected, ("correct", ["left", "left"])]
