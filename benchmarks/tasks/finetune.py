"""Compare fine-tuning on SST-2 with Hugging Face's Trainer, in turns.

Every contestant runs its own training loop (`fit`, `Trainer`) from the same checkpoint with the
same new head, on the same sentences and with the same batch size, padded to the longest row. The
rate is examples per second. With `--accuracy-steps`, the contestants instead train one after the
other for this many steps, and report their accuracy on the development data.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runner import (
    ENVIRONMENT,
    KEEP_MEMORY,
    ROOT,
    Contestant,
    Turn,
    add_only,
    interleave,
    print_report,
    started,
    summarize,
    take_turn,
)

BASE = "huggingface-float32"
CONTESTANTS = {
    BASE: ("huggingface", ["--precision=float32"]),
    "ours-float32": ("ours", ["--precision=float32"]),
    "huggingface-grouped-float32": ("huggingface", ["--precision=float32", "--grouped"]),
    "huggingface-bfloat16": ("huggingface", ["--precision=bfloat16"]),
    "ours-bfloat16": ("ours", ["--precision=bfloat16"]),
    "huggingface-grouped-bfloat16": ("huggingface", ["--precision=bfloat16", "--grouped"]),
}
# The Trainer sorts groups of 50 batches by length, so only whole groups represent its speed.
TURN_STEPS = 50


def prepare(checkpoint: Path, folder: Path) -> None:
    """Write a classifier with a new head that both programs can load."""
    os.environ |= ENVIRONMENT
    import keras

    import keras_bert_d2l as kb

    keras.utils.set_random_seed(0)
    bert = kb.load_pretrained(checkpoint).model
    classifier = kb.SequenceClassifier(bert, ["0", "1"])
    kb.save_pretrained(classifier, folder / "model", format="huggingface")


def start(name: str, log: Path, folder: Path, options: argparse.Namespace) -> Contestant:
    module, arguments = CONTESTANTS[name]
    files = {split: (options.data / f"{split}.tsv.gz").resolve() for split in ("train", "dev")}
    steps = [f"--steps={options.accuracy_steps}"] if options.accuracy_steps else []
    return Contestant(
        name,
        f"tasks.contestants.{module}",
        [
            *arguments,
            *(f"--{split}={path}" for split, path in files.items()),
            f"--checkpoint={folder / 'model'}",
            f"--batch-size={options.batch_size}",
            f"--max-len={options.max_len}",
            *steps,
        ],
        {**ENVIRONMENT, **KEEP_MEMORY},
        log,
    )


def compare_speed(
    names: list[str], options: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Train the contestants in turns and return one row each."""

    def start_and_train(name: str, log: Path) -> Contestant:
        contestant = start(name, log, folder, options)
        contestant.ask(TURN_STEPS - 1)  # the first step is done
        return contestant

    with started(names, start_and_train) as contestants:

        def turn(name: str) -> Turn:
            cost = take_turn(contestants[name], TURN_STEPS)
            return {**cost, "rate": cost["examples"] / cost["seconds"]}

        turns = interleave(contestants, options.rounds, turn)
    rows = []
    for name in names:
        if name not in turns:
            rows.append({"contestant": name})
            continue
        summary = summarize(turns[name])
        rate, peak_mb = summary.pop("rate"), round(turns[name][-1]["peak_mb"])
        row = {"contestant": name, "base": names[0], "examples/s": rate, "peak_mb": peak_mb}
        rows.append({**row, **summary})
    return rows


def compare_accuracy(
    names: list[str], options: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    """Train the contestants one after the other and return one row each."""
    rows = []
    for name in names:
        contestant = start(name, folder / f"{name}.log", folder, options)
        contestant.stop()
        rows.append(
            {
                "contestant": name,
                "steps": options.accuracy_steps,
                "accuracy": contestant.first["accuracy"],
                "peak_mb": contestant.first["peak_mb"],
                "seconds": contestant.start_seconds,  # including the imports
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="a BERT with a pooler, such as MiniLM")
    parser.add_argument("--data", type=Path, help="folder with train.tsv.gz and dev.tsv.gz")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--accuracy-steps", type=int, metavar="STEPS")
    add_only(parser, CONTESTANTS)
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.checkpoint, options.prepare)
        return
    names = list(dict.fromkeys(options.only))  # the first is the base of the ratios
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"--checkpoint={options.checkpoint.resolve()}", f"--prepare={folder}"]
        subprocess.run(  # in a separate process, to release its memory
            [sys.executable, "-m", "benchmarks.tasks.finetune", *arguments], cwd=ROOT, check=True
        )
        compare = compare_accuracy if options.accuracy_steps else compare_speed
        rows = compare(names, options, Path(folder))
    if options.accuracy_steps:
        columns = {"steps": "", "accuracy": ".4f", "peak_mb": ",.0f", "seconds": ".1f"}
    else:
        ratios = {"ratio": ".2f", "ratio_min": ".2f", "ratio_max": ".2f"}
        columns = {**ratios, "examples/s": ",.1f", "peak_mb": ",.0f", "other_cores": ".2f"}
    print_report([rows], {"contestant": "", **columns})


if __name__ == "__main__":
    main()
