"""All functions take the same kinds of texts, name what is no text, and truncate alike."""

import functools

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.text_arguments import TruncationWarning
from tests.nightly import nightly_except

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
    "sentences": ("b", lambda m, x: kb.next_sentence_score(m(), TEXTS, x)),
    "perplexity": ("texts", lambda m, x: kb.pseudo_perplexity(m(), x)),
    "predict": ("texts", lambda m, x: m(kb.TextEmbedder).predict(x, verbose=0).round(4)),
    "words": (r"words\[0\]", lambda m, x: m().tokenizer.tokenize_words([x]).to_list()),
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


@pytest.fixture(scope="module")
def models(words_bert, words_tokenizer):
    options = {"tokenizer": words_tokenizer}
    models = {
        "nli": kb.SequenceClassifier(words_bert, ["entailment", "contradiction"], **options),
        "regressor": kb.SequenceRegressor(words_bert, **options),
        "tagger": kb.TokenClassifier(words_bert, ["O", "B-X"], **options),
        "answerer": kb.QuestionAnswerer(words_bert, **options),
        "chooser": kb.MultipleChoice(words_bert, **options),
    }
    for model in models.values():
        model.run_eagerly = True
    return {"bert": words_bert, "tokenizer": words_tokenizer, **models}


LONG = "good " * 20
TRUNCATING = {
    "classify": lambda m, x, **o: kb.classify(m["nli"], x, **o),
    "classify pairs": lambda m, x, **o: kb.classify(m["nli"], ["cat"] * 3, x, **o),
    "regress": lambda m, x, **o: kb.regress(m["regressor"], x, **o),
    "zero_shot": lambda m, x, **o: kb.zero_shot(m["nli"], x, ["cat"], template="{}", **o),
    "choose": lambda m, x, **o: kb.choose(m["chooser"], ["cat"], [x], **o),
    "embed": lambda m, x, **o: kb.embed(m["bert"], x, **o),
    "similar": lambda m, x, **o: kb.similar(m["bert"], "cat", x, **o),
    "fill_mask": lambda m, x, **o: kb.fill_mask(m["bert"], [f"[MASK] {y}" for y in x], **o),
    "next_sentence": lambda m, x, **o: kb.next_sentence_score(m["bert"], x, ["cat"] * 3, **o),
    "perplexity": lambda m, x, **o: kb.pseudo_perplexity(m["bert"], x, **o),
    "minimal_pairs": lambda m, x, **o: kb.minimal_pairs(
        m["bert"], {"sentence_good": x, "sentence_bad": ["cat"] * 3}, **o
    ),
}


@pytest.mark.parametrize("ask", TRUNCATING.values(), ids=TRUNCATING)
def test_long_texts_are_truncated_and_counted_or_refused(ask, models):
    texts = ["dog", LONG, "mat"]
    with pytest.warns(TruncationWarning, match=r"^Truncated to 16 tokens, .*: 1 (text|pair)\. "):
        ask(models, texts)
    with pytest.raises(ValueError, match=r"at most 16 tokens.* at index \d.*omit `truncate=False`"):
        ask(models, texts, truncate=False)
    with pytest.raises(ValueError, match="`truncate` must be True or False"):
        ask(models, texts, truncate="no")
    ask(models, ["dog", "cat", "mat"], truncate=False)


def test_texts_of_all_parts_are_counted_together(models):
    with pytest.warns(TruncationWarning, match=": 130 texts. ") as warned:
        kb.embed(models["bert"], [LONG] * 130, batch_size=1)  # parts have 64 batches
    assert len(warned) == 1


def test_a_mask_that_would_be_cut_off_is_an_error(models):
    for text, found in ((LONG + "[MASK]", "0 of 1"), ("[MASK] " + LONG + "[MASK]", "1 of 2")):
        with (
            pytest.raises(ValueError, match=f"within 16 tokens. Received: {found} masks"),
            pytest.warns(TruncationWarning),
        ):
            kb.fill_mask(models["bert"], ["[MASK]", text])


@pytest.fixture
def fresh_bert(words_tokenizer):
    bert = kb.BERTModel(len(words_tokenizer.vocab), 8, 16, 2, 1, 0.0, 16)
    bert.tokenizer = words_tokenizer
    return bert


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize(
    "change", nightly_except({"weights"}, ["weights", "enable_lora", "quantize"])
)
def test_vectors_of_a_bert_follow_its_weights_and_reuse_its_graph(change, fresh_bert, monkeypatch):
    made = []
    create = kb.TextEmbedder.make_predict_function
    monkeypatch.setattr(
        kb.TextEmbedder,
        "make_predict_function",
        lambda self, *x: (self.predict_function is None and made.append(self), create(self, *x)),
    )
    before = kb.embed(fresh_bert, "the cat")
    assert kb.similar(fresh_bert, "the cat", ["dog"])
    assert len(made) == 1
    if change == "enable_lora":
        fresh_bert.enable_lora(2)
        for layer in fresh_bert.lora_layers:
            layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    elif change == "quantize":
        fresh_bert.quantize("int8")
    else:
        for weight in fresh_bert.encoder.weights:
            weight.assign(weight + 0.1)
    after = kb.embed(fresh_bert, "the cat")
    assert np.abs(after - before).max() > 1e-5
    np.testing.assert_allclose(after, kb.embed(kb.TextEmbedder(fresh_bert), "the cat"), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "x",
    [["cat"], pytest.param({"texts": ["cat"], "texts_b": ["dog"]}, marks=pytest.mark.long)],
    ids=["1", "2"],
)
def test_predict_builds_no_pipeline_for_one_batch(x, fresh_bert, monkeypatch):
    model = kb.SequenceClassifier(fresh_bert, ["a", "b"])
    many = {name: text * 40 for name, text in x.items()} if isinstance(x, dict) else x * 40
    expected = model.predict(many, verbose=0)
    monkeypatch.setattr(tf.data.Dataset, "map", None)
    for _ in range(2):
        found = model.predict(x, batch_size=7, verbose=0)
        np.testing.assert_allclose(found, expected[:1], rtol=0, atol=1e-6)
