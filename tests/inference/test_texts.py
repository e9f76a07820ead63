"""All functions take the same kinds of texts, and name what is no text."""

import functools

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import keras_bert_d2l as kb

TEXTS = ["cat", "dog", "mat"]
NLI = (kb.SequenceClassifier, ("entailment", "contradiction"))
CALLS = {  # the argument, and a call with texts for it
    "classify": ("texts_b", lambda m, x: kb.classify(m(*NLI), TEXTS, x)),
    "labels": ("labels", lambda m, x: kb.zero_shot(m(*NLI), "cat", x)),
    "tag": ("texts", lambda m, x: kb.tag(m(kb.TokenClassifier, ("O", "B-X")), x)),
    "answer": ("questions", lambda m, x: kb.answer(m(kb.QuestionAnswerer), x, "the cat sat")),
    "choose": (r"choices\[0\]", lambda m, x: kb.choose(m(kb.MultipleChoice), ["a"], [x])),
    "embed": ("texts", lambda m, x: kb.embed(m(kb.TextEmbedder), x).round(4)),
    "similar": ("query", lambda m, x: kb.similar(m(kb.TextEmbedder), x, ["cat", "mat"])),
    "features": ("texts", lambda m, x: [f.tokens for f in kb.extract_features(m(), x)]),
    "targets": ("targets", lambda m, x: kb.fill_mask(m(), "a [MASK]", targets=x)),
    "sentences": ("b", lambda m, x: kb.next_sentence_score(m(), TEXTS, x)),
    "perplexity": ("texts", lambda m, x: kb.pseudo_perplexity(m(), x)),
    "predict": ("texts", lambda m, x: m(kb.TextEmbedder).predict(x, verbose=0).round(4)),
    "words": (r"words\[0\]", lambda m, x: m().tokenizer.from_words([x])["tokens"].numpy()),
}


def kinds(x):
    yield from (tuple(x), pd.Index(x), np.array(x), np.array(x, object), np.array(x, "S"))
    yield from (tf.constant(x), list(tf.constant(x)), [text.encode() for text in x])
    yield from (pd.Series(x, [5, 0, 2], dtype=kind) for kind in (object, "string", "category"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_all_kinds_of_texts_count_and_what_is_no_text_is_named(name, words_bert):
    argument, ask = CALLS[name]
    make = functools.cache(lambda kind=lambda bert: bert, *labels: kind(words_bert, *labels))
    assert len({repr(ask(make, x)) for x in (TEXTS, *kinds(TEXTS))}) == 1
    for bad in (None, np.nan, pd.NA, 3, b"caf\xe9", "\ud83d"):
        for x in (["cat", bad], pd.Series(["cat", bad], dtype=object)):
            with pytest.raises(ValueError, match=f"`{argument}` must be .* at index 1"):
                ask(make, x)
