"""Measure what the commands cost that a user waits for: help pages, imports, and the first answer.

Each command runs in a new process, in turns, after one run that brings the files into the page
cache and compiles the modules. The table has the seconds of the processor (user and system), which
other programs hardly affect, and the elapsed ones: medians over the rounds. The imports of Python,
Cyclopts and TensorFlow alone are the floor of the others.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.runner import ENVIRONMENT, ROOT, print_report

COMMANDS = {
    "python": ["-c", ""],
    "import cyclopts": ["-c", "import cyclopts"],
    "import tensorflow": ["-c", "import tensorflow"],
    "import keras_bert_d2l": ["-c", "import keras_bert_d2l"],
    **{
        f"keras-bert-d2l {line}": ["-m", "keras_bert_d2l", *line.split()]
        for line in (
            "--version",
            "--help",
            "fill-mask --help",
            "pretrain --help",
            "finetune --help",
            "fill-mask --wrong",
            "bake",
            "--install-completion --shell bash --output completion",
        )
    },
    "keras-bert-d2l fill-mask": ["-m", "keras_bert_d2l", "fill-mask", "a dark [MASK] ."],
}


def cost(arguments: list[str], folder: str) -> tuple[float, float]:
    """Run Python in a new process; return the seconds of the processor and the elapsed ones."""
    settings = {**ENVIRONMENT, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": f"{folder}/modules"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **settings, "PYTHONDONTWRITEBYTECODE": "", "HOME": folder},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,  # two of the commands are usage errors
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), metavar="X")
    options = parser.parse_args()
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in options.only}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds + 1):
            for name, found in costs.items():
                found.append(cost(COMMANDS[name], folder))
    rows = [
        {"command": name, "cpu_seconds": statistics.median(cpu), "seconds": statistics.median(wall)}
        for name, found in costs.items()
        for cpu, wall in [zip(*found[1:], strict=True)]
    ]
    print_report([rows], {"command": "", "cpu_seconds": ".3f", "seconds": ".3f"})


if __name__ == "__main__":
    main()
