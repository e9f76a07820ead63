"""Devices: the name of a strategy in, a `tf.distribute` strategy out."""

import contextlib
import functools
from typing import Any

import keras
import tensorflow as tf


def make_strategy(name: str | None, tpu: str | None = None) -> Any:
    """Returns the strategy that spreads the training over devices.

    Args:
        name: `None` (one device), `"mirrored"` (all GPUs of this machine, or its CPU devices) or
            `"tpu"`.
        tpu: Name or address of the TPU; `None`: `"local"`, the one of the machine (a TPU VM).

    Returns: a `tf.distribute.Strategy`, or `None` for one device.

    Raises:
        RuntimeError: There is no such device, or the backend of Keras is not TensorFlow.
    """
    if name is None:
        return None
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"The strategy {name!r} needs the TensorFlow backend of Keras. Received: the backend "
            f"{keras.backend.backend()!r}; unset KERAS_BACKEND, or train without a strategy."
        )
    if name == "tpu":
        return _tpu_strategy(tpu or "local")
    return _mirrored_strategy()


def scope_of(strategy: Any) -> contextlib.AbstractContextManager[Any]:
    """Returns the context in which a model for the strategy is made."""
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def check_batch_size(batch_size: int, strategy: Any) -> None:
    """Raises `ValueError` unless the devices get equal shares of a batch."""
    replicas = 1 if strategy is None else strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise ValueError(
            "`batch_size` counts the rows on all devices together and must be a multiple of their "
            f"number. Received: batch_size={batch_size} for {replicas} devices."
        )


@functools.cache
def _mirrored_strategy() -> tf.distribute.Strategy:
    # One for the whole process: a second one would number its collective operations from the start
    # again, and TensorFlow would take those of both for the same.
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.distribute.MirroredStrategy([d.name for d in tf.config.list_logical_devices(kind)])


def _tpu_strategy(tpu: str) -> Any:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # of TensorFlow, of the network, of the cloud's metadata
        raise RuntimeError(
            f"The TPU {tpu!r} cannot be used: {str(error).partition('. ')[0]:.200}. It takes a TPU "
            "VM with the package tensorflow-tpu, or the name of a TPU in reach."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
