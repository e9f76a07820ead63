"""Kill random processes of a pretraining run, continue it, and compare it with one process.

A run of one process is the reference. Runs with 2 and 4 processes, and one that changes from 2 to
4 to 1 processes, must train on the same rows in every step, report the same metrics at every
evaluation, and end with the same weights. Then random processes of a run are killed (SIGKILL) at
random moments. The same command, in a random number of processes, continues it.
The rows are recorded where they enter the compiled step. The exit code is 1 if anything is
different.

    python scripts/kill_processes.py --kills 20
"""

import argparse
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kill_runs import write_files

TOLERANCE = 1e-5
OPTIONS = (
    "--layout lines --vocab-size 80 --bert-config bert.json --batch-size 8 --max-len 24 "
    "--held-out 0.2 --learning-rate 0.001 --cache-dir cache"
)
# Executed at the start of each process. Writes a hash of each of its rows, with the step and the
# place of the row in the batch.
RECORDER = """
import os

if "JAX_PROCESS_ID" in os.environ:
    import hashlib

    import jax
    import numpy as np
    from keras.src.backend.jax.trainer import JAXTrainer

    make = JAXTrainer.make_train_function

    def make_recording(self, force=False):
        is_made = self.train_function is not None and not force
        make(self, force)
        if not is_made:
            self.train_function = recording(self.train_function)

    def recording(train):
        rows = open(f"{os.environ['ROWS']}-{os.getpid()}", "a", buffering=1)

        def record_and_train(state, iterator):
            batch = next(iterator)
            step, hashes = int(np.asarray(state[2][0])), {}  # the optimizer counts the steps
            for name in sorted(batch[0]):
                for shard in jax.numpy.asarray(batch[0][name]).addressable_shards:
                    for place, row in enumerate(np.asarray(shard.data), shard.index[0].start or 0):
                        hashes.setdefault(place, hashlib.sha256()).update(row.tobytes())
            for place, found in hashes.items():
                rows.write(f"{step} {place} {found.hexdigest()}\\n")
            return train(state, iter([batch]))

        return record_and_train

    JAXTrainer.make_train_function = make_recording
"""
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # the runs start sooner
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


Processes = list["subprocess.Popen[str]"]


def start(folder: Path, run: str, number: int, options: argparse.Namespace) -> Processes:
    """Start or continue a run in a number of processes."""
    command = f"pretrain text.txt --resume {run} {OPTIONS}"
    command += f" --steps {options.steps} --evaluate-every {options.every}"
    variables = {
        "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[1]}",
        "ROWS": str(folder / f"rows-{run}"),
        "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
        "JAX_NUM_PROCESSES": str(number),
    }
    return [
        subprocess.Popen(
            [sys.executable, "-m", "keras_bert_d2l", *command.split()],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT, **variables, "JAX_PROCESS_ID": str(index)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(number)
    ]


def free_port() -> int:
    """Return a port that nothing listens to."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def finish(processes: Processes, *codes: int) -> None:
    """Wait until all processes have ended, with exit code 0, or one of others and one message."""
    for process in processes:
        _, errors = process.communicate(timeout=600)
        lines = [line for line in errors.splitlines() if line.startswith("error: ")]
        if process.returncode not in (0, *codes) or len(lines) > 1:
            raise SystemExit(f"Exit code {process.returncode}. The command printed:\n{errors}")


def evaluations(folder: Path, run: str) -> list[dict[str, float]]:
    """Return the metrics of the evaluations so far, without the throughput."""
    file = folder / run / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []  # the last is incomplete
    return [{k: v for k, v in json.loads(x).items() if not k.endswith("/s")} for x in lines]


def trained_rows(folder: Path, run: str) -> dict[int, set[str]]:
    """Return the places and hashes of the rows of each step; all attempts at a step together."""
    rows: dict[int, set[str]] = {}
    for file in folder.glob(f"rows-{run}-*"):
        for line in file.read_text().split("\n")[:-1]:
            step, _, row = line.partition(" ")
            rows.setdefault(int(step), set()).add(row)
    return rows


def is_finished(folder: Path, run: str, options: argparse.Namespace) -> bool:
    """Return whether the saved state is that of the last step."""
    file = folder / run / "last" / "training_state.json"
    return file.exists() and json.loads(file.read_text())["step"] == options.steps


def difference(folder: Path, run: str, reference: str) -> tuple[float, float]:
    """Return the largest differences of the metrics and of the weights of two finished runs."""
    import safetensors.numpy

    ours, theirs = evaluations(folder, run), evaluations(folder, reference)
    if [line["step"] for line in ours] != [line["step"] for line in theirs]:
        return float("inf"), float("inf")
    pairs = zip(ours, theirs, strict=True)
    metrics = max(abs(a[name] - b[name]) for a, b in pairs for name in b)
    [file] = (folder / reference / "last").glob("model*.safetensors")
    weights, expected = (
        safetensors.numpy.load_file(folder / name / "last" / file.name) for name in (run, reference)
    )
    return metrics, max(float(abs(weights[name] - x).max()) for name, x in expected.items())


def wait_for_evaluations(folder: Path, run: str, number: int, processes: Processes) -> None:
    """Wait until a run has had a number of evaluations or has ended."""
    while len(evaluations(folder, run)) < number and processes[0].poll() is None:
        time.sleep(0.05)


def kill_one(folder: Path, run: str, options: argparse.Namespace, choose: random.Random) -> bool:
    """Continue a run, kill one of its processes at a random moment, and return whether it ran.

    The others then end with an error, unless the run was finished.
    """
    processes = start(folder, run, choose.choice((2, 4)), options)
    if choose.random() < 0.2:  # perhaps before the training
        time.sleep(choose.uniform(0, 15))
    else:
        more = choose.randint(1, 4)
        wait_for_evaluations(folder, run, len(evaluations(folder, run)) + more, processes)
        time.sleep(choose.uniform(0, 0.5))
    killed = choose.choice(processes)
    is_running = killed.poll() is None
    killed.kill()
    finish(processes, 2, -signal.SIGKILL, -signal.SIGABRT)  # JAX may abort before the error
    return is_running and killed.returncode != 0


def main() -> int:
    """Run all comparisons, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=10, help="steps between evaluations")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the kills")
    options = parser.parse_args()
    choose, largest = random.Random(options.seed), 0.0

    def report(folder: Path, run: str, what: str) -> float:
        metrics, weights = difference(folder, run, "one")
        ours, theirs = trained_rows(folder, run), trained_rows(folder, "one")
        same = sum(ours.get(step) == rows for step, rows in theirs.items())
        print(
            f"{what}: the same rows in {same} of {options.steps} steps, metrics differ by "
            f"{metrics:.1e}, weights by {weights:.1e}",
            flush=True,
        )
        return max(metrics, weights, 0 if same == options.steps else math.inf)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        (folder / "sitecustomize.py").write_text(RECORDER)
        finish(start(folder, "one", 1, options))
        total = len(evaluations(folder, "one"))
        for processes in (2, 4):
            finish(start(folder, str(processes), processes, options))
            largest = max(largest, report(folder, str(processes), f"{processes} processes"))
        for processes, until in ((2, total // 3), (4, 2 * total // 3), (1, total + 1)):
            started = start(folder, "changing", processes, options)
            wait_for_evaluations(folder, "changing", until, started)
            started[0].send_signal(signal.SIGTERM)
            finish(started, 128 + signal.SIGTERM)
        largest = max(largest, report(folder, "changing", "2, then 4, then 1 process"))
        kills = 0
        while kills < options.kills:
            shutil.rmtree(folder / "killed", ignore_errors=True)
            for file in folder.glob("rows-killed-*"):
                file.unlink()
            before = kills
            while not is_finished(folder, "killed", options):
                if kills < options.kills:
                    kills += kill_one(folder, "killed", options, choose)
                else:
                    finish(start(folder, "killed", 4, options))
            largest = max(largest, report(folder, "killed", f"a run with {kills - before} kills"))
    return 0 if largest <= TOLERANCE else 1


if __name__ == "__main__":
    raise SystemExit(main())
