"""Runner for all comparisons: contestants are processes that take turns.

In each round, every contestant works for a few seconds, forward and then backward through the
list (A B C, C B A, ...), so a machine that speeds up or slows down affects all of them equally.
A contestant's ratio is its rate divided by the rate of the first contestant (the base) in the
same round; the result is the median over the rounds.
"""

import argparse
import contextlib
import datetime
import functools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# By default, glibc returns large buffers to the system, and the next use causes new page faults.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_ARENA_MAX": "1",
}
NUM_QUIET_CORES = 0.25  # maximum use by other processes during a turn
QUIET_WAIT_SECONDS = 5

Turn = dict[str, Any]


class ContestantError(Exception):
    """The process of a contestant has ended. The others continue without it."""


class Contestant:
    """A process that runs work on request and reports its cost.

    Args:
        name: Name in the table.
        module: Module to run, relative to `benchmarks`.
        arguments: Command-line arguments.
        environment: Additional environment variables.
        log: File for everything that the process prints.

    Attributes:
        first: First message, sent when the process is ready.
        start_seconds: Seconds from the start of the process to this message.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        print(f"Starting {name}", file=sys.stderr, flush=True)
        self.name, self._log = name, log
        messages, messages_of_child = os.pipe()
        start = time.perf_counter()
        with open(log, "w") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", f"benchmarks.{module}"),
                    *(*arguments, f"--answers={messages_of_child}"),
                ],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[messages_of_child],
                text=True,
            )
        os.close(messages_of_child)
        self._messages = os.fdopen(messages)
        self.first = self._receive()
        self.start_seconds = time.perf_counter() - start

    def ask(self, request: Any) -> Turn:
        """Send a request and return the cost of the work."""
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return self._receive()

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._messages.close()

    def _receive(self) -> Any:
        line = self._messages.readline()
        if not line:
            tail = "".join(self._log.read_text(errors="replace").splitlines(True)[-15:])
            raise ContestantError(f"{self.name} exited with code {self._process.wait()}:\n{tail}")
        return json.loads(line)


@contextlib.contextmanager
def started(
    names: Iterable[str], start: Callable[[str, Path], Contestant]
) -> Iterator[dict[str, Contestant]]:
    """Start contestants one after the other, with logs in a temporary folder, and stop them.

    A contestant that fails is reported and missing. Without the first one, the base, the contest
    ends.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        contestants: dict[str, Contestant] = {}
        for name in names:
            try:
                contestants[name] = start(name, Path(folder) / f"{name}.log")
            except ContestantError as error:
                _report(error, is_base=not contestants)
            else:
                stack.callback(contestants[name].stop)
        yield contestants


def _report(error: ContestantError, is_base: bool) -> None:
    """Print why a contestant failed, and end the contest if it was the base of the ratios."""
    if is_base:
        raise SystemExit(str(error)) from None
    print(error, file=sys.stderr, flush=True)


def take_turn(contestant: Contestant, request: Any) -> Turn:
    """Run a turn when the machine is idle; add the number of cores used by other processes."""
    _wait_until_quiet()
    busy, start = _busy_cpu_seconds(), time.perf_counter()
    turn = contestant.ask(request)
    others = _busy_cpu_seconds() - busy - turn["cpu_seconds"]
    turn["other_cores"] = max(0.0, others / (time.perf_counter() - start))
    return turn


def interleave(
    names: Iterable[str], rounds: int, turn: Callable[[str], Turn]
) -> dict[str, list[Turn]]:
    """Run the contestants in turns.

    Args:
        names: Names of the contestants. The first one is the base.
        rounds: Number of rounds.
        turn: Runs one turn of a contestant and returns a result with a `rate`.

    Returns: the turns of each contestant, each with its `ratio` to the base. A contestant that
    fails is reported and missing.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    base = next(iter(turns))
    for number in range(rounds):
        now = {}
        for name in list(turns)[:: 1 if number % 2 == 0 else -1]:
            try:
                now[name] = turn(name)
            except ContestantError as error:
                _report(error, is_base=name == base)
                del turns[name]
        for name, of_name in turns.items():
            now[name]["ratio"] = now[name]["rate"] / now[base]["rate"]
            of_name.append(now[name])
        rates = "  ".join(f"{name} {now[name]['rate']:,.4g}" for name in turns)
        print(f"round {number + 1}/{rounds}: {rates}", file=sys.stderr, flush=True)
    return turns


def summarize(turns: Sequence[Turn]) -> dict[str, float]:
    """Return the median rate and the median, minimum and maximum ratio over the rounds."""
    ratios = [turn["ratio"] for turn in turns]
    others = [turn["other_cores"] for turn in turns if "other_cores" in turn]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "rate": statistics.median(turn["rate"] for turn in turns),
        **({"other_cores": round(statistics.median(others), 2)} if others else {}),
        "rounds": len(turns),
    }


def add_only(parser: argparse.ArgumentParser, contestants: Iterable[str]) -> None:
    """Add the option `--only`, which selects contestants."""
    names = list(contestants)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="CONTESTANT",
        help=f"contestants to run: {', '.join(names)}; the first one in this order is the base",
    )


@functools.cache
def machine() -> str:
    """Return the processor with its matrix extensions and measured speeds, GPUs, and the date."""
    info = Path("/proc/cpuinfo").read_text()
    fields = [re.search(rf"^{name}\s*: (.*)$", info, re.M) for name in ("model name", "model")]
    name, model = (field[1] if field else "unknown" for field in fields)
    extensions = re.findall(r"\b(?:avx2|avx512f|avx512_bf16|avx512_vnni|amx_bf16)\b", info)
    features = " ".join(dict.fromkeys(extensions))
    speeds = ", ".join(f"{dtype} {speed or '-'}" for dtype, speed in ceilings().items())
    gpus = ""
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, check=False).stdout
        gpus = "".join(f"; {gpu}" for gpu in found.splitlines())
    return (
        f"{name} (model {model}), {os.cpu_count()} cores, {features}{gpus}; "
        f"{datetime.date.today()}; matrix products in GFLOP/s: {speeds}"
    )


@functools.cache
def ceilings() -> dict[str, int | None]:
    """Return how fast this machine multiplies matrices with TensorFlow, in GFLOP/s by dtype.

    The value is `None` where TensorFlow is missing or has no kernel for this processor.
    """
    speeds: dict[str, int | None] = {}
    for dtype in ("float32", "bfloat16", "int8"):
        command = [sys.executable, "-m", "benchmarks.ceilings", dtype]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        speeds[dtype] = int(result.stdout) if result.returncode == 0 else None
    return speeds


def print_report(tables: Iterable[Sequence[Mapping[str, Any]]], columns: Mapping[str, str]) -> None:
    """Print the machine, and each table when its results come, with one JSON line per row.

    Args:
        tables: The rows of each table. A missing value or `None` becomes a dash.
        columns: Keys of the rows with their formats, such as `",.0f"`.
    """
    print(machine(), flush=True)
    for rows in tables:
        cells = [
            [
                "-" if row.get(key) is None else format(row[key], spec)
                for key, spec in columns.items()
            ]
            for row in rows
        ]
        lines = [list(columns), *cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for first, *others in lines:
            right = (f"{text:>{width}}" for text, width in zip(others, widths[1:], strict=True))
            print("  ".join([f"{first:<{widths[0]}}", *right]))
        if any(row.get("other_cores", 0) > NUM_QUIET_CORES for row in rows):
            print("Other processes were busy (see other_cores): these results are not reliable.")
        for row in rows:
            print(json.dumps({**row, "machine": machine()}), flush=True)


def status_mb(field: str, process: int | str = "self") -> float:
    """Return the memory of a process in MB: VmRSS is the current value, VmHWM the peak."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) / 1024


def _busy_cpu_seconds() -> float:
    """Return the CPU seconds used so far by all processes on the machine."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _wait_until_quiet() -> None:
    """Wait until all other processes on the machine are idle, up to a time limit."""
    give_up = time.perf_counter() + QUIET_WAIT_SECONDS
    others = NUM_QUIET_CORES
    while others >= NUM_QUIET_CORES and time.perf_counter() < give_up:
        busy, start = _busy_cpu_seconds(), time.perf_counter()
        time.sleep(0.4)
        others = (_busy_cpu_seconds() - busy) / (time.perf_counter() - start)
