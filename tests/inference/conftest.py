"""A small model, its tokenizer, and task models whose outputs depend on single words."""

import numpy as np
import pytest

from keras_bert_d2l import BERTModel, Tokenizer, Vocab
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS

WORDS = "the cat dog sat ran on mat rug good bad ##s ##ly".split()


@pytest.fixture(scope="session")
def words_tokenizer():
    """A tokenizer with a dozen words, shared because building its graph takes a second."""
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


@pytest.fixture(scope="session")
def words_bert(words_tokenizer):
    """A model with weights so large that its predictions differ. Tests must not train it.

    It runs eagerly, because building a graph takes longer than computing.
    """
    bert = BERTModel(len(words_tokenizer.vocab), 8, 16, 2, 2, 0.1, 16)
    bert.tokenizer = words_tokenizer
    bert.run_eagerly = True
    rng = np.random.default_rng(0)
    for weight in bert.weights:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    return bert


@pytest.fixture(scope="session")
def open_bert(words_tokenizer):
    """A model with predictable outputs: unit i of the encoding counts token i.

    Every token attends weakly and equally to all tokens. The pooler copies the encoding of `[CLS]`.
    """
    size = len(words_tokenizer.vocab)
    bert = BERTModel(size, size + size % 2, 4, 2, 1, 0.0, 16)
    passed_on = {"embeddings": 1.0, "W_v/kernel": 1.0, "W_o/kernel": 0.25, "hidden/kernel": 1.0}
    for name, weight in named_weights(bert).items():
        weight.assign(np.full(weight.shape, float(name.endswith("gamma"))))
        for end, factor in passed_on.items():
            if name.endswith(end) and "segment" not in name:
                weight.assign(factor * np.eye(*weight.shape))
    return bert


@pytest.fixture(scope="session")
def open_task(open_bert, words_tokenizer):
    """A function that creates a task model whose outputs depend on single words.

    `open_task(kind, {(word, column): weight}, **options)`: a word adds its weight to a column of
    the head's outputs; the word `None` sets the bias. The model runs eagerly, because building a
    graph takes longer than computing.
    """

    def make(kind, weights, **options):
        model = kind(open_bert, tokenizer=words_tokenizer, **options)
        model.run_eagerly = True
        kernel, bias = model.head.weights
        values, biases = np.zeros(kernel.shape), np.zeros(bias.shape)
        for (word, column), weight in weights.items():
            if word is None:
                biases[column] = weight
            else:
                values[words_tokenizer.vocab[word], column] = weight
        kernel.assign(values)
        bias.assign(biases)
        return model

    return make
