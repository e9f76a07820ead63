"""Random numbers for masking that depend on a row's key, not on its position in a batch.

TensorFlow's own generators take one seed for the entire tensor, so the numbers of a row would
depend on the other rows. Here, each number is a hash of the key, the stream and a counter.
"""

import numpy as np
import tensorflow as tf

# Each kind of decision has its own stream, so no two decisions share random numbers.
CHOICE, UNIT_LENGTH, COUNT, REPLACEMENT = (stream << 32 for stream in range(4))


def uniform(keys: tf.Tensor, stream: int, index: tf.Tensor) -> tf.Tensor:
    """Return random numbers in [0, 1), computed with the hash function of SplitMix64.

    Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".

    Args:
        keys: int64 `(B,)`, one random key per row.
        stream: One of the streams above.
        index: int32 `(N,)` or `(B, N)`, the indices of the numbers in the stream. A row gets the
            same number for the same index in both forms.

    Returns:
        float64 `(B, N)`.
    """
    counter = tf.cast(index, tf.uint64) + tf.constant(stream + 1, tf.uint64)
    bits = tf.bitcast(keys, tf.uint64)[:, None] + counter * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint64(shift)))
        bits *= np.uint64(factor)
    # A float64 has room for the upper 53 bits. SplitMix64's last step, which only changes the
    # lower 33 bits, is omitted.
    return tf.cast(tf.bitwise.right_shift(bits, np.uint64(11)), tf.float64) * 2.0**-53
