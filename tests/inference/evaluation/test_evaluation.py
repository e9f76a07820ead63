import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from keras_bert_d2l.inference.evaluation import (
    NUM_MISTAKES,
    Confusion,
    Evaluation,
    Mistake,
    evaluate,
    print_evaluation,
)
from keras_bert_d2l.tasks.answer.examples import Answer, QuestionExamples
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import answer
from keras_bert_d2l.tasks.classify.examples import TextExamples
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import classification_scores, classify
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.tag.model import TokenClassifier

TAGS = ["O", "B-PET", "I-PET"]
TEXTS = ["good cat", "bad dog", "bad bad cat", "the good rug"]


@pytest.fixture(scope="module")
def classifier(open_task):
    return open_task(
        SequenceClassifier, {("bad", 0): 9.0, ("good", 1): 9.0}, labels=["bad", "good"]
    )


@pytest.fixture(scope="module")
def tagger(open_task):
    weights = {(None, 0): 2.0, ("cat", 1): 1.0, ("dog", 2): 1.0}
    return open_task(TokenClassifier, weights, labels=TAGS)


@pytest.fixture(scope="module")
def reader(open_task):
    """A question answerer whose answers start with a cat and end with a dog."""
    return open_task(QuestionAnswerer, {("cat", 0): 1.0, ("dog", 1): 1.0})


def questions(contexts, answers):
    found = tuple(
        tuple(Answer(text, context.index(text)) for text in texts)
        for context, texts in zip(contexts, answers, strict=True)
    )
    asked = ("on the mat",) * len(contexts)
    return QuestionExamples(questions=asked, contexts=contexts, answers=found)


@pytest.mark.slow
def test_a_classifier_is_evaluated_with_metrics_and_errors(classifier):
    labels = ("good", "bad", "good", "good")
    examples = TextExamples(texts=tuple(TEXTS), labels=labels, ids=tuple("abcd"))
    evaluation = evaluate(classifier, examples)
    assert evaluation.task == "classify"
    assert evaluation.num_examples == 4
    assert evaluation.metrics == classification_scores(
        labels, ["good", "bad", "bad", "good"], classifier.labels
    )
    assert evaluation.metrics["accuracy"] == 0.75
    assert evaluation.predictions == classify(classifier, TEXTS)
    surely_bad = evaluation.predictions[2].score
    assert evaluation.errors == [Mistake("c", "bad bad cat", "good", "bad", surely_bad)]
    assert evaluation.confusion.labels == ("bad", "good")
    assert evaluation.confusion.counts.tolist() == [[1, 0], [1, 2]]


def test_the_20_most_confident_errors_are_listed_in_order(classifier):
    texts = tuple("good " * (1 + number % 3) + "rug" for number in range(30))
    evaluation = evaluate(classifier, TextExamples(texts=texts, labels=("bad",) * 30))
    sure = [mistake.score for mistake in evaluation.errors]
    assert len(sure) == NUM_MISTAKES
    assert sure == sorted(sure, reverse=True)
    assert {mistake.text for mistake in evaluation.errors[:10]} == {"good good good rug"}


def test_both_texts_of_a_pair_are_shown(classifier):
    examples = TextExamples(texts=("cat",), texts_b=("good dog",), labels=("bad",))
    [mistake] = evaluate(classifier, examples).errors
    assert mistake.text == "cat | good dog"


def test_multiple_labels_are_evaluated_as_sets(open_task):
    weights = {("cat", 0): 50.0, ("dog", 1): 50.0, (None, 0): 8.0, (None, 1): 8.0}
    model = open_task(SequenceClassifier, weights, labels=["cat", "dog"], multi_label=True)
    labels = (("dog", "cat"), ("dog",), ("cat",))
    examples = TextExamples(texts=("cat and dog", "dog on rug", "rug"), labels=labels)
    evaluation = evaluate(model, examples)
    assert evaluation.metrics["subset_accuracy"] == pytest.approx(2 / 3)
    assert evaluation.metrics["micro_f1"] == pytest.approx(6 / 7)
    assert evaluation.confusion is None
    not_cat = 1 - evaluation.predictions[2].scores["cat"]
    assert evaluation.errors == [Mistake("2", "rug", "cat", "", pytest.approx(not_cat))]


def test_a_regressor_is_evaluated_with_correlations(open_task):
    model = open_task(SequenceRegressor, {("good", 0): 1.0})
    texts = ("good", "good rug", "good rug rug rug")
    evaluation = evaluate(model, TextExamples(task="regress", texts=texts, labels=(5.0, 3.0, 1.0)))
    assert evaluation.metrics["spearman"] == pytest.approx(1)
    found = [one.score for one in evaluation.predictions]
    off = [abs(one - gold) for one, gold in zip(found, (5, 3, 1), strict=True)]
    assert evaluation.metrics["mean_squared_error"] == pytest.approx(np.square(off).mean())
    assert [mistake.score for mistake in evaluation.errors] == sorted(off, reverse=True)
    assert evaluation.errors[0].gold == "5"


def test_a_span_tagger_is_evaluated_on_words_and_on_spans(tagger):
    words = (("the", "cat", "dog", "sat"), (), ("a", "dog", "ran"))
    labels = (("O", "B-PET", "I-PET", "O"), (), ("O", "O", "O"))
    evaluation = evaluate(tagger, WordExamples(words=words, labels=labels))
    assert evaluation.metrics == {
        "accuracy": pytest.approx(6 / 7),
        "precision": 0.5,
        "recall": 1,
        "f1": pytest.approx(2 / 3),
    }
    score = evaluation.predictions[2][1].score
    assert evaluation.errors == [Mistake("2", "a [dog] ran", "O", "I-PET", score)]
    assert evaluation.confusion.counts.tolist() == [[4, 0, 1], [0, 1, 0], [0, 0, 1]]


def test_every_word_of_a_long_text_is_evaluated(tagger):
    words = tuple(["cat"] * 40)
    evaluation = evaluate(tagger, WordExamples(words=(words,), labels=(("B-PET",) * 40,)))
    assert evaluation.metrics["accuracy"] == 1
    assert len(evaluation.predictions[0]) == 40


def test_answers_are_scored_with_exact_match_and_f1(reader):
    contexts = ("the cat on dog", "cat sat ran dog")
    evaluation = evaluate(reader, questions(contexts, [["cat on dog"], ["cat", "ran dog"]]))
    assert evaluation.metrics == {"exact_match": 0.5, "f1": pytest.approx((1 + 2 / 3) / 2)}
    assert [found.text for found in evaluation.predictions] == ["cat on dog", "cat sat ran dog"]
    [mistake] = evaluation.errors
    assert (mistake.text, mistake.gold) == ("on the mat", "cat | ran dog")
    assert mistake.predicted == "cat sat ran dog"


@pytest.mark.slow
def test_the_null_threshold_is_tuned_unless_it_is_passed(reader):
    contexts = ("cat dog", "mat ran", "cat on dog", "sat sat on")
    examples = questions(contexts, [["cat dog"], [], ["cat on dog"], []])
    spans = [best for [best] in answer(reader, list(examples.questions), list(contexts))]
    margins = [best.null_margin for best in spans]
    evaluation = evaluate(reader, examples)
    threshold = evaluation.metrics["null_threshold"]
    assert threshold == pytest.approx(max(margins[0], margins[2]))
    assert [found.text for found in evaluation.predictions] == ["cat dog", "", "cat on dog", ""]
    assert evaluation.metrics["exact_match"] == 1
    with pytest.raises(ValueError, match="`null_threshold` must be a finite number.*=inf"):
        evaluate(reader, examples, null_threshold=np.inf)
    never = evaluate(reader, examples, null_threshold=99.0)
    assert [found.text for found in never.predictions] == [best.text for best in spans]
    assert never.metrics["no_answer_accuracy"] == 0
    assert never.metrics["null_threshold"] == 99
    always = evaluate(reader, examples, null_threshold=-99.0)
    assert [found.text for found in always.predictions] == [""] * 4
    assert always.metrics["no_answer_accuracy"] == 1
    assert {mistake.gold for mistake in always.errors} == {"cat dog", "cat on dog"}
    for one, context in zip(evaluation.predictions, contexts, strict=True):
        [same] = answer(reader, "on the mat", context, null_threshold=threshold)
        assert (one.text, one.score) == (same.text, pytest.approx(same.score, abs=1e-5))


def test_a_context_without_tokens_has_no_answer(reader):
    found = evaluate(reader, questions(("cat dog", "\u200b"), [["cat dog"], []]))
    assert found.predictions[1].text == ""
    assert found.metrics["no_answer_accuracy"] == 1


def test_questions_that_are_too_long_count_as_unanswered(reader):
    examples = questions(("cat dog", "cat on dog"), [["cat dog"], ["cat on dog"]])
    long = dataclasses.replace(examples, questions=("the rug " * 9, "on the mat"))
    evaluation = evaluate(reader, long)
    assert evaluation.metrics == {"exact_match": 0.5, "f1": 0.5, "unread_questions": 1}
    assert [found.text for found in evaluation.predictions] == ["", "cat on dog"]
    assert evaluation.errors[0].predicted == ""
    with pytest.raises(ValueError, match="A question must have at most 7 tokens"):
        evaluate(reader, long.subset([0]))


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (TextExamples(texts=("cat",), source="x.tsv"), "x.tsv: the examples have no labels"),
        (TextExamples(texts=(), labels=()), "The examples: there are no examples"),
        (
            TextExamples(texts=("a", "b"), labels=("fair", "good")),
            r"model's labels are .*'fair' as well \(1 time\)",
        ),
        (
            TextExamples(texts=("a",), labels=(("good",),)),
            "predicts one label .*any number",
        ),
        (
            TextExamples(task="regress", texts=("a",), labels=(1.0,)),
            "`model` must be a SequenceRegressor",
        ),
        (
            WordExamples(words=(("a",),), labels=(("O",),), source="x.conll"),
            "^`model` must be a TokenClassifier. Received: a SequenceClassifier; .*'tag'",
        ),
        ({"texts": ["cat"]}, "`text` must name a column of 'the dict'"),
        (3, "`data` must be a path, a DataFrame"),
    ],
)
def test_examples_that_do_not_match_the_model_are_rejected(examples, message, classifier):
    with pytest.raises(ValueError, match=message):
        evaluate(classifier, examples)


def test_a_regressor_with_several_scores_cannot_be_evaluated(open_bert):
    model = SequenceRegressor(open_bert, ["x", "y"])
    examples = TextExamples(task="regress", texts=("a",), labels=(1.0,))
    with pytest.raises(ValueError, match="one score each. Received: a model with the scores"):
        evaluate(model, examples)


@pytest.mark.slow
def test_a_batch_of_ignored_labels_has_loss_0_and_changes_nothing(open_bert, words_tokenizer):
    model = TokenClassifier(open_bert, TAGS)
    model.freeze_encoder()
    model.compile("sgd", run_eagerly=True)
    batch = words_tokenizer(["the cat", "dog"])
    ignored = np.full(batch["tokens"].shape, -100)
    before = model.head.get_weights()
    assert model.fit(batch, ignored, verbose=0).history["loss"] == [0]
    assert model.evaluate(batch, ignored, verbose=0, return_dict=True)["loss"] == 0
    np.testing.assert_array_equal(model.head.get_weights()[0], before[0])
    open_bert.encoder.trainable = True


def printed(evaluation):
    console = Console(file=io.StringIO(), width=100)
    print_evaluation(evaluation, console)
    return console.file.getvalue()


def test_the_printed_tables_show_metrics_confusions_and_errors():
    mistake = Mistake("7", "a [bold] cat " + "and so on " * 50, "good", "bad", 0.98765)
    confusion = Confusion.of(["bad", "good"], ["bad", "bad"], ["bad", "good"])
    text = printed(Evaluation("classify", {"f1": 0.12345}, [], [mistake], confusion, 1234))
    assert "classify: 1,234 examples" in text
    for cell in ("f1", "0.1235", "a [bold] cat", "0.988", "..."):
        assert cell in text
    assert "gold labels (rows)" in text
    assert "f1 of good" in text
    assert "Most confident errors" in text
    assert "score" in text


@pytest.mark.parametrize(
    ("gold", "predicted", "warning"),
    [
        (
            ["bad", "good"],
            ["good", "good"],
            "predicts 'good' for all 2 words, although",
        ),
        (["bad", "good"], ["good", "bad"], None),
        (["good", "good"], ["good", "good"], None),
    ],
)
def test_a_single_predicted_label_is_reported_if_there_are_several(gold, predicted, warning):
    confusion = Confusion.of(gold, predicted, ["bad", "good", "mixed"])
    evaluation = Evaluation("tag", {"accuracy": 0.5}, [], [], confusion, 2)
    assert (evaluation.warning is None) == (warning is None)
    assert ("Warning: " in printed(evaluation)) == (warning is not None)
    assert warning is None or warning in evaluation.warning


def test_the_largest_errors_of_a_regressor_are_printed():
    mistake = Mistake("7", "a cat", "2", "0.5", 1.5)
    text = printed(Evaluation("regress", {"pearson": 0.5}, [], [mistake], None, 2))
    assert "Largest errors" in text
    assert "error " in text
    assert "score" not in text


def test_with_many_labels_the_most_frequent_confusions_are_printed():
    labels = [f"label{number}" for number in range(15)]
    gold = ["label3"] * 3 + ["label4"] * 2 + labels
    predicted = ["label5"] * 3 + ["label3"] * 2 + labels
    confusion = Confusion.of(gold, predicted, labels)
    assert confusion.counts.sum() == 20
    assert confusion.most_frequent(10) == [("label3", "label5", 3), ("label4", "label3", 2)]
    text = printed(Evaluation("tag", {"accuracy": 0.75}, [], [], confusion, 5))
    assert "Most frequent confusions" in text
    assert "label14" not in text
