"""Compare the pretraining step with Hugging Face and KerasHub, in turns.

A step consists of the forward and backward pass, gradient clipping and AdamW. The rate is tokens
per second.

On a GPU (`--device gpu`), the contestants train in bfloat16 without attention dropout: PyTorch with
`torch.compile`, and this package through `Model.fit` with JAX and with TensorFlow. `of_ceiling` is
then the model FLOPs utilization.
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
    "ours-jax-float32": ("ours", "--precision=float32", "--fit"),
    "ours-jax-bfloat16": ("ours", "--precision=mixed_bfloat16", "--fit"),
    "huggingface-float32": ("huggingface", "--precision=float32"),
    "huggingface-tuned-bfloat16": ("huggingface", "--precision=mixed_bfloat16", "--tuned"),
}
ON_GPU = {
    "huggingface-compiled": ("huggingface", "--precision=mixed_bfloat16", "--tuned", "--compiled"),
    "ours-jax": ("ours", "--precision=mixed_bfloat16", "--fit"),
    "ours-jax-plain": ("ours", "--precision=mixed_bfloat16", "--fit", "--plain-attention"),
    "ours-jax-text": ("ours", "--precision=mixed_bfloat16", "--fit"),
    "ours-tensorflow": ("ours", "--precision=mixed_bfloat16", "--fit"),
}
OF_GPU = {  # JAX and TensorFlow would each take almost all memory, and two contestants share it
    "CUDA_VISIBLE_DEVICES": "0",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}
PEAK_TFLOPS = 989  # of an H100 or H200 in dense bfloat16
PEAK_GB = {"tiny": 1.5, "mini": 2.5, "base": 7.0, "large": 16.0}  # of the highest peak, on a CPU


def heats(names: list[str], options: argparse.Namespace) -> Iterator[list[str]]:
    """Divide the contestants into groups that fit into memory together, each with the base."""
    fit = 2 if options.device == "gpu" else fitting(options.size)
    base, *others = names
    if fit < min(2, len(names)):
        raise SystemExit(f"{options.size} needs {2 * PEAK_GB[options.size]} GB of free memory.")
    if not others:
        yield names
    for first in range(0, len(others), fit - 1):
        yield [base, *others[first : first + fit - 1]]


def fitting(size: str) -> int:
    """Return how many contestants fit into the free memory of the machine."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(int(meminfo["MemAvailable"].split()[0]) / 2**20 / PEAK_GB[size])


def start(name: str, log: Path, options: argparse.Namespace) -> Contestant:
    """Start a contestant."""
    module, *arguments = (CONTESTANTS | ON_GPU)[name]
    if name.endswith("-text"):
        arguments.append(f"--text={options.text}")
    for option in ("size", "device", "rows", "tokens", "attention_dropout"):
        arguments.append(f"--{option.replace('_', '-')}={getattr(options, option)}")
    environment = {**ENVIRONMENT, **KEEP_MEMORY}
    if "jax" in name:
        environment["KERAS_BACKEND"] = "jax"
    if options.device == "gpu":
        environment |= OF_GPU
    return Contestant(name, f"training.contestants.{module}", arguments, environment, log)


def run_heat(
    names: list[str], options: argparse.Namespace
) -> tuple[dict[str, list[Turn]], dict[str, float]]:
    """Run one group of contestants; return their turns and the seconds of their first steps."""
    steps: dict[str, int] = {}

    def start_and_time(name: str, log: Path) -> Contestant:
        contestant = start(name, log, options)
        steps[name] = max(1, round(options.seconds / contestant.ask(1)["seconds"]))
        return contestant

    with started(names, start_and_time) as contestants:

        def turn(name: str) -> Turn:
            cost = take_turn(contestants[name], steps[name])
            rate = steps[name] * options.rows * options.tokens / cost["seconds"]
            of_steps = {key: cost[f"{key}_seconds"] / cost["seconds"] for key in ("cpu", "waited")}
            return {**cost, "rate": rate, "cores": of_steps["cpu"], "waiting": of_steps["waited"]}

        turns = interleave(contestants, options.rounds, turn)
        return turns, {name: one.first["seconds"] for name, one in contestants.items()}


def read_options() -> tuple[argparse.Namespace, list[str]]:
    """Parse the command line; return the options and the names of the contestants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=workload.SIZES, default="mini")
    parser.add_argument("--tokens", type=int, default=128, help="tokens per row")
    parser.add_argument("--rows", type=int, help="rows per batch [default: that of the size]")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--text", help="also train on this text, with the contestant ours-jax-text")
    parser.add_argument("--peak-tflops", type=float, default=PEAK_TFLOPS, help="of the GPU")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of one turn")
    add_only(parser, CONTESTANTS | ON_GPU)
    options = parser.parse_args()
    options.rows = options.rows or workload.SIZES[options.size].batch_size
    options.attention_dropout = workload.DROPOUT if options.device == "cpu" else 0.0
    contestants = CONTESTANTS if options.device == "cpu" else ON_GPU
    if options.only != list(CONTESTANTS | ON_GPU):
        contestants = {name: None for name in CONTESTANTS | ON_GPU if name in options.only}
    names = [name for name in contestants if options.text or not name.endswith("-text")]
    return options, names


def main() -> None:
    options, names = read_options()
    turns: dict[str, list[Turn]] = collections.defaultdict(list)
    first_steps: dict[str, float] = {}
    for heat in heats(names, options):
        heat_turns, seconds = run_heat(heat, options)
        first_steps |= seconds
        for name, of_name in heat_turns.items():
            turns[name] += of_name
    columns = {
        "contestant": "",
        "ratio": ".2f",
        "ratio_min": ".2f",
        "ratio_max": ".2f",
        "tokens/s": ",.0f",
        "GFLOP/s": ",.0f",
        "of_ceiling": ".0%",
        "cores": ".2f",
        "other_cores": ".2f",
        "waiting": ".1%",
        "peak_mb": ",.0f",
        "first_step_seconds": ".1f",
        "attention": "",
    }
    rows = []
    for name in names:
        if name not in turns:
            rows.append({"contestant": name})
            continue
        summary = summarize(turns[name])
        rate = summary.pop("rate")
        speed = rate * workload.SIZES[options.size].gflop_per_token(options.tokens)
        if options.device == "gpu":
            ceiling = options.peak_tflops * 1e3
        else:
            ceiling = ceilings()["float32" if "float32" in name else "bfloat16"]
        rows.append(
            {
                "contestant": name,
                "size": options.size,
                "rows": options.rows,
                "tokens": options.tokens,
                "device": options.device,
                "base": names[0],
                **summary,
                "tokens/s": round(rate, 1),
                "GFLOP/s": round(speed, 1),
                "of_ceiling": round(speed / ceiling, 2) if ceiling else None,
                "cores": round(turns[name][-1]["cores"], 2),
                "waiting": round(turns[name][-1]["waiting"], 3),
                "peak_mb": round(turns[name][-1]["peak_mb"]),
                "first_step_seconds": round(first_steps[name], 2),
                "attention": turns[name][-1]["attention"],
            }
        )
    print_report([rows], columns)


if __name__ == "__main__":
    main()
