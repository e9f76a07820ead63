"""Functions that ask a model give the answers of transformers' pipelines for the same weights."""

import random

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.small import TWO_BLOCKS

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

# Outputs are also known in advance, in tests/inference and tests/tasks.
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
CONFIG = kb.BERTConfig.preset("huggingface", vocab_size=len(WORDS), max_len=64, **TWO_BLOCKS)


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


def test_filled_masks_equal_those_of_the_pipeline(tmp_path):
    ours, theirs = both(lambda bert: bert, tmp_path / "m", "fill-mask")
    for text in ("the [MASK] sat on a mat", "good [MASK] [MASK]s , a film"):
        found = kb.fill_mask(ours, text, top_k=9)
        expected = theirs(text, top_k=9)
        expected = expected if isinstance(expected[0], list) else [expected]
        for predictions, propositions in zip(found, expected, strict=True):
            assert [one.id for one in predictions] == [one["token"] for one in propositions]
            scores = [one["score"] for one in propositions]
            np.testing.assert_allclose([x.score for x in predictions], scores, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Truncated to")
@pytest.mark.parametrize("nli", [["contradiction", "neutral", "entailment"], ["Entails", "not"]])
@pytest.mark.parametrize("multi_label", [True, False])
def test_zero_shot_classification_equals_the_pipeline(nli, multi_label, tmp_path):
    ours, theirs = both(
        lambda bert: kb.SequenceClassifier(bert, nli), tmp_path / "m", "zero-shot-classification"
    )
    differences = []
    for labels in (["cat", "a good dog", "new london"], ["cat"]):
        for text in (*TEXTS[:6], "the cat sat on a mat . " * 20):
            one = kb.zero_shot(ours, text, labels, template="is {} !", multi_label=multi_label)
            expected = theirs(text, labels, hypothesis_template="is {} !", multi_label=multi_label)
            scores = [one.scores[label] for label in expected["labels"]]
            np.testing.assert_allclose(scores, expected["scores"], rtol=0, atol=1e-5)
            differences.append(np.ptp(scores))
    assert max(differences) > 0.01
