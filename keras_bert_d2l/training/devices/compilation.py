"""What XLA compiles, where JAX keeps it for the next run, and which attention it computes."""

import contextlib
import os
from collections.abc import Callable

import keras

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.devices import device
from keras_bert_d2l.files import user_cache
from keras_bert_d2l.layers.kernels.attention import obstacle


def choose_jit(*, fits: bool, say: Callable[[str], None]) -> bool:
    """Return whether XLA should compile the training step, which pays off on a GPU.

    JAX compiles the step in any case.

    Args:
        fits: Whether all batches have the same shape, so that one compilation is enough, and train
            on one device.
        say: Called with a line that states the choice and its reason, on a GPU.

    Example:

    ```python
    from keras_bert_d2l.training.devices.compilation import choose_jit

    jit = choose_jit(fits=True, say=print)
    ```
    """
    if keras.backend.backend() != "tensorflow" or device().platform != "gpu":
        return False
    choice = "yes, because there is a GPU"
    if not fits:
        choice = "no, because batches differ in length or are divided over devices"
    say(f"Compile with XLA: {choice}")
    return fits


def report_attention(config: BERTConfig, dtype: str, say: Callable[[str], None]) -> None:
    """Say how attention is computed in training, and why, with the JAX backend.

    Args:
        config: The architecture.
        dtype: The dtype of the computation.
        say: Called with the line.
    """
    if keras.backend.backend() != "jax":
        return
    rate = config.dropout if config.attention_dropout is None else config.attention_dropout
    reason = obstacle(dtype, config.num_hiddens // config.num_heads)
    if reason is None and rate:
        reason = f"flash attention requires attention_dropout=0 instead of {rate:g}"
    choice = "cuDNN's flash attention"
    if reason is not None:
        choice = f"with all weights in memory, because {reason}"
    say(f"Attention: {choice}")


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
