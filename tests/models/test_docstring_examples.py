"""The examples in the docstrings of public layers and models run."""

import re
import textwrap

import numpy as np
import pytest

import keras_bert_d2l as kb

NAMES = (
    "BERTConfig",
    "BERTEncoder",
    "BERTModel",
    "ContrastiveLoss",
    "MaskLM",
    "MultiHeadAttention",
    "NextSentencePred",
    "QuestionAnswerer",
    "SequenceClassifier",
    "SequenceRegressor",
    "TextEmbedder",
    "TokenClassifier",
    "TransformerEncoderBlock",
    "WeightedCrossEntropy",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_in_the_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```python\n(.*?)```", getattr(kb, name).__doc__, re.DOTALL)
    code = textwrap.dedent(example[1])
    exec(code, {"np": np, **{name: getattr(kb, name) for name in kb.__all__ if name in code}})
