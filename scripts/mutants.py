"""Damage folders that the package wrote, load them, and count what happens.

Each mutant must load with the same content or end in a clear error. Prints the details of every
fault as it is found, and at the end a table of the outcomes by kind of folder. Run it from the root
of the repository:

    .venv/bin/python -m scripts.mutants --number 10000 --seed 7 --workers 2
"""

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from tests.robustness.folders import KINDS
from tests.robustness.trial import CRASH, FAULTS, Trial, Trials

SILENCE = 600  # seconds after which a process is considered stuck, even on a busy machine
CHUNK = 250  # mutants per process

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.robustness.trial"])  # imports TensorFlow once


def main() -> None:
    """Run the trials that the command line asks for, and exit with 1 if there are faults."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=1000, help="number of mutants of all kinds")
    parser.add_argument("--seed", default="0", help="any text")
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    options = parser.parse_args()
    each = -(-options.number // len(options.kinds))
    seeds = [f"{options.seed} {number}" for number in range(each)]
    chunks = [seeds[start : start + CHUNK] for start in range(0, each, CHUNK)]
    work = [(kind, chunk) for chunk in chunks for kind in options.kinds]
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(options.workers) as pool,
    ):
        runs = pool.map(lambda part: run_trials(Path(folder), *part), work)
        trials = [trial for run in runs for trial in run]
    print_table(trials)
    sys.exit(any(trial.outcome in FAULTS for trial in trials))


def run_trials(folder: Path, kind: str, seeds: list[str]) -> list[Trial]:
    """Run trials of a kind and print the faults."""
    trials = []
    original = Path(tempfile.mkdtemp(dir=folder), f"original{KINDS[kind].suffix}")
    for trial in trials_of(kind, original, seeds):
        trials.append(trial)
        if trial.outcome in FAULTS:
            fault = f"{kind}, seed {trial.seed!r}, {trial.damage}, {trial.outcome}"
            print(f"{fault}: {trial.detail.strip()}\n", flush=True)
    print(f"{kind}: {len(trials):,} mutants", file=sys.stderr, flush=True)
    return trials


def trials_of(kind: str, original: Path, seeds: list[str]) -> Iterator[Trial]:
    """Run trials of a kind in another process, and in a new one if that process dies."""
    while seeds:
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(target=_work, args=(kind, original, seeds, sender))
        process.start()
        sender.close()
        try:
            while seeds and receiver.poll(SILENCE):
                yield receiver.recv()
                seeds = seeds[1:]
        except EOFError:
            pass
        process.kill()
        process.join()
        if seeds:
            detail = "The process died or was stuck."
            yield Trial(kind, seeds[0], "unknown", CRASH, detail, SILENCE, 0.0)
            seeds = seeds[1:]


def _work(kind: str, original: Path, seeds: list[str], sender: Connection) -> None:
    with open(os.devnull, "w") as nowhere:
        sys.stdout = nowhere
        if not original.exists():
            KINDS[kind].write(original)
        trials = Trials(kind, original)
        for seed in seeds:
            sender.send(trials.run(seed))


def print_table(trials: list[Trial]) -> None:
    """Print a Markdown table with one row per kind."""
    outcomes = list(dict.fromkeys(trial.outcome for trial in trials))
    columns = ["kind", "mutants", *outcomes, "slowest, s", "largest, MB"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for kind in [*dict.fromkeys(trial.kind for trial in trials), "all"]:
        own = [trial for trial in trials if kind in (trial.kind, "all")]
        counts = collections.Counter(trial.outcome for trial in own)
        slowest = max(trial.seconds for trial in own)
        largest = max(trial.megabytes for trial in own)
        cells = [kind, len(own), *(counts[outcome] for outcome in outcomes)]
        print(f"| {' | '.join(map(str, cells))} | {slowest:.1f} | {largest:.0f} |")


if __name__ == "__main__":
    main()
