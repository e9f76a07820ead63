"""Results and data sets are short in a terminal, and results are tables in a notebook."""

import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.inference.asking import ResultList


def test_numbers_are_rounded_and_long_texts_are_shortened():
    assert repr(kb.Prediction("cat", 7, 0.123456)) == "Prediction(token='cat', id=7, score=0.1235)"
    scores = {"bad": 0.1000001, "good": 0.8999999}
    found = kb.Classification("good", 0.8999999, scores, ("good",))
    expected = "Classification(label='good', score=0.9, scores={'bad': 0.1, 'good': 0.9}, labels="
    assert repr(found) == f"{expected}('good',))"
    assert len(repr(kb.Match("a " * 10_000, 0.5, 3))) < 120


def test_a_notebook_shows_a_table_with_escaped_texts():
    found = ResultList([kb.Match("<b> & c", 0.123456, 0), kb.Match("d", -1.0, 1)])
    assert found._repr_html_() == (
        "<table><tr><th>text</th><th>score</th><th>index</th></tr>"
        "<tr><td>&lt;b&gt; &amp; c</td><td>0.1235</td><td>0</td></tr>"
        "<tr><td>d</td><td>-1</td><td>1</td></tr></table>"
    )
    assert ResultList([found, found])._repr_html_() == 2 * found._repr_html_()
    assert (
        ResultList([kb.Tag("a", "O", 1.0, None, None)] * 102)
        ._repr_html_()
        .endswith("<td></td></tr></table><p>and 2 more</p>")
    )
    assert ResultList()._repr_html_() == "<table><tr></tr></table>"


@pytest.mark.slow
def test_functions_return_lists_that_a_notebook_shows(words_bert):
    for found in (
        kb.fill_mask(words_bert, ["the [MASK]"]),
        kb.tag(kb.TokenClassifier(words_bert, ["a", "b"]), "the cat"),
        kb.answer(kb.QuestionAnswerer(words_bert), "the", "cat"),
        kb.pseudo_perplexity(words_bert, ["cat"]),
    ):
        assert found._repr_html_().startswith("<table><tr><th>")


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
