"""Results and data sets are short in a terminal."""

import pytest

import keras_bert_d2l as kb


def test_numbers_are_rounded_and_long_texts_are_shortened():
    assert repr(kb.Prediction("cat", 7, 0.123456)) == "Prediction(token='cat', id=7, score=0.1235)"
    scores = {"bad": 0.1000001, "good": 0.8999999}
    found = kb.Classification("good", 0.8999999, scores, ("good",))
    expected = "Classification(label='good', score=0.9, scores={'bad': 0.1, 'good': 0.9}, labels="
    assert repr(found) == f"{expected}('good',))"
    assert len(repr(kb.Match("a " * 10_000, 0.5, 3))) < 120


@pytest.mark.slow
def test_data_sets_are_summaries(words_tokenizer):
    texts = kb.TextExamples(texts=["cat"] * 9000, labels=["a", "b", "b"] * 3000, source="x.tsv")
    assert repr(texts) == (
        "TextExamples(task='classify', 9,000 examples, labels={'a': 3000, 'b': 6000}, "
        "source='x.tsv')"
    )
    words = kb.WordExamples(words=[["cat", "sat"]])
    assert repr(words) == "WordExamples(task='tag', 1 example)"
    rows = kb.TaskRows.encode(texts, words_tokenizer, max_len=8)
    expected = "TaskRows(task='classify', 9,000 rows, 27,000 tokens, label_names=('a', 'b'))"
    assert repr(rows) == expected


@pytest.mark.slow
def test_an_evaluation_is_a_summary_of_its_metrics(words_bert):
    examples = kb.TextExamples(texts=["cat", "dog"] * 50, labels=["a", "b"] * 50)
    found = kb.evaluate(kb.SequenceClassifier(words_bert, ["a", "b"]), examples)
    assert repr(found).startswith("Evaluation('classify', 100 examples, accuracy=0.")
    assert len(repr(found)) < 200
