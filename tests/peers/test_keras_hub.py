"""KerasHub's `from_preset` loads our checkpoints, if it supports the architecture."""

import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, Vocab
from keras_bert_d2l.checkpoints.formats import huggingface
from keras_bert_d2l.checkpoints.weights import named_weights

keras_hub = pytest.importorskip("keras_hub", reason="needs KerasHub: make test-peers")

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat ##s".split())
# KerasHub ignores config.json and always uses tanh GELU and the epsilon of google-research/bert.
SMALL = BERTConfig.preset(
    "google",
    vocab_size=len(VOCAB),
    num_hiddens=16,
    ffn_num_hiddens=24,
    num_heads=2,
    num_blks=2,
    max_len=12,
)


@pytest.fixture
def model():
    model = BERTModel.from_bert_config(SMALL)
    rng = np.random.default_rng(0)
    for weight in named_weights(model).values():
        weight.assign(rng.normal(0.1, 0.2, weight.shape))
    return model


def test_keras_hub_backbone_gives_the_same_outputs(model, tmp_path):
    huggingface.write(model, tmp_path, VOCAB, {"lowercase": True})
    backbone = keras_hub.models.BertBackbone.from_preset(str(tmp_path))
    rng = np.random.default_rng(1)
    lens = np.array([10, 4])
    tokens = rng.integers(0, len(VOCAB), (2, 10), "int32")
    segments = rng.integers(0, 2, (2, 10), "int32")
    encoded = model.encoder(tokens, segments, lens)
    theirs = backbone(
        {
            "token_ids": tokens,
            "segment_ids": segments,
            "padding_mask": np.arange(10) < lens[:, None],
        }
    )
    np.testing.assert_allclose(theirs["sequence_output"], encoded, rtol=0, atol=1e-5)
    pooled = model.hidden(encoded[:, 0])
    np.testing.assert_allclose(theirs["pooled_output"], pooled, rtol=0, atol=1e-5)


def test_its_tokenizer_gives_the_same_ids(model, tmp_path):
    huggingface.write(model, tmp_path, VOCAB, {"lowercase": True})
    tokenizer = keras_hub.models.BertTokenizer.from_preset(str(tmp_path))
    assert list(tokenizer("The cats sat")) == VOCAB[["the", "cat", "##s", "sat"]]
