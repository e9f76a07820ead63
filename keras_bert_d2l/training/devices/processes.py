"""Several processes that train one model together, with JAX.

Each process executes the same program on its shard of every batch. `join` connects them first. All
processes must call the functions that communicate, in the same order.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator

import keras
import numpy as np

_SHUTDOWN_SECONDS = 30  # the processes of a run end together, or abort
# How the messages of JAX begin if the communication fails.
_FAILURES = ("UNKNOWN:", "UNAVAILABLE:", "INTERNAL:", "ABORTED:", "DEADLINE_EXCEEDED:")


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
