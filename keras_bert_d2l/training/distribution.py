"""Training on several devices: strategies of `tf.distribute`, and data parallelism with JAX."""

import contextlib
import functools
import json
import os
from collections.abc import Iterator

import keras
import tensorflow as tf

from keras_bert_d2l.training.processes import process


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


@contextlib.contextmanager
def data_parallel(devices: str | None) -> Iterator[None]:
    """Divide batches over the devices of all processes, with JAX.

    Models must be created and trained within the context.

    Args:
        devices: `"data"` for all devices of this process, or `None` for one device. In several
            processes, all devices of all processes are used.

    Raises:
        RuntimeError: The Keras backend is not JAX, or TF_CONFIG describes several workers.
    """
    check_tf_config()
    if devices is None and process()[1] == 1:
        yield
        return
    if keras.backend.backend() != "jax":
        raise RuntimeError(
            f"devices={devices!r} requires the JAX backend of Keras. Received: the backend "
            f"{keras.backend.backend()!r}; set KERAS_BACKEND=jax, or use strategy='mirrored'."
        )
    with keras.distribution.DataParallel(auto_shard_dataset=False).scope():
        yield


def check_tf_config() -> None:
    """Raise `RuntimeError` if TF_CONFIG describes workers that would not find each other."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
        workers = sum(len(cluster.get(kind, ())) for kind in ("chief", "worker"))
    except (ValueError, AttributeError, TypeError):  # it is not read otherwise
        return
    if workers > 1 and process()[1] == 1:
        raise RuntimeError(
            "With TensorFlow, Keras cannot train in several processes. Received: TF_CONFIG with "
            f"{workers} workers. Run `keras-bert-d2l launch pretrain` in each of them, which uses "
            "JAX (docs/accelerators.md), or unset TF_CONFIG."
        )


def num_replicas(strategy: tf.distribute.Strategy | None) -> int:
    """Return the number of devices that train the model."""
    if keras.backend.backend() == "jax" and (distribution := keras.distribution.distribution()):
        replicas: int = distribution.num_model_replicas
        return replicas
    return 1 if strategy is None else strategy.num_replicas_in_sync


def check_batch_size(batch_size: int, replicas: int) -> None:
    """Raise `ValueError` unless the batch can be split evenly over the devices."""
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
