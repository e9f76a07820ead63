"""Entities are those of the pipeline of transformers for the same weights."""

import random

import numpy as np
import pytest

import keras_bert_d2l as kb

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

# Outputs are also known in advance, in tests/tasks/tag.
pytestmark = pytest.mark.long

WORDS = """[PAD] [UNK] [CLS] [SEP] [MASK] the a cat dog sat ran on mat rug london paris new this
example is . , ' - ! ##s ##ly ##don ##er lon par ##is film good bad""".split()
TEXTS = [
    "the Londoners sat on a new mat, catsly!",
    "catdons' parers-isly  ran\tZZZ unknown Parisdon is good.",
    *(" ".join(random.Random(n).choices(WORDS[5:24], k=20)) for n in range(10)),
    *("".join(random.Random(n).choices("cat dog lon paris film new s ly don er , .".split(), k=9))
      for n in range(10)),
]  # fmt: skip
CONFIG = kb.BERTConfig.preset(
    "huggingface",
    vocab_size=len(WORDS),
    num_hiddens=16,
    ffn_num_hiddens=24,
    num_heads=2,
    num_blks=2,
    max_len=64,
)


def both(make, folder, task):
    """Return our model with random weights, and a pipeline of transformers with the same ones."""
    bert = kb.BERTModel.from_bert_config(CONFIG)
    bert.tokenizer = kb.Tokenizer(kb.Vocab(WORDS))
    ours, rng = make(bert), np.random.default_rng(0)
    for weight in ours.trainable_weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(0, 1.5 if "head" in weight.path else 0.2, weight.shape))
    kb.save_pretrained(ours, folder, format="huggingface")
    return ours, transformers.pipeline(task, model=str(folder), device="cpu")


@pytest.mark.parametrize("labels", ["O B-A I-A B-B I-B", "N V X", "O A B-A I-B"])
def test_entities_equal_those_of_the_aggregation_strategies(labels, tmp_path):
    ours, theirs = both(
        lambda bert: kb.TokenClassifier(bert, labels.split()),
        tmp_path / "m",
        "token-classification",
    )
    answers = set()
    for aggregate in ("simple", "first", "average", "max"):
        found = kb.tag(ours, TEXTS, aggregate=aggregate)
        for text, entities in zip(TEXTS, found, strict=True):
            expected = theirs(text, aggregation_strategy=aggregate)
            assert [(x.label, x.start, x.end) for x in entities] == [
                (x["entity_group"], x["start"], x["end"]) for x in expected
            ], (aggregate, text)
            scores = [x["score"] for x in expected]
            np.testing.assert_allclose([x.score for x in entities], scores, rtol=0, atol=1e-5)
        answers.add(str([[(x.text, x.label) for x in entities] for entities in found]))
    assert len(answers) > 1  # the strategies differ
