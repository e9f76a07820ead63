"""The pretraining step beside Hugging Face's and KerasHub's, in one interleaved run.

Every contestant is a process of its own. In each round each of them trains for a few seconds, in
turn and back (A B C C B A), so that a machine that speeds up or slows down hits all alike; what
counts is the median over the rounds of a contestant's tokens per second divided by the base's in
the same round. Prints a table, then one JSON line per contestant.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from contest import Contestant, add_only
from contestants import workload

BASE = "huggingface-tuned-float32"
CONTESTANTS = {  # name: module and options; those that are compared most stand side by side
    BASE: ("huggingface", "--precision=float32", "--tuned"),
    "kerashub-float32": ("kerashub", "--precision=float32"),
    "ours-float32": ("ours", "--precision=float32"),
    "kerashub-bfloat16": ("kerashub", "--precision=mixed_bfloat16"),
    "ours-bfloat16": ("ours", "--precision=mixed_bfloat16"),
    "huggingface-float32": ("huggingface", "--precision=float32"),
    "huggingface-tuned-bfloat16": ("huggingface", "--precision=mixed_bfloat16", "--tuned"),
}

# glibc gives a step's large tensors back to the system and faults them in again at the next step.
# Nobody shall win by that: all contestants keep them.
ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_ARENA_MAX": "1",
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
}
NUM_QUIET_CORES, QUIET_WAIT_SECONDS = 0.25, 5
PEAK_GB = {"tiny": 1.5, "mini": 2.5, "base": 7.0}  # of the hungriest contestant


@dataclasses.dataclass
class Turn:
    """What a contestant did in one turn."""

    tokens_per_second: float
    base_tokens_per_second: float
    cores: float
    other_cores: float


def start(name: str, size: str, log: Path) -> Contestant:
    """Starts a contestant, and lets it train one step more than the one that makes its graph."""
    module, *options = CONTESTANTS[name]
    contestant = Contestant(name, module, [*options, f"--size={size}"], ENVIRONMENT, log)
    contestant.ask(1)
    return contestant


def busy_cpu_seconds() -> float:
    """CPU seconds that all processes of the machine have used so far."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet() -> None:
    """Waits, up to a limit, until the other processes of the machine leave it alone."""
    give_up = time.perf_counter() + QUIET_WAIT_SECONDS
    others = NUM_QUIET_CORES
    while others >= NUM_QUIET_CORES and time.perf_counter() < give_up:
        busy, start = busy_cpu_seconds(), time.perf_counter()
        time.sleep(0.4)
        others = (busy_cpu_seconds() - busy) / (time.perf_counter() - start)


def take_turn(contestant: Contestant, num_steps: int, tokens_per_step: int) -> Turn:
    wait_until_quiet()
    busy, start = busy_cpu_seconds(), time.perf_counter()
    cost = contestant.ask(num_steps)
    wall = time.perf_counter() - start
    return Turn(
        tokens_per_second=num_steps * tokens_per_step / cost["seconds"],
        base_tokens_per_second=0.0,
        cores=cost["cpu_seconds"] / cost["seconds"],
        other_cores=max(0.0, (busy_cpu_seconds() - busy - cost["cpu_seconds"]) / wall),
    )


def heats(names: list[str], size: str) -> Iterator[list[str]]:
    """Splits the contestants into groups that fit into memory; the base is in each."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available_gb = int(meminfo["MemAvailable"].split()[0]) / 2**20
    fit = int(available_gb / PEAK_GB[size])
    base, *others = names
    if fit < min(2, len(names)):
        raise SystemExit(f"{size} needs {2 * PEAK_GB[size]} GB; {available_gb:.1f} are available")
    if not others:
        yield names
    for first in range(0, len(others), fit - 1):
        yield [base, *others[first : first + fit - 1]]


def run_heat(
    names: list[str], options: argparse.Namespace, folder: Path
) -> tuple[dict[str, list[Turn]], dict[str, Contestant]]:
    """Starts the contestants one after the other, lets them train by turns, and stops them."""
    tokens_per_step = workload.SIZES[options.size].tokens_per_step
    turns = collections.defaultdict(list)
    with contextlib.ExitStack() as stack:
        contestants = {}
        for name in names:
            print(f"starting {name}", file=sys.stderr, flush=True)
            contestants[name] = start(name, options.size, folder / f"{name}.log")
            stack.callback(contestants[name].stop)
        steps = {
            name: max(1, round(options.seconds / contestant.last["seconds"]))
            for name, contestant in contestants.items()
        }
        for round_index in range(options.rounds):
            order = names if round_index % 2 == 0 else names[::-1]
            now = {
                name: take_turn(contestants[name], steps[name], tokens_per_step) for name in order
            }
            for name, turn in now.items():
                turn.base_tokens_per_second = now[names[0]].tokens_per_second
                turns[name].append(turn)
            rates = "  ".join(f"{name} {now[name].tokens_per_second:,.0f}" for name in names)
            print(f"round {round_index + 1}/{options.rounds}: {rates}", file=sys.stderr, flush=True)
    return turns, contestants


def summarise(
    name: str, size: str, base: str, turns: list[Turn], contestant: Contestant
) -> dict[str, object]:
    ratios = [turn.tokens_per_second / turn.base_tokens_per_second for turn in turns]
    rate = statistics.median(turn.tokens_per_second for turn in turns)
    return {
        "contestant": name,
        "size": size,
        "base": base,
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "tokens_per_second": round(rate, 1),
        "gflop_per_second": round(rate * workload.SIZES[size].gflop_per_token, 1),
        "cores": round(statistics.median(turn.cores for turn in turns), 2),
        "other_cores": round(statistics.median(turn.other_cores for turn in turns), 2),
        "peak_mb": round(contestant.last["peak_mb"]),
        "first_step_seconds": round(contestant.first["seconds"], 2),
        "rounds": len(turns),
    }


COLUMNS = {  # heading: key and format
    "contestant": ("contestant", "<27"),
    "ratio": ("ratio", ">6.2f"),
    "min": ("ratio_min", ">6.2f"),
    "max": ("ratio_max", ">6.2f"),
    "tokens/s": ("tokens_per_second", ">9,.0f"),
    "GFLOP/s": ("gflop_per_second", ">8.0f"),
    "cores": ("cores", ">6.2f"),
    "others": ("other_cores", ">7.2f"),
    "peak MB": ("peak_mb", ">8,d"),
    "1st s": ("first_step_seconds", ">6.1f"),
}


def print_table(rows: list[dict[str, object]]) -> None:
    widths = {
        heading: int(spec[1:].split(".")[0].rstrip(",fd")) for heading, (_, spec) in COLUMNS.items()
    }
    print(" ".join(f"{h:{'<' if h == 'contestant' else '>'}{w}}" for h, w in widths.items()))
    for row in rows:
        print(" ".join(f"{row[key]:{spec}}" for key, spec in COLUMNS.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=workload.SIZES, default="mini")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="aim of one turn")
    add_only(parser, CONTESTANTS)
    options = parser.parse_args()

    names = [name for name in CONTESTANTS if name in options.only]
    turns, contestants = collections.defaultdict(list), {}
    with tempfile.TemporaryDirectory() as folder:
        for heat in heats(names, options.size):
            heat_turns, heat_contestants = run_heat(heat, options, Path(folder))
            contestants.update(heat_contestants)
            for name, of_heat in heat_turns.items():
                turns[name] += of_heat
    rows = [
        summarise(name, options.size, names[0], turns[name], contestants[name]) for name in names
    ]
    print_table(rows)
    if any(row["other_cores"] > NUM_QUIET_CORES for row in rows):
        print("Other processes were at work (column others): do not quote these figures.")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
