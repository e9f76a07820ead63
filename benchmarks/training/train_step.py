"""Compare the pretraining step with Hugging Face and KerasHub, in turns.

A step consists of the forward and backward pass, gradient clipping and AdamW. The rate is tokens
per second.
"""

import argparse
import collections
from collections.abc import Iterator
from pathlib import Path

from benchmarks.runner import (
    ENVIRONMENT,
    KEEP_MEMORY,
    Contestant,
    Turn,
    add_only,
    ceilings,
    interleave,
    print_report,
    started,
    summarize,
    take_turn,
)
from benchmarks.training.contestants import workload

BASE = "huggingface-tuned-float32"
CONTESTANTS = {  # name: module and options, ordered so that closely compared ones are adjacent
    BASE: ("huggingface", "--precision=float32", "--tuned"),
    "kerashub-float32": ("kerashub", "--precision=float32"),
    "ours-float32": ("ours", "--precision=float32"),
    "kerashub-bfloat16": ("kerashub", "--precision=mixed_bfloat16"),
    "ours-bfloat16": ("ours", "--precision=mixed_bfloat16"),
    "huggingface-float32": ("huggingface", "--precision=float32"),
    "huggingface-tuned-bfloat16": ("huggingface", "--precision=mixed_bfloat16", "--tuned"),
}
PEAK_GB = {"tiny": 1.5, "mini": 2.5, "base": 7.0}  # of the contestant with the highest peak


def heats(names: list[str], size: str) -> Iterator[list[str]]:
    """Divide the contestants into groups that fit into memory together, each with the base."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available_gb = int(meminfo["MemAvailable"].split()[0]) / 2**20
    fit = int(available_gb / PEAK_GB[size])
    base, *others = names
    if fit < min(2, len(names)):
        raise SystemExit(f"{size} needs {2 * PEAK_GB[size]} GB, only {available_gb:.1f} available.")
    if not others:
        yield names
    for first in range(0, len(others), fit - 1):
        yield [base, *others[first : first + fit - 1]]


def run_heat(
    names: list[str], options: argparse.Namespace
) -> tuple[dict[str, list[Turn]], dict[str, float]]:
    """Run one group of contestants; return their turns and the seconds of their first steps."""
    tokens_per_step = workload.SIZES[options.size].tokens_per_step

    def start(name: str, log: Path) -> Contestant:
        module, *arguments = CONTESTANTS[name]
        return Contestant(
            name,
            f"training.contestants.{module}",
            [*arguments, f"--size={options.size}"],
            {**ENVIRONMENT, **KEEP_MEMORY},
            log,
        )

    with started(names, start) as contestants:
        steps = {
            name: max(1, round(options.seconds / contestant.ask(1)["seconds"]))
            for name, contestant in contestants.items()
        }

        def turn(name: str) -> Turn:
            cost = take_turn(contestants[name], steps[name])
            rate = steps[name] * tokens_per_step / cost["seconds"]
            return {**cost, "rate": rate, "cores": cost["cpu_seconds"] / cost["seconds"]}

        turns = interleave(names, options.rounds, turn)
        return turns, {name: one.first["seconds"] for name, one in contestants.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=workload.SIZES, default="mini")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of one turn")
    add_only(parser, CONTESTANTS)
    options = parser.parse_args()

    names = [name for name in CONTESTANTS if name in options.only]
    turns: dict[str, list[Turn]] = collections.defaultdict(list)
    first_steps: dict[str, float] = {}
    for heat in heats(names, options.size):
        heat_turns, seconds = run_heat(heat, options)
        first_steps |= seconds
        for name in heat:
            turns[name] += heat_turns[name]
    columns = {
        "contestant": "",
        "ratio": ".2f",
        "ratio_min": ".2f",
        "ratio_max": ".2f",
        "tokens/s": ",.0f",
        "GFLOP/s": ".0f",
        "of_ceiling": ".0%",
        "cores": ".2f",
        "other_cores": ".2f",
        "peak_mb": ",.0f",
        "first_step_seconds": ".1f",
    }
    rows = []
    for name in names:
        summary = summarize(turns[name])
        rate = summary.pop("rate")
        speed = rate * workload.SIZES[options.size].gflop_per_token
        ceiling = ceilings()["bfloat16" if "bfloat16" in name else "float32"]
        rows.append(
            {
                "contestant": name,
                "size": options.size,
                "base": names[0],
                **summary,
                "tokens/s": round(rate, 1),
                "GFLOP/s": round(speed, 1),
                "of_ceiling": round(speed / ceiling, 2),
                "cores": round(turns[name][-1]["cores"], 2),
                "peak_mb": round(turns[name][-1]["peak_mb"]),
                "first_step_seconds": round(first_steps[name], 2),
            }
        )
    print_report(rows, columns)


if __name__ == "__main__":
    main()
