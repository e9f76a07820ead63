"""The numerical precision of training, chosen by measuring."""

import math
import time
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.devices import AMPERE, device
from keras_bert_d2l.training.option_records import Precision

_MIN_SPEEDUP = 1.2  # in exchange for fewer digits
_MIN_HIDDENS = 128  # narrower products take less time than the casts
_MAX_TOKENS, _MAX_PRODUCTS = 1024, 2**30  # limits of a timed matrix product
_SECONDS = 0.12


def choose_precision(
    config: BERTConfig, num_tokens: int, *, jit: bool = False, say: Callable[[str], None] = print
) -> Precision:
    """Return the faster of float32 and mixed_bfloat16 for training on this machine.

    On a CPU, this times the largest matrix product of a block, with its gradients, in
    both dtypes. CPU flags do not tell: some CPUs with AVX512_BF16 multiply bfloat16 at half the
    speed of float32. On a GPU or a TPU, its generation decides. XLA on a CPU gains nothing from
    bfloat16.

    Args:
        config: The architecture.
        num_tokens: Tokens per batch.
        jit: Whether XLA compiles the training step.
        say: Called with a line that states the choice and its reason.

    Example:

    ```python
    import keras_bert_d2l as kb
    from keras_bert_d2l.training.devices.precision import choose_precision

    dtype = choose_precision(kb.BERTConfig.preset("mini"), num_tokens=32 * 128)
    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("mini"), dtype=dtype)
    ```
    """
    is_faster, reason = _bfloat16(config, num_tokens, jit)
    precision: Precision = "mixed_bfloat16" if is_faster else "float32"
    say(f"Precision: {precision}, because {reason}")
    return precision


def _bfloat16(config: BERTConfig, num_tokens: int, jit: bool) -> tuple[bool, str]:
    """Return whether bfloat16 is worth it, and why."""
    backend = keras.backend.backend()
    platform, capability = device()
    if platform == "unknown":
        return False, f"bfloat16 is not measured on the {backend} backend"
    if platform == "tpu":
        return True, "TPUs multiply bfloat16"
    if platform == "gpu":
        version = ".".join(map(str, capability)) or "unknown"
        return capability >= AMPERE, f"the GPU has compute capability {version}"
    if jit or backend == "jax":
        return False, "XLA gains nothing from bfloat16 on a CPU"
    if config.num_hiddens < _MIN_HIDDENS:
        return False, "the model is too small to gain from bfloat16"
    speedup = bfloat16_speedup(config.num_hiddens, config.ffn_num_hiddens, num_tokens)
    return speedup >= _MIN_SPEEDUP, f"bfloat16 is {speedup:.1f} times as fast here as float32"


def bfloat16_speedup(num_hiddens: int, ffn_num_hiddens: int, num_tokens: int) -> float:
    """Time the product of a batch and a kernel, and its gradients: float32 / bfloat16."""
    rows = max(1, min(num_tokens, _MAX_TOKENS, _MAX_PRODUCTS // (num_hiddens * ffn_num_hiddens)))
    inputs = tf.ones((rows, num_hiddens))
    kernel = tf.Variable(tf.ones((num_hiddens, ffn_num_hiddens)), trainable=False)
    gradient = tf.ones((rows, ffn_num_hiddens))

    @tf.function(autograph=False)
    def step(x: tf.Tensor, dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        weights = tf.cast(kernel, x.dtype)
        dw = tf.matmul(x, dy, transpose_a=True)
        return x @ weights, tf.matmul(dy, weights, transpose_b=True), tf.cast(dw, "float32")

    dtypes = "float32", "bfloat16"
    arrays = [(tf.cast(inputs, dtype), tf.cast(gradient, dtype)) for dtype in dtypes]
    for both in arrays:
        step(*both)  # traces the function
    best, until = [math.inf, math.inf], time.perf_counter() + _SECONDS
    while time.perf_counter() < until:
        for number, both in enumerate(arrays):
            start = time.perf_counter()
            step(*both)
            best[number] = min(best[number], time.perf_counter() - start)
    return best[0] / best[1]
