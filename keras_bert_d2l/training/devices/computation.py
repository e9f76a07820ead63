"""How a run computes: precision, XLA, the cache of JAX, and random seeds."""

import contextlib
import math
import os
import random
import time
from collections.abc import Iterator

import keras
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.devices import AMPERE, device
from keras_bert_d2l.files import user_cache
from keras_bert_d2l.training.options import Precision

_MIN_SPEEDUP = 1.2  # in exchange for fewer digits
_MIN_HIDDENS = 128  # narrower products take less time than the casts
_MAX_TOKENS, _MAX_PRODUCTS = 1024, 2**30  # limits of a timed matrix product
_SECONDS = 0.12


def choose_precision(config: BERTConfig, num_tokens: int, *, jit: bool = False) -> Precision:
    """Return the faster of float32 and mixed_bfloat16 for training on this machine.

    On a CPU, this times the largest matrix product of a block, with its gradients, in
    both dtypes. CPU flags do not tell: some CPUs with AVX512_BF16 multiply bfloat16 at half the
    speed of float32. On a GPU or a TPU, its generation decides. XLA on a CPU gains nothing from
    bfloat16.

    Args:
        config: The architecture.
        num_tokens: Tokens per batch.
        jit: Whether XLA compiles the training step.

    Example:

    ```python
    import keras_bert_d2l as kb
    from keras_bert_d2l.training.devices.computation import choose_precision

    dtype = choose_precision(kb.BERTConfig.preset("mini"), num_tokens=32 * 128)
    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("mini"), dtype=dtype)
    ```
    """
    platform, capability = device()
    is_faster = platform == "tpu" or (platform == "gpu" and capability >= AMPERE)
    is_measured = platform == "cpu" and not jit and keras.backend.backend() == "tensorflow"
    if is_measured and config.num_hiddens >= _MIN_HIDDENS:
        sizes = config.num_hiddens, config.ffn_num_hiddens
        is_faster = bfloat16_speedup(*sizes, num_tokens) >= _MIN_SPEEDUP
    return "mixed_bfloat16" if is_faster else "float32"


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


def choose_jit() -> bool:
    """Return whether XLA should compile the training step, which pays off on a GPU.

    JAX compiles the step in any case.
    """
    return keras.backend.backend() == "tensorflow" and device().platform == "gpu"


def prepare_jax() -> None:
    """Let JAX have the GPUs and keep what it compiles, if it is the Keras backend.

    Compiled steps are kept in the user's cache folder, unless JAX_COMPILATION_CACHE_DIR or
    `jax.config` names another folder, so that the next run starts sooner.
    """
    if keras.backend.backend() != "jax":
        return
    import jax
    import tensorflow as tf
    from jax.experimental.compilation_cache import compilation_cache

    with contextlib.suppress(RuntimeError):  # TensorFlow has already been used
        tf.config.set_visible_devices([], "GPU")  # it would reserve their memory
    if jax.config.jax_compilation_cache_dir is None:  # nor has the variable set it
        jax.config.update("jax_compilation_cache_dir", os.fspath(user_cache() / "compiled"))
        compilation_cache.reset_cache()  # JAX decides about caching when it first compiles


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generator from which Keras draws its seeds, and restore its state afterwards."""
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
