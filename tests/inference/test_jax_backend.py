"""Predictions of labels, tags, answers and perplexities with JAX, in a separate process."""

import dataclasses
import json

import pytest

from keras_bert_d2l import QuestionAnswerer, SequenceClassifier, TokenClassifier, save_pretrained
from keras_bert_d2l.inference.perplexity import pseudo_perplexity
from keras_bert_d2l.tasks.answer.predictions import answer
from keras_bert_d2l.tasks.classify.predictions import classify
from keras_bert_d2l.tasks.tag.predictions import tag
from tests.jax_backend import JAX, needs_jax

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Truncated to"), needs_jax]

ASK = """
import dataclasses, json, sys
from keras_bert_d2l import load_pretrained
from keras_bert_d2l.tasks.answer.predictions import answer
from keras_bert_d2l.tasks.classify.predictions import classify
from keras_bert_d2l.inference.perplexity import pseudo_perplexity
from keras_bert_d2l.tasks.tag.predictions import tag

texts = json.loads(sys.argv[1])
models = [load_pretrained(path, verbose=False).model for path in sys.argv[2:]]
found = [
    *classify(models[0], texts),
    *(one for words in tag(models[1], texts) for one in words),
    *answer(models[2], texts[0], texts[1], top_k=3),
    *pseudo_perplexity(models[3], ["the cat sat on it"], batch_size=2),
]
print(json.dumps([dataclasses.asdict(one) for one in found]))
"""


def test_predictions_with_jax_match_tensorflow(
    tmp_path, words_bert, words_tokenizer, fresh_process
):
    options = {"tokenizer": words_tokenizer}
    models = {
        "classify": SequenceClassifier(words_bert, ["a", "b"], **options),
        "tag": TokenClassifier(words_bert, ["a", "b"], **options),
        "answer": QuestionAnswerer(words_bert, **options),
        "bert": words_bert,
    }
    for name, model in models.items():
        save_pretrained(model, tmp_path / name, tokenizer=words_tokenizer)
    texts = ["the cat", "the dog sat on the mat and ran on the rug badly and the cat sat on it"]
    found = [
        *classify(models["classify"], texts),
        *(one for words in tag(models["tag"], texts) for one in words),
        *answer(models["answer"], texts[0], texts[1], top_k=3),
        *pseudo_perplexity(words_bert, ["the cat sat on it"]),
    ]
    printed = fresh_process(ASK, json.dumps(texts), *(tmp_path / name for name in models), **JAX)
    expected = json.loads(json.dumps([dataclasses.asdict(one) for one in found]))
    for one, other in zip(json.loads(printed.splitlines()[-1]), expected, strict=True):
        scores = one.pop("scores", {}), other.pop("scores", {})
        assert scores[0] == pytest.approx(scores[1], abs=1e-5)
        for name, value in other.items():
            is_float = isinstance(value, float)
            assert one[name] == (pytest.approx(value, rel=1e-4, abs=1e-4) if is_float else value)
