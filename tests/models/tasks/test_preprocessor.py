import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb

pytestmark = pytest.mark.slow

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore who wrote it ada".split()
TEXTS, LABELS = ["what a film", "a bore", "a"], ["good", "bad", "good"]
MAX_LEN = 8
LONG = ["film"] * 20  # words


@pytest.fixture(scope="module")
def bert():
    model = kb.BERTModel(len(WORDS), 8, 16, 2, 1, 0.0, MAX_LEN)
    model.tokenizer = kb.Tokenizer(kb.Vocab(WORDS))
    return model


@pytest.fixture
def classifier(bert):
    return kb.SequenceClassifier(bert, ["bad", "good"])


def test_a_pipeline_has_the_batches_that_lists_give(classifier):
    expected = classifier.preprocessor(TEXTS, LABELS, [1.0, 2.0, 3.0])
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, [1, 0, 1], [1.0, 2.0, 3.0]))
    [batch] = dataset.batch(3).map(classifier.preprocessor)
    for found, right in zip(tf.nest.flatten(batch), tf.nest.flatten(expected), strict=True):
        np.testing.assert_array_equal(found, right)
    classifier.compile("adam")
    mapped = dataset.batch(3).map(classifier.preprocessor)
    given = {"sample_weight": np.array([1.0, 2.0, 3.0]), "verbose": 0}
    of_texts = classifier.evaluate(TEXTS, LABELS, **given)
    np.testing.assert_allclose(classifier.evaluate(mapped, verbose=0), of_texts, rtol=1e-6)


def test_a_bert_has_a_preprocessor_whose_rows_it_takes(bert):
    assert kb.BERTModel(len(WORDS), 8, 16, 2, 1, 0.0, MAX_LEN).preprocessor is None
    batch = bert.preprocessor({"texts": TEXTS, "texts_b": ["ada wrote it"] * 3})
    of_tokenizer = bert.tokenizer(TEXTS, ["ada wrote it"] * 3, max_len=MAX_LEN)
    np.testing.assert_array_equal(batch["valid_lens"], of_tokenizer["valid_lens"])
    np.testing.assert_array_equal(batch["tokens"], of_tokenizer["tokens"][:, :MAX_LEN])
    [mapped] = tf.data.Dataset.from_tensor_slices(TEXTS).batch(3).map(bert.preprocessor)
    np.testing.assert_array_equal(mapped["tokens"], bert.preprocessor(TEXTS)["tokens"])
    assert bert(mapped)["nsp"].shape == (3, 2)


def test_single_strings_and_unknown_keys_are_named(classifier):
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS)
    with pytest.raises(ValueError, match="single strings. Batch"):
        dataset.map(classifier.preprocessor)
    named = tf.data.Dataset.from_tensor_slices({"text": TEXTS}).batch(2)
    with pytest.raises(ValueError, match=r"\['text'\]"):
        named.map(lambda texts: classifier.preprocessor(texts))


def test_a_model_without_a_preprocessor_takes_only_ids(classifier):
    batch = classifier.preprocessor(TEXTS)
    before = classifier.predict(TEXTS, verbose=0)
    classifier.preprocessor = None
    assert classifier.tokenizer is None
    with pytest.raises(ValueError, match="Strings need a tokenizer"):
        classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(classifier.predict(batch, verbose=0), before, atol=1e-6)
    with pytest.raises(ValueError, match="`preprocessor` must be a `Preprocessor`. Received: 3"):
        classifier.preprocessor = 3


def test_taggers_learn_and_score_each_word_of_a_long_text_once(bert):
    tagger = kb.TokenClassifier(bert, ["O", "X"])
    words, labels = [LONG, ["a"]], [["X"] * 20, ["O"]]
    batch, targets, weights = tagger.preprocessor(words, labels, [2.0, 3.0])
    assert batch["tokens"].shape == targets.shape
    assert len(targets) == len(weights) > 2
    targets, weights = targets.numpy(), weights.numpy()
    assert [(targets[weights == w] >= 0).sum() for w in (2.0, 3.0)] == [20, 1]
    tagger.compile("adam")
    scores = tagger.evaluate(words, labels, return_dict=True, verbose=0)
    found = [[one.label for one in tags] for tags in kb.tag(tagger, words)]
    right = sum(found[0][n] == "X" for n in range(20)) + (found[1] == ["O"])
    np.testing.assert_allclose(scores["accuracy"], right / 21, rtol=1e-6)
