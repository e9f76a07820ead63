"""How a run uses the machine: precision, XLA, random seeds, several devices and processes.

Several devices train by `tf.distribute`, or by data parallelism with JAX. With JAX, several
processes may train one model together. Each executes the same program on its shard of every batch.
`join` connects them first. All processes must call the functions that communicate, in the same
order.
"""

import contextlib
import functools
import math
import os
import random
import signal
import time
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import check_that, shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.devices import AMPERE, device
from keras_bert_d2l.files import user_cache
from keras_bert_d2l.training.options import Precision

_MIN_SPEEDUP = 1.2  # in exchange for fewer digits
_MIN_HIDDENS = 128  # narrower products take less time than the casts
_MAX_TOKENS, _MAX_PRODUCTS = 1024, 2**30  # limits of a timed matrix product
_SECONDS = 0.12
_SHUTDOWN_SECONDS = 30  # the processes of a run end together, or abort


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
    from keras_bert_d2l.training.devices import choose_precision

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


def prepare_jax() -> None:
    """Let JAX have the GPUs and keep what it compiles, if it is the Keras backend.

    Compiled steps are kept in the user's cache folder, unless JAX_COMPILATION_CACHE_DIR or
    `jax.config` names another folder, so that the next run starts sooner.
    """
    if keras.backend.backend() != "jax":
        return
    import jax
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


@functools.cache  # because TensorFlow mixes up the collective ops of two strategies in one process
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
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.distribute.MirroredStrategy([d.name for d in tf.config.list_logical_devices(kind)])


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
    expected = f"a multiple of the number of devices, {replicas}"
    is_right, advice = batch_size % replicas == 0, "It is the total over all devices."
    check_that(is_right, "batch_size", expected, batch_size, advice)
