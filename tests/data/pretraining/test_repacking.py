import keras
import numpy as np
import pytest

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.packing import Repacking
from keras_bert_d2l.models.bert import BERTModel

MAX_LEN, NUM_PREDICTIONS, VOCAB_SIZE = 12, 3, 40


def make_batch(num_examples=9, seed=0, longest=MAX_LEN):
    """Return examples of random lengths; some of them have no predictions."""
    random = np.random.default_rng(seed)
    lengths = random.integers(3, longest + 1, num_examples)
    is_real = np.arange(MAX_LEN) < lengths[:, None]
    tokens = random.integers(5, VOCAB_SIZE, is_real.shape) * is_real
    predictions = random.integers(0, NUM_PREDICTIONS + 1, num_examples)
    shape = (num_examples, NUM_PREDICTIONS)
    weights = (np.arange(NUM_PREDICTIONS) < predictions[:, None]).astype("float32")
    features = {
        "tokens": tokens,
        "segments": (np.arange(MAX_LEN) > lengths[:, None] // 2) & is_real,
        "valid_lens": lengths,
        "pred_positions": random.integers(0, lengths[:, None], shape) * (weights > 0),
    }
    labels = {
        "mlm": random.integers(5, VOCAB_SIZE, shape),
        "nsp": random.integers(0, 2, num_examples),
    }
    return features, labels, {"mlm": weights, "nsp": np.ones(num_examples, "float32")}


@pytest.mark.slow
def test_a_training_step_is_the_same_on_the_packed_batch():
    batch, weights = make_batch(), []
    packed = Repacking(2 * MAX_LEN)(*batch)
    assert len(packed[0]["tokens"]) < len(batch[0]["tokens"])
    for examples in (batch, packed):
        keras.utils.set_random_seed(0)
        config = BERTConfig(VOCAB_SIZE, 8, 16, num_heads=2, num_blks=1, dropout=0.0, max_len=24)
        model = BERTModel.from_bert_config(config)
        model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
        model.train_on_batch(*examples)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_shapes_change_only_if_a_batch_needs_more_room():
    repacking = Repacking(2 * MAX_LEN)

    def shape_of(**options):
        features, *_ = repacking(*make_batch(**options))
        return features["tokens"].shape, features["flat_positions"].shape

    first = shape_of(num_examples=40)
    assert shape_of(num_examples=30, seed=1) == first
    more = shape_of(num_examples=80)
    assert more > first
    assert shape_of(num_examples=40) == more
