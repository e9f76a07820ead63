import pytest

from keras_bert_d2l import BERTConfig, BERTModel, Tokenizer, Vocab
from keras_bert_d2l.data.tasks.examples import (
    Answer,
    QuestionExamples,
    TextExamples,
    WordExamples,
)
from keras_bert_d2l.inference.evaluation.compatibility import check_examples
from keras_bert_d2l.models.tasks.heads import (
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
)
from keras_bert_d2l.training.finetuning.data import prepare, split_examples
from keras_bert_d2l.training.finetuning.options import FinetuningOptions

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a b c".split())
BERT = BERTConfig(len(VOCAB), 8, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=8)
TEXTS = TextExamples(texts=["a", "b"], labels=["x", "y"], source="f.tsv")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(VOCAB)


def make_model(kind=SequenceClassifier, tokenizer=None, **options):
    return kind(BERTModel.from_bert_config(BERT), tokenizer=tokenizer, **options)


def test_equal_texts_are_on_one_side_of_a_split_and_it_is_always_the_same():
    texts = [f"text {n % 100}" for n in range(400)]
    examples = TextExamples(texts=texts, labels=["x", "y"] * 200)
    train, dev = split_examples(examples, 0.2)
    assert not set(train.texts) & set(dev.texts)
    assert len(train) + len(dev) == 400
    assert len(dev) == 80
    again = split_examples(examples.subset(range(200)), 0.2)[1]
    assert set(again.texts) == set(dev.texts)


def test_questions_on_an_article_and_equal_sentences_stay_together():
    titles = [f"article {n // 10}" for n in range(200)]
    contexts = [f"context {n}" for n in range(200)]
    examples = QuestionExamples(questions=["?"] * 200, contexts=contexts, titles=titles)
    train, dev = split_examples(examples, 0.3)
    assert not set(train.titles) & set(dev.titles)
    assert len(dev) == 60
    without = QuestionExamples(questions=["?"] * 200, contexts=contexts, titles=[""] * 200)
    assert len(split_examples(without, 0.3)[1]) == 60
    words = WordExamples(words=[(str(n % 50), "b") for n in range(100)])
    train, dev = split_examples(words, 0.3)
    assert not set(train.words) & set(dev.words)


def test_too_few_examples_for_a_split_are_refused():
    with pytest.raises(ValueError, match=r"f\.tsv: 2 examples about 2 different texts are too"):
        split_examples(TEXTS, 1e-9)


def test_one_text_at_least_is_held_out_and_no_label_is_lost():
    few = TextExamples(texts=["a", "b", "a"], labels=["x", "x", "x"])
    train, dev = split_examples(few, 1e-9)
    assert (len(train), len(dev)) == (2, 1)
    texts = [f"text {n}" for n in range(100)]
    rare = TextExamples(texts=texts, labels=[str(n // 2) for n in range(100)])
    train, dev = split_examples(rare, 0.5)
    assert train.label_names == rare.label_names
    assert len(dev) == 50


def test_where_every_label_is_needed_a_split_is_refused():
    names = [f"{number}" for number in range(300)]
    unique = TextExamples(texts=names, labels=names)
    with pytest.raises(ValueError, match="300 examples about 300 different texts are too few"):
        split_examples(unique, 0.1)


@pytest.mark.parametrize("count", [5, 11, 12, 20, 40, 399])
def test_of_few_examples_the_share_is_held_out_as_well(count):
    texts = [f"text {number}" for number in range(count)]
    train, dev = split_examples(TextExamples(texts=texts, labels=["x"] * count), 0.1)
    assert len(dev) == round(count / 10 + 0.01)
    assert len(train) + len(dev) == count


def test_a_text_of_which_there_are_too_many_is_passed_over_and_not_all_are_held_out():
    texts = ["the same"] * 50 + [f"text {number}" for number in range(50)]
    same = TextExamples(texts=texts, labels=["x"] * 100)
    assert len(split_examples(same, 0.1)[1]) == 10
    half = TextExamples(texts=["a"] * 3 + ["b"] * 2, labels=["x"] * 5)
    assert split_examples(half, 0.1)[1].texts == ("b", "b")
    assert len(split_examples(TextExamples(texts=["a", "b"], task="regress"), 0.9)[1]) == 1


@pytest.mark.parametrize(
    ("kind", "options", "examples", "message"),
    [
        (SequenceRegressor, {}, TEXTS, "takes a SequenceClassifier. Received: a SequenceRegr"),
        (SequenceClassifier, {"labels": ["x", "z"]}, TEXTS, r"labels x, z. Received: 'y' \(1 t"),
        (SequenceClassifier, {"labels": ["X", "Y"]}, TEXTS, "differ in capitals alone, write them"),
        (SequenceClassifier, {"labels": ["x", "y"]}, TEXTS.without_labels(), "what is right"),
        (SequenceClassifier, {"labels": ["x", "y"]}, TEXTS.subset([]), "no example"),
        (
            SequenceClassifier,
            {"labels": ["x", "y"], "multi_label": True},
            TEXTS,
            "any number of labels for each text. Received: one label",
        ),
        (
            SequenceRegressor,
            {"labels": ["p", "q"]},
            TextExamples(task="regress", texts=["a"], labels=[1.0]),
            "one score each",
        ),
    ],
)
def test_examples_that_do_not_fit_a_model_are_refused(kind, options, examples, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        check_examples(make_model(kind, tokenizer, **options), examples)


def test_what_is_missing_is_said_before_anything_is_tokenised(tokenizer, monkeypatch):
    monkeypatch.setattr("keras_bert_d2l.training.finetuning.data.TaskRows", None)
    options, model = FinetuningOptions(), make_model(labels=["x", "y"])
    with pytest.raises(ValueError, match="need a tokenizer"):
        prepare(model, TEXTS, TEXTS, options, print)
    model.tokenizer = tokenizer
    other = TextExamples(texts=["a"], labels=["z"], source="dev.tsv")
    with pytest.raises(ValueError, match=r"dev\.tsv: the model has the labels"):
        prepare(model, TEXTS, other, options, print)
    pairs = TextExamples(texts=["a"], texts_b=["b"], labels=["x"], source="dev.tsv")
    with pytest.raises(ValueError, match=r"dev\.tsv: the training data are single.*ived: pairs of"):
        prepare(model, TEXTS, pairs, options, print)
    with pytest.raises(ValueError, match=r"f\.tsv: the training data are pairs.*ived: single"):
        prepare(model, pairs, TEXTS, options, print)
    with pytest.raises(ValueError, match="must both be examples"):
        prepare(model, TEXTS, lambda epoch: None, options, print)
    with pytest.raises(ValueError, match="`max_len` must be at most 8"):
        prepare(model, TEXTS, TEXTS, FinetuningOptions(max_len=9), print)


def test_the_data_are_told_and_batched_anew_each_epoch(tokenizer):
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
    data = prepare(model, train, TEXTS, FinetuningOptions(batch_size=1), said.append)
    assert said == [
        "Training data: 3 examples from train.tsv; labels x (2), y (1)",
        "  1 (33.3%) cut to 8 tokens",
        "  2 dropped: empty text (first: line 7)",
        "Development data: 2 examples from f.tsv; labels x (1), y (1)",
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


def test_scores_without_a_correlation_are_told(tokenizer):
    train = TextExamples(task="regress", texts=["a", "b", "c"], labels=[1.0, 2.0, 2.0])
    model, said = make_model(SequenceRegressor, tokenizer), []
    for dev, number in ((train.subset([0]), 1), (train.subset([1, 2]), 2), (train, 2)):
        prepare(model, train, dev, FinetuningOptions(), said.append)
        assert sum("All its scores are equal" in line for line in said) == number


def test_a_question_without_a_row_is_told_and_not_asked(tokenizer):
    questions = QuestionExamples(
        questions=["a", "a b c a b c"],
        contexts=["b c", "b c"],
        answers=[[Answer("c", 2)], [Answer("b", 0)]],
        source="q.json",
    )
    said = []
    model = make_model(QuestionAnswerer, tokenizer)
    data = prepare(model, questions, questions, FinetuningOptions(), said.append)
    (reason,) = data.facts["data"]["dev"]["dropped"]
    assert said[1] == f"  1 left out: {reason}"
    assert set(data.score(model)) >= {"f1", "exact_match"}


def test_a_sample_has_the_figures_of_the_rare_kind_of_questions(tokenizer):
    questions = QuestionExamples(
        questions=["a"] * 6, contexts=["b c"] * 6, answers=[[Answer("c", 2)]] * 5 + [[]]
    )
    model = make_model(QuestionAnswerer, tokenizer)
    options = FinetuningOptions(batch_size=4)
    data = prepare(model, questions, questions, options, lambda line: None)
    assert data.sample(model).keys() == data.score(model).keys() >= {"no_answer_accuracy"}
