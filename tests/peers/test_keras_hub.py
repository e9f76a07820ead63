"""KerasHub's `from_preset` loads our checkpoints, if it supports the architecture."""

import dataclasses

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l import BERTConfig, Vocab
from keras_bert_d2l.checkpoints.formats import huggingface
from tests.checkpoints.small import TWO_BLOCKS, random_model

keras_hub = pytest.importorskip("keras_hub", reason="needs KerasHub: make test-peers")

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat ##s".split())
# KerasHub ignores config.json and always uses tanh GELU and the epsilon of google-research/bert.
SMALL = BERTConfig.preset("google", vocab_size=len(VOCAB), max_len=12, **TWO_BLOCKS)


@pytest.fixture
def model():
    return random_model(SMALL)


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


LENS = np.array([10, 4])
RNG = np.random.default_rng(1)
BATCH = {
    "tokens": RNG.integers(0, len(VOCAB), (2, 10), "int32"),
    "segments": RNG.integers(0, 2, (2, 10), "int32"),
    "valid_lens": LENS,
}
THEIR_BATCH = {
    "token_ids": BATCH["tokens"],
    "segment_ids": BATCH["segments"],
    "padding_mask": np.arange(10) < LENS[:, None],
}
# It warns that the files have no state of an optimizer, and about the heads that it does not have.
IGNORED = pytest.mark.filterwarnings("ignore:Skipping variable loading", "ignore:KerasHub cannot")


@IGNORED
def test_a_preset_of_a_classifier_gives_the_same_outputs_and_tokens(model, tmp_path):
    tokenizer = kb.Tokenizer(VOCAB)
    classifier = kb.SequenceClassifier(model, ["a", "b", "c"])
    kb.save_pretrained(classifier, tmp_path / "preset", tokenizer=tokenizer, format="kerashub")
    loaded = keras_hub.models.BertTextClassifier.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(loaded(THEIR_BATCH), classifier(BATCH), rtol=0, atol=1e-5)
    rows = loaded.preprocessor(["The cats [MASK] sat"])["token_ids"]
    expected = tokenizer.tokenize(["The cats [MASK] sat"])[0].numpy().tolist()
    assert rows[0].numpy().tolist() == [2, *expected, 3, *[0] * (10 - len(expected))]


@IGNORED
def test_a_preset_of_a_bert_gives_the_same_outputs(tmp_path):
    config = dataclasses.replace(SMALL, mlm_activation="gelu", mlm_layer_norm_epsilon=1e-5)
    bert = random_model(config)
    kb.save_pretrained(bert, tmp_path / "mlm", tokenizer=kb.Tokenizer(VOCAB), format="kerashub")
    positions = np.array([[1, 5], [3, 0]])
    loaded = keras_hub.models.BertMaskedLM.from_preset(str(tmp_path / "mlm"))
    encoded, logits, _ = bert(*BATCH.values(), positions)
    theirs = loaded({**THEIR_BATCH, "mask_positions": positions})
    np.testing.assert_allclose(theirs, logits, rtol=0, atol=1e-5)
    outputs = keras_hub.models.BertBackbone.from_preset(str(tmp_path / "mlm"))(THEIR_BATCH)
    np.testing.assert_allclose(outputs["sequence_output"], encoded, rtol=0, atol=1e-5)
    pooled = bert.hidden(encoded[:, 0])
    np.testing.assert_allclose(outputs["pooled_output"], pooled, rtol=0, atol=1e-5)


@IGNORED
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_a_preset_of_an_embedder_gives_the_same_vectors(model, tmp_path, pooling):
    embedder = kb.TextEmbedder(model, pooling, normalize=pooling == "mean", max_len=8)
    embedder.tokenizer = kb.Tokenizer(VOCAB)
    kb.save_pretrained(embedder, tmp_path / "preset", format="kerashub")
    loaded = keras_hub.models.TextEmbedder.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(loaded(THEIR_BATCH), embedder(BATCH), rtol=0, atol=1e-5)
    texts = ["the cats sat", "a cat sat on the mat the cat sat"]  # the second is truncated
    np.testing.assert_allclose(loaded.encode_text(texts), embedder.predict(texts), atol=1e-5)
