"""Measure how fast this machine multiplies matrices, in TensorFlow graphs: the ceiling of a model.

Prints the billions of multiplications and additions per second in a dtype: float32, bfloat16 or
int8. Where TensorFlow has no kernel for the processor, this fails or aborts, so that each dtype
needs a process of its own.

    python -m benchmarks.ceilings int8
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
import tensorflow as tf

ROWS, WIDTH, OUTPUTS = 1024, 768, 3072  # the largest product of a block of BERT base
SECONDS = 1.0  # for each dtype
GIGA_OPERATIONS = 2 * ROWS * WIDTH * OUTPUTS / 1e9


def product(dtype: str) -> tf.types.experimental.GenericFunction:
    """Return a function that multiplies two constant matrices of a dtype."""
    random = tf.random.Generator.from_seed(0)
    if dtype == "int8":
        x = tf.bitcast(
            tf.cast(random.uniform((ROWS, WIDTH), 1, 255, tf.int32), tf.uint8), tf.quint8
        )
        kernel = random.uniform((WIDTH, OUTPUTS), -127, 127, tf.int32)
        weights = tf.bitcast(tf.cast(kernel, tf.int8), tf.qint8)
        bias = tf.bitcast(tf.zeros(OUTPUTS, tf.int32), tf.qint32)
        scales = {"min_a": 0.0, "max_a": 255.0, "min_b": -127.0, "max_b": 127.0}
        return tf.function(
            lambda: tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
                a=x,
                b=weights,
                bias=bias,
                **scales,
                min_freezed_output=0.0,
                max_freezed_output=1.0,
                Toutput=tf.float32,
                input_quant_mode="SCALED",
            )
        )
    x = tf.Variable(tf.cast(random.normal((ROWS, WIDTH)), dtype))
    weights = tf.Variable(tf.cast(random.normal((WIDTH, OUTPUTS)), dtype))
    return tf.function(lambda: tf.matmul(x, weights))


def ceiling(dtype: str) -> int:
    """Return the speed of the fastest of many products."""
    multiply, best = product(dtype), float("inf")
    multiply()  # builds the graph
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        start = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - start)
    return round(GIGA_OPERATIONS / best)


if __name__ == "__main__":
    print(ceiling(sys.argv[1]))
