"""Training on several devices with `tf.distribute`: create a strategy and check the batch size."""

import contextlib
import functools

import keras
import tensorflow as tf


def make_strategy(name: str | None, tpu: str | None = None) -> tf.distribute.Strategy | None:
    """Return the `tf.distribute` strategy for a name.

    Args:
        name: `None` (one device), `"mirrored"` (all GPUs of this machine, or its CPU devices) or
            `"tpu"`.
        tpu: Name or address of the TPU. `None` means the TPU of this machine (a TPU VM).

    Returns: the strategy, or `None` for one device.

    Raises:
        RuntimeError: The device does not exist, or the Keras backend is not TensorFlow.
    """
    if name is None:
        return None
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"The strategy {name!r} requires the TensorFlow backend of Keras. Received: the "
            f"backend {keras.backend.backend()!r}; unset KERAS_BACKEND or omit the strategy."
        )
    return _tpu_strategy(tpu or "local") if name == "tpu" else _mirrored_strategy()


def scope_of(strategy: tf.distribute.Strategy | None) -> contextlib.AbstractContextManager[object]:
    """Return the context manager under which to create a model for the strategy."""
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def num_replicas(strategy: tf.distribute.Strategy | None) -> int:
    """Return the number of devices that train the model."""
    return 1 if strategy is None else strategy.num_replicas_in_sync


def check_batch_size(batch_size: int, strategy: tf.distribute.Strategy | None) -> None:
    """Raise `ValueError` unless the batch can be split evenly over the devices."""
    replicas = num_replicas(strategy)
    if batch_size % replicas:
        raise ValueError(
            "`batch_size` is the total over all devices and must be a multiple of the "
            f"number of devices. Received: batch_size={batch_size} for {replicas} devices."
        )


@functools.cache
def _mirrored_strategy() -> tf.distribute.Strategy:
    # Cached because TensorFlow mixes up the collective ops of two strategies in one process.
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.distribute.MirroredStrategy([d.name for d in tf.config.list_logical_devices(kind)])


def _tpu_strategy(tpu: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # connecting can raise many types of exceptions
        raise RuntimeError(
            f"Cannot connect to the TPU {tpu!r}: {str(error).partition('. ')[0]:.200}. Training "
            "on a TPU requires a TPU VM with the package tensorflow-tpu, or a reachable TPU's name."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
