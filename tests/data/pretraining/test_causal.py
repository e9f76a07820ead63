"""Causal rows: comparison with a plain loop, and no token that a prediction could copy."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import next_tokens, pretraining_dataset
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from tests.nightly import nightly_except

PAD, SEP = 0, 2
DOCUMENTS = [[f"a{n} b{n} c{n} d", f"e{n} f g"] for n in range(12)]
WORDS = sorted({word for document in DOCUMENTS for text in document for word in text.split()})
TOKENIZER = Tokenizer(Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))


def test_every_token_of_an_example_but_the_first_is_a_label():
    tokens = np.array([[1, 7, 8, SEP, 1, 9, SEP, PAD], [1, 5, 6, 7, 8, 9, 4, SEP]], np.int32)
    example_ids = np.array([[1, 1, 1, 1, 2, 2, 2, 0], [1] * 8], np.int32)
    valid_lens = np.array([7, 8], np.int32)
    rows = next_tokens(
        *map(tf.constant, (tokens, valid_lens, example_ids)), not_predicted=[PAD, 1, SEP]
    )
    expected = np.zeros((2, 7), int)
    for row, place in np.ndindex(2, 7):
        is_same = example_ids[row, place] == example_ids[row, place + 1] > 0
        if is_same and tokens[row, place + 1] not in (PAD, 1, SEP):
            expected[row, place] = tokens[row, place + 1]
    np.testing.assert_array_equal(rows.labels, expected)
    np.testing.assert_array_equal(rows.weights, expected > 0)
    np.testing.assert_array_equal(rows.positions, [range(7)] * 2)
    np.testing.assert_array_equal(rows.tokens, tokens)


@pytest.mark.parametrize("rows", nightly_except({"packed"}, ["padded", "packed", "bucketed"]))
def test_a_prediction_depends_on_the_tokens_before_it_only(rows, tmp_path):
    dataset = pretraining_dataset(
        DOCUMENTS,
        TOKENIZER,
        batch_size=4,
        max_len=24,
        objective="none",
        causal=True,
        rows=rows,
        cache_dir=tmp_path,
    )
    features, labels, weights = next(iter(dataset))
    assert features["pred_positions"].shape == labels["mlm"].shape == weights["mlm"].shape
    assert not np.any(features["tokens"] == TOKENIZER.vocab.mask_id)
    special = TOKENIZER.vocab.special_ids
    predicted = labels["mlm"].numpy()[weights["mlm"].numpy() > 0]
    words = features["tokens"].numpy()[~np.isin(features["tokens"], special)]
    assert sorted(predicted) == sorted(words)  # each once
    config = BERTConfig.preset("tiny", vocab_size=len(TOKENIZER.vocab), max_len=24)
    model = BERTModel.from_bert_config(config.with_dropout(0.0))
    before = model(features)["mlm"].numpy()
    place = 3
    changed = features["tokens"].numpy().copy()
    changed[:, place] = 5
    after = model({**features, "tokens": tf.constant(changed)})["mlm"].numpy()
    np.testing.assert_allclose(after[:, :place], before[:, :place], atol=1e-5)
    assert np.all(np.abs(after - before)[:, place].max(axis=-1) > 1e-3)
    if rows == "packed":
        ids = features["example_ids"].numpy()
        later = ids[:, place + 1 : -1]
        is_other = (later != ids[:, [place]]) & (later > 0)
        assert is_other.any()
        changes = np.abs(after - before)[:, place + 1 :].max(axis=-1)
        assert np.all(changes[is_other] < 1e-5)
