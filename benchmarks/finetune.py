"""Fine-tuning on SST-2 beside Hugging Face's Trainer, in one interleaved run.

A checkpoint gets a new head, the same for all. Each contestant is a process of its own that trains
by its own loop (`fit`, `Trainer`), on the same sentences in batches of the same size, each padded
to its longest. In each round each of them trains for a few seconds, in turn and back (A B C C B A);
what counts is the median over the rounds of a contestant's examples per second divided by the
base's in the same round. `--accuracy-steps` has each of them train for so many steps from the start
instead, one after the other, and prints the accuracy on the development data. Prints a table, then
one JSON line per contestant.
"""

import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from contest import Contestant, add_only
from train_step import ENVIRONMENT, NUM_QUIET_CORES, busy_cpu_seconds, wait_until_quiet

BASE = "huggingface-float32"
CONTESTANTS = {
    BASE: ("huggingface", ["--precision=float32"]),
    "ours-float32": ("ours", ["--precision=float32"]),
    "huggingface-grouped-float32": ("huggingface", ["--precision=float32", "--grouped"]),
    "huggingface-bfloat16": ("huggingface", ["--precision=bfloat16"]),
    "ours-bfloat16": ("ours", ["--precision=bfloat16"]),
    "huggingface-grouped-bfloat16": ("huggingface", ["--precision=bfloat16", "--grouped"]),
}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def prepare(checkpoint: Path, folder: Path) -> None:
    """Writes a classifier with a new head, which both programs read."""
    os.environ |= ENVIRONMENT
    import keras

    import keras_bert_d2l as kb

    keras.utils.set_random_seed(0)
    bert, tokenizer, _ = kb.load_pretrained(checkpoint)
    classifier = kb.SequenceClassifier(bert, ["0", "1"], tokenizer=tokenizer)
    kb.save_pretrained(classifier, folder / "model", format="huggingface")


def start(name: str, options: argparse.Namespace, folder: Path) -> Contestant:
    print(f"starting {name}", file=sys.stderr, flush=True)
    module, arguments = CONTESTANTS[name]
    files = {n: (options.data / f"{n}.tsv.gz").resolve() for n in ("train", "dev")}
    steps = [f"--steps={options.accuracy_steps}"] if options.accuracy_steps else []
    return Contestant(
        name,
        f"finetune_{module}",
        [
            *arguments,
            *(f"--{n}={path}" for n, path in files.items()),
            f"--checkpoint={folder / 'model'}",
            f"--batch-size={options.batch_size}",
            f"--max-len={options.max_len}",
            *steps,
        ],
        {**ENVIRONMENT, **OFFLINE},
        folder / f"{name}.log",
    )


def take_turn(contestant: Contestant, num_steps: int) -> dict[str, float]:
    wait_until_quiet()
    busy, begin = busy_cpu_seconds(), time.perf_counter()
    turn = contestant.ask(num_steps)
    others = busy_cpu_seconds() - busy - turn["cpu_seconds"]
    turn["other_cores"] = max(0.0, others / (time.perf_counter() - begin))
    turn["rate"] = turn["examples"] / turn["seconds"]
    return turn


def contest(names: list[str], options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    turns: dict[str, list[dict[str, float]]] = collections.defaultdict(list)
    with contextlib.ExitStack() as stack:
        contestants, steps = {}, {}
        for name in names:
            contestants[name] = start(name, options, folder)
            stack.callback(contestants[name].stop)
            take_turn(contestants[name], 3)
            last = take_turn(contestants[name], 5)
            steps[name] = max(1, round(options.seconds * 5 / last["seconds"]))
        for number in range(options.rounds):
            order = names[:: 1 if number % 2 == 0 else -1]
            now = {name: take_turn(contestants[name], steps[name]) for name in order}
            for name, turn in now.items():
                turn["ratio"] = turn["rate"] / now[names[0]]["rate"]
                turns[name].append(turn)
            rates = "  ".join(f"{name} {now[name]['rate']:.0f}" for name in names)
            print(f"round {number + 1}/{options.rounds}: {rates}", file=sys.stderr, flush=True)
    return [
        {
            "contestant": name,
            "base": names[0],
            "ratio": round(statistics.median(turn["ratio"] for turn in turns[name]), 2),
            "ratio_min": round(min(turn["ratio"] for turn in turns[name]), 2),
            "ratio_max": round(max(turn["ratio"] for turn in turns[name]), 2),
            "examples_per_second": round(statistics.median(x["rate"] for x in turns[name]), 1),
            "peak_mb": round(turns[name][-1]["peak_mb"]),
            "first_step_seconds": round(contestants[name].first["seconds"], 1),
            "other_cores": round(statistics.median(x["other_cores"] for x in turns[name]), 2),
            "rounds": len(turns[name]),
        }
        for name in names
    ]


def accuracies(names: list[str], options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        contestant = start(name, options, folder)
        contestant.stop()
        rows.append(
            {
                "contestant": name,
                "steps": options.accuracy_steps,
                "accuracy": round(contestant.first["accuracy"], 4),
                "peak_mb": round(contestant.first["peak_mb"]),
                "seconds": round(contestant.start_seconds, 1),  # imports and all
            }
        )
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    columns = [column for column in rows[0] if column not in ("contestant", "base")]
    print(f"{'contestant':28}" + "".join(f"{column:>20}" for column in columns))
    for row in rows:
        print(f"{row['contestant']:28}" + "".join(f"{row[column]:>20}" for column in columns))
    if any(row.get("other_cores", 0) > NUM_QUIET_CORES for row in rows):
        print("Other processes were at work (other_cores): do not quote these figures.")
    for row in rows:
        print(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="a BERT with a pooler, such as MiniLM")
    parser.add_argument("--data", type=Path, help="folder with train.tsv.gz and dev.tsv.gz")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0, help="aim of one turn")
    parser.add_argument("--accuracy-steps", type=int, metavar="STEPS")
    add_only(parser, CONTESTANTS)
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.checkpoint, options.prepare)
        return
    names = [name for name in CONTESTANTS if name in options.only]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(  # in a process of its own, which leaves its memory
            [sys.executable, __file__, f"--checkpoint={options.checkpoint}", f"--prepare={folder}"],
            check=True,
        )
        run = accuracies if options.accuracy_steps else contest
        rows = run(names, options, Path(folder))
    report(rows)


if __name__ == "__main__":
    main()
