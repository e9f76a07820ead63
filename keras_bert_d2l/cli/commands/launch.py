"""`keras-bert-d2l launch`."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO, Annotated

from cyclopts import Parameter

from keras_bert_d2l.checks import shown
from keras_bert_d2l.cli.arguments import PositiveInt

_POLL_SECONDS = 0.1
_CONNECTION_SECONDS = 280  # after 300, JAX aborts the process with a stack trace
_GRACE_SECONDS = 60  # for the processes to end after one has failed or the launcher was killed
_LAUNCHED = "_KERAS_BERT_D2L_LAUNCHED"  # is set in the processes that a launcher starts


def launch(
    *command: Annotated[str, Parameter(name="COMMAND", allow_leading_hyphen=True)],
    processes: PositiveInt | None = None,
) -> int | None:
    """Train one model in several processes, with the JAX backend.

    The processes divide the rows of every batch, so the result is that of a single process. The
    first process writes the run folder. Ctrl-C and SIGTERM save the run in all processes, which
    can then continue in a different number of processes.

    On a cluster, run `launch` once per process without --processes. The processes find each other
    by Slurm, Kubernetes or Open MPI, or by the variables JAX_COORDINATOR_ADDRESS (HOST:PORT of the
    first process), JAX_NUM_PROCESSES and JAX_PROCESS_ID.

    For example:

    - `keras-bert-d2l launch --processes 2 pretrain my_text/ --run-dir runs/mine`
    - `keras-bert-d2l launch --processes 4 pretrain --resume runs/mine`
    - `keras-bert-d2l launch --processes 2 finetune classify --train reviews.tsv --model minilm
      --run-dir runs/reviews`
    - `srun keras-bert-d2l launch pretrain my_text/ --run-dir runs/mine`

    Args:
        command: The command `pretrain` or `finetune`, and its arguments.
        processes: Number of processes to start on this machine. [default: join the other
            processes of a cluster]
    """
    if command[:1] not in (("pretrain",), ("finetune",)):
        raise ValueError(
            "launch runs the commands pretrain and finetune, which train in several processes. "
            f"Received: {shown(command[0] if command else 'no command')}."
        )
    if "--peek" in command:
        raise ValueError("--peek does not train; omit `launch`.")
    os.environ["KERAS_BACKEND"] = "jax"
    if processes is not None:
        return _run_all(command, processes)
    if os.environ.pop(_LAUNCHED, None):
        threading.Thread(target=_end_with_launcher, daemon=True).start()
    from keras_bert_d2l.cli import app
    from keras_bert_d2l.training.devices.distribution import join

    waiting = threading.Timer(_CONNECTION_SECONDS, _end_without_others)
    waiting.start()
    try:
        with _ended_by_signals():
            join()
    finally:
        waiting.cancel()
    try:
        app.meta(command, exit_on_error=False, print_error=False, result_action="return_value")
    except SystemExit as error:  # which is printed; JAX would wait for the other processes
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(error.code or 0))
    return None


def _run_all(command: Sequence[str], number: int) -> int:
    """Run the command in several processes of this machine, and return the exit code."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(signal_number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(signal_number)

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), forward)
    with tempfile.TemporaryFile() as errors:
        address = f"127.0.0.1:{_free_port()}"
        try:
            for index in range(number):
                children.append(_start(command, index, number, address, errors.fileno()))
            return _wait(children, errors)
        finally:
            for child in children:
                child.kill()
                child.wait()


def _start(
    command: Sequence[str], index: int, number: int, address: str, errors: int
) -> "subprocess.Popen[bytes]":
    """Start one of the processes. Only the first one prints."""
    variables = {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,  # by default, JAX listens to all networks
        "JAX_NUM_PROCESSES": str(number),
        "JAX_PROCESS_ID": str(index),
        "JAX_LOCAL_DEVICE_IDS": str(index),  # on GPUs, one for each process
        _LAUNCHED: "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "keras_bert_d2l", "launch", *command],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=None if index == 0 else subprocess.DEVNULL,
        stderr=None if index == 0 else errors,
        start_new_session=True,  # Ctrl-C reaches the processes only once, from here
    )


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end this process at once: it waits in C++ and has nothing to save."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _end_without_others() -> None:
    """End this process, which waits for the others in C++, with an error."""
    address = os.environ.get("JAX_COORDINATOR_ADDRESS", "found by the cluster")
    print(
        f"error: Not all processes of the run have connected within {_CONNECTION_SECONDS} seconds. "
        f"Received: the coordinator address {address}. Start all processes at the same time, each "
        "with its own process id, and use an address of the first one that the others can reach.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(2)


def _end_with_launcher() -> None:
    """Stop this process, which saves the run, if the launcher was killed.

    The launcher never writes to the standard input of this process, which ends with it.
    """
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _wait(children: Sequence["subprocess.Popen[bytes]"], errors: IO[bytes]) -> int:
    """Wait until all processes have ended, and return the exit code of the first one.

    Raises:
        ChildProcessError: A process has died, and the first one did not report it.
    """
    codes: list[int | None] = [None]
    while None in codes and not any(codes):
        time.sleep(_POLL_SECONDS)
        codes = [child.poll() for child in children]
    if not any(codes):
        return 0
    until = time.monotonic() + _GRACE_SECONDS
    while None in [child.poll() for child in children] and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    failed, code = next((index, code) for index, code in enumerate(codes) if code)
    if 0 < code < 128 and codes[0] is None:  # otherwise, the first process says the same
        errors.seek(0)
        print(*errors.read().decode(errors="replace").splitlines()[-1:], file=sys.stderr)
    if (children[0].returncode or 0) > 0:  # it has printed its error
        return children[0].returncode
    if code > 128:  # a signal has stopped the run, and the others were too slow to end with it
        return code
    reason = f"exited with {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
    raise ChildProcessError(
        f"One of the {len(children)} processes (JAX_PROCESS_ID={failed}) {reason}, so the others "
        "have been stopped. The run has its last checkpoint; continue it with --resume."
    )


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
