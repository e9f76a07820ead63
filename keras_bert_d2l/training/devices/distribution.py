"""Several devices: `tf.distribute`, data and model parallelism with JAX, and several processes.

With JAX, several processes may train one model together. Each executes the same program on its
shard of every batch. `join` connects them first. All processes must call the functions that
communicate, in the same order.
"""

import contextlib
import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.training.options import axis_sizes

_SHUTDOWN_SECONDS = 30  # the processes of a run end together, or abort
# How the messages of JAX begin if the communication fails.
_FAILURES = ("UNKNOWN:", "UNAVAILABLE:", "INTERNAL:", "ABORTED:", "DEADLINE_EXCEEDED:")
_Distribution: TypeAlias = keras.distribution.DataParallel | keras.distribution.ModelParallel
# How the weights are divided over the model axis (Shoeybi et al. 2019, section 3): the first kernel
# of a sublayer by its outputs, which are whole heads, and the second one by its inputs. Embeddings
# and the output kernel are divided by the hidden width, a multiple of the number of heads, because
# a vocabulary has any size. All other weights are small, and every device has them.
_LAYOUTS: Mapping[str, tuple[str | None, ...]] = {
    r".*/attention/W_[qkv]/kernel": (None, "model"),
    r".*/attention/W_[qkv]/bias": ("model",),
    r".*/attention/W_o/kernel": ("model", None),
    r".*/ffn/dense1/kernel": (None, "model"),
    r".*/ffn/dense1/bias": ("model",),
    r".*/ffn/dense2/kernel": ("model", None),
    r".*/token_embedding/embeddings": (None, "model"),
    r"(.*/)?mlm/mlp/logits/kernel": ("model", None),
}


def join() -> None:
    """Connect this process to the others of its run.

    The variables JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID describe them. What
    is not set, JAX finds out from Slurm, Kubernetes, Open MPI or a Cloud TPU.

    Raises:
        ValueError: The variables and the cluster do not describe the processes.
        RuntimeError: JAX has already computed something, or the processes cannot connect.
    """
    try:
        import jax
    except ImportError as error:
        raise ImportError(
            'Several processes need JAX. Install it with: pip install "keras-bert-d2l[jax]".'
        ) from error

    jax.config.update("jax_enable_preemption_service", False)  # a run handles SIGTERM itself
    number, index = _number("JAX_NUM_PROCESSES"), _number("JAX_PROCESS_ID")
    address = os.environ.get("JAX_COORDINATOR_ADDRESS")
    if address is not None and not re.search(r".:\d+$", address):
        raise ValueError(f"JAX_COORDINATOR_ADDRESS must be HOST:PORT. Received: {address!r}.")
    try:
        jax.distributed.initialize(
            num_processes=number, process_id=index, shutdown_timeout_seconds=_SHUTDOWN_SECONDS
        )
    except ValueError as error:
        raise ValueError(
            f"The processes of the run are not known: {str(error).rstrip('.')}. Start them with "
            "`--processes` on this machine, run `launch` under Slurm, Kubernetes or Open MPI, or "
            "set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID."
        ) from error


def _number(variable: str) -> int | None:
    value = os.environ.get(variable)
    if value is not None and not value.isdigit():
        raise ValueError(f"{variable} must be an integer of at least 0. Received: {value!r}.")
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
def distributed(devices: str | None) -> Iterator[None]:
    """Divide batches, and with a model axis also weights, over the devices, with JAX.

    Models must be created and trained within the context.

    Args:
        devices: As the option `devices`. `None` means one device or, in several processes, all
            devices of all processes.

    Raises:
        RuntimeError: The Keras backend is not JAX, or TF_CONFIG describes several workers.
        ValueError: `devices` does not match the devices or the processes.
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
    with _distribution(devices or "data").scope():
        yield


def _distribution(devices: str) -> _Distribution:
    number = len(keras.distribution.list_devices())
    data, model = axis_sizes(devices)
    data = number if data is None else data
    if data * model != number:
        raise ValueError(
            "The product of the sizes in `devices` must be the number of devices. Received: "
            f"devices={devices!r} for {number} devices. Change the sizes, or use devices='data'."
        )
    if model == 1:
        return keras.distribution.DataParallel(auto_shard_dataset=False)
    if process()[1] > 1:
        raise ValueError(
            "Only one process can divide the weights over its devices. Received: "
            f"devices={devices!r} in {process()[1]} processes. Use devices='data', or one process "
            "for all devices of a machine."
        )
    mesh = keras.distribution.DeviceMesh((data, model), ("data", "model"))
    layouts = keras.distribution.LayoutMap(mesh)
    for path, axes in _LAYOUTS.items():
        layouts[path] = axes
    return keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="data", auto_shard_dataset=False
    )


@contextlib.contextmanager
def undistributed() -> Iterator[None]:
    """Let all devices compute the same, on batches that cannot be divided."""
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)


def check_architecture(config: BERTConfig) -> None:
    """Raise `ValueError` unless the weights can be split evenly over the model axis."""
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel):
        return
    size = distribution.device_mesh.shape[1]
    for name in ("num_heads", "ffn_num_hiddens"):
        if getattr(config, name) % size:
            raise ValueError(
                f"With model={size} in `devices`, `{name}` of the architecture must be a multiple "
                f"of {size}. Received: {name}={getattr(config, name)}. Choose a divisor for the "
                "model axis, or devices='data'."
            )


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
            f"{workers} workers. Put `launch` before the command, as in `keras-bert-d2l launch "
            "pretrain`, and run it in each of them; it uses JAX (docs/accelerators.md). Or unset "
            "TF_CONFIG."
        )


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
            "devices, or of the size of their data axis. Received: "
            f"batch_size={batch_size} for {replicas} devices."
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
