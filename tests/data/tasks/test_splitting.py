import pytest

from keras_bert_d2l.data.tasks.examples import split_examples
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.tasks.answer.examples import QuestionExamples
from keras_bert_d2l.tasks.tag.examples import WordExamples


def test_identical_texts_stay_together_and_the_split_is_reproducible():
    texts = [f"text {n % 100}" for n in range(400)]
    examples = TextExamples(texts=texts, labels=["x", "y"] * 200)
    train, dev = split_examples(examples, 0.2)
    assert not set(train.texts) & set(dev.texts)
    assert len(train) + len(dev) == 400
    assert len(dev) == 80
    again = split_examples(examples.subset(range(200)), 0.2)[1]
    assert set(again.texts) == set(dev.texts)


def test_questions_about_an_article_and_identical_sentences_stay_together():
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


@pytest.mark.parametrize("count", [2, 300])
def test_a_split_is_rejected_if_every_example_has_a_different_label(count):
    names = [f"{number}" for number in range(count)]
    unique = TextExamples(texts=names, labels=names, source="f.tsv")
    with pytest.raises(ValueError, match=f"f.tsv: {count} examples with {count} different texts"):
        split_examples(unique, 0.1)


def test_at_least_one_text_is_held_out_and_no_label_is_lost():
    few = TextExamples(texts=["a", "b", "a"], labels=["x", "x", "x"])
    train, dev = split_examples(few, 1e-9)
    assert (len(train), len(dev)) == (2, 1)
    texts = [f"text {n}" for n in range(100)]
    rare = TextExamples(texts=texts, labels=[str(n // 2) for n in range(100)])
    train, dev = split_examples(rare, 0.5)
    assert train.label_names == rare.label_names
    assert len(dev) == 50


@pytest.mark.parametrize("count", [5, 11, 12, 20, 40, 399])
def test_the_share_is_also_respected_for_few_examples(count):
    texts = [f"text {number}" for number in range(count)]
    train, dev = split_examples(TextExamples(texts=texts, labels=["x"] * count), 0.1)
    assert len(dev) == round(count / 10 + 0.01)
    assert len(train) + len(dev) == count


def test_a_text_that_occurs_too_often_is_skipped_and_at_least_one_text_remains():
    texts = ["the same"] * 50 + [f"text {number}" for number in range(50)]
    same = TextExamples(texts=texts, labels=["x"] * 100)
    assert len(split_examples(same, 0.1)[1]) == 10
    assert len(split_examples(TextExamples(texts=["a", "b"], task="regress"), 0.9)[1]) == 1
