import numpy as np

from keras_bert_d2l.data.buckets import bucket


def test_a_bucketed_batch_contains_examples_of_similar_length():
    lengths = np.minimum(np.random.default_rng(0).geometric(0.05, 64 * 32) + 4, 64)
    order = bucket(lengths, batch_size=32, random=np.random.default_rng(0))
    assert sorted(order) == list(range(len(lengths)))
    spread = np.ptp(lengths[order].reshape(-1, 32), axis=1)
    assert np.median(spread) <= 1
