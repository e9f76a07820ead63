"""Several devices: `tf.distribute`, data parallelism with JAX, and several processes.

With JAX, several processes may train one model together. Each executes the same program on its
shard of every batch. `join` connects them first. All processes must call the functions that
communicate, in the same order.
"""

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import shown

_SHUTDOWN_SECONDS = 30  # the processes of a run end together, or abort
# How the messages of JAX begin if the communication fails.
_FAILURES = ("UNKNOWN:", "UNAVAILABLE:", "INTERNAL:", "ABORTED:", "DEADLINE_EXCEEDED:")


def join() -> None:
    """Connect this process to the others of its run, if JAX_NUM_PROCESSES is 2 or more.

    JAX_COORDINATOR_ADDRESS and JAX_PROCESS_ID describe them further. What is not set, JAX finds out
    from Slurm, Kubernetes, Open MPI or a Cloud TPU. It aborts the process after five minutes
    without the others.

    Raises:
        ValueError: The variables and the cluster do not describe the processes.
        RuntimeError: The Keras backend is not JAX, JAX has already computed something, or the
            processes cannot connect.
    """
    number, index = _number("JAX_NUM_PROCESSES"), _number("JAX_PROCESS_ID")
    if number in (None, 0, 1):
        return
    if keras.backend.backend() != "jax":
        raise RuntimeError(
            "Several processes train with the JAX backend of Keras only. Received: "
            f"JAX_NUM_PROCESSES={number} and the backend {keras.backend.backend()!r}; set "
            "KERAS_BACKEND=jax, or unset JAX_NUM_PROCESSES."
        )
    import jax

    jax.config.update("jax_enable_preemption_service", False)  # a run handles SIGTERM itself
    # It waits in C++, where Python would not handle Ctrl-C, and there is nothing to save.
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        jax.distributed.initialize(
            num_processes=number, process_id=index, shutdown_timeout_seconds=_SHUTDOWN_SECONDS
        )
    except ValueError as error:
        raise ValueError(
            f"The processes of the run are not known: {str(error).rstrip('.')}. Start them with "
            "Slurm, Kubernetes or Open MPI, or set JAX_COORDINATOR_ADDRESS (HOST:PORT), "
            "JAX_NUM_PROCESSES and JAX_PROCESS_ID."
        ) from error
    finally:
        signal.signal(signal.SIGINT, handler)


def _number(variable: str) -> int | None:
    value = os.environ.get(variable)
    if value is not None and not value.isdigit():
        raise ValueError(f"{variable} must be an integer of at least 0. Received: {shown(value)}.")
    return None if value is None else int(value)


def process() -> tuple[int, int]:
    """Return the index of this process and the number of processes."""
    if keras.backend.backend() != "jax":
        return 0, 1
    import jax

    return jax.process_index(), jax.process_count()


def is_first() -> bool:
    """Whether this is the process that writes the run folder and prints."""
    return process()[0] == 0


def gathered(*values: float) -> np.ndarray:
    """Return the values of all processes, which wait for each other.

    Returns: float64, a row per process.
    """
    own = np.array(values, "float64")
    if process()[1] == 1:
        return own[np.newaxis]
    from jax.experimental import multihost_utils

    words: np.ndarray = multihost_utils.process_allgather(own.view("uint32"))  # JAX has 32 bits
    return words.view("float64")


def wait_for_all() -> None:
    """Wait until all processes call this function."""
    gathered(0)


@contextlib.contextmanager
def reporting_lost_processes(advice: Callable[[], str]) -> Iterator[None]:
    """Raise `ChildProcessError` with advice if the communication with other processes fails."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # JAX raises either, depending on the operation
        if process()[1] == 1 or not str(error).startswith(_FAILURES):
            raise
        raise ChildProcessError(
            "Another process of this run has ended, so it cannot continue. The last checkpoint is "
            f"unchanged. {advice()}. JAX reports: {error!s:.200}"
        ) from error


def make_strategy(name: str | None) -> tf.distribute.Strategy | None:
    """Return the `tf.distribute` strategy for a name.

    Args:
        name: `None` (one device) or `"mirrored"` (all GPUs of this machine, or its CPU devices).

    Returns: the strategy, or `None` for one device.

    Raises:
        RuntimeError: The Keras backend is not TensorFlow.
    """
    if name is None:
        return None
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"The strategy {name!r} requires the TensorFlow backend of Keras. Received: the "
            f"backend {keras.backend.backend()!r}; unset KERAS_BACKEND or omit the strategy."
        )
    return _mirrored_strategy()


@contextlib.contextmanager
def distributed(devices: str | None) -> Iterator[None]:
    """Divide batches over the devices, with JAX.

    Models must be created and trained within the context.

    Args:
        devices: As the option `devices`. `None` means one device or, in several processes, all
            devices of all processes.

    Raises:
        RuntimeError: The Keras backend is not JAX.
    """
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


@contextlib.contextmanager
def undistributed() -> Iterator[None]:
    """Let all devices compute the same, on batches that cannot be divided."""
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)


def num_replicas(strategy: tf.distribute.Strategy | None) -> int:
    """Return the number of copies of the model, each of which trains on a part of the batch."""
    if keras.backend.backend() == "jax" and (distribution := keras.distribution.distribution()):
        replicas: int = distribution.num_model_replicas
        return replicas
    return 1 if strategy is None else strategy.num_replicas_in_sync


def check_batch_size(batch_size: int, replicas: int) -> None:
    """Raise `ValueError` unless the batch can be split evenly over the devices."""
    if batch_size % replicas:
        raise ValueError(
            "`batch_size` is the total over all devices and must be a multiple of the number of "
            "devices. Received: "
            f"batch_size={batch_size} for {replicas} devices."
        )


@functools.cache
def _mirrored_strategy() -> tf.distribute.Strategy:
    # Cached because TensorFlow mixes up the collective ops of two strategies in one process.
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.distribute.MirroredStrategy([d.name for d in tf.config.list_logical_devices(kind)])
