"""Compare text classification latency with Hugging Face's pipeline, in turns.

Measures from string to prediction, with one client per contestant and 1 or 8 texts of 16 or 128
tokens. All contestants serve the same checkpoint with the same random head. The rate is requests
per second.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

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

BASE = "huggingface-pipeline"
THEIRS = ["--tokenizer=huggingface"]
CONTESTANTS: dict[str, tuple[str, str, list[str], dict[str, str]]] = {
    # name: module, model, options, environment
    BASE: ("huggingface", "huggingface", [], {}),
    "ours": ("ours", "saved/1", [], {}),
    "ours-session": ("ours", "saved/1", ["--session"], {}),
    "ours-rest": ("rest", "saved/1", [], {}),
    "ours-client": ("rest", "saved/1", ["--client"], {}),
    "ours-onnx-rest": ("rest", "onnx", [], {}),
    "ours-int8-rest": ("rest", "int8", [], {}),
    "ours-tuned": ("ours", "saved/1", ["--threads"], KEEP_MEMORY),
    "ours-bfloat16": ("ours", "saved/2", [], {}),
    "ours-bfloat16-tuned": ("ours", "saved/2", ["--threads"], KEEP_MEMORY),
    "ours-onnx": ("onnx", "onnx/model.onnx", ["--tokenizer=ours"], {}),
    "ours-onnx-tokenizers": ("onnx", "onnx/model.onnx", THEIRS, {}),
    "ours-int8": ("onnx", "int8/model.onnx", ["--tokenizer=ours"], {}),
    "ours-int8-tokenizers": ("onnx", "int8/model.onnx", THEIRS, {}),
    "keras-predict": ("keras", "native", [], {}),
}
if importlib.util.find_spec("openvino"):
    CONTESTANTS |= {
        "ours-openvino-bfloat16": ("onnx", "onnx/model.onnx", [*THEIRS, "--openvino"], {}),
    }
CASES = [(1, 16), (8, 16), (1, 128), (8, 128)]  # texts per request, tokens per text
TOLERANCES = {"bfloat16": 2e-2, "int8": 1e-1}  # of probabilities
FLOAT32_TOLERANCE = 1e-4


def prepare(checkpoint: Path, folder: Path) -> None:
    """Write a classifier in every format that the contestants load."""
    os.environ |= ENVIRONMENT
    import keras

    import keras_bert_d2l as kb

    keras.utils.set_random_seed(0)
    bert = kb.load_pretrained(checkpoint).model
    classifier = kb.SequenceClassifier(bert, ["bad", "good"])
    kernel = classifier.head.kernel  # with a new head, all probabilities would be about 0.5
    kernel.assign(keras.random.normal(kernel.shape, stddev=0.5))
    for format in ("native", "huggingface"):
        kb.save_pretrained(classifier, folder / format, format=format)
    kb.export_onnx(classifier, folder / "onnx")
    kb.export_onnx(classifier, folder / "int8", int8=True)
    kb.export_saved_model(classifier, folder / "saved", version=1)
    keras.config.set_dtype_policy("mixed_bfloat16")
    classifier = kb.load_pretrained(folder / "native").model
    kb.export_saved_model(classifier, folder / "saved", version=2)


def check_answers(contestants: dict[str, Contestant]) -> dict[str, float]:
    """Exit if a contestant's predictions differ from the base; return the differences."""
    answers = {name: np.array(one.first["scores"]) for name, one in contestants.items()}
    base = next(iter(answers))
    found = {name: float(abs(scores - answers[base]).max()) for name, scores in answers.items()}
    for name, difference in found.items():
        kinds = (limit for kind, limit in TOLERANCES.items() if kind in name)
        if difference > next(kinds, FLOAT32_TOLERANCE):
            raise SystemExit(f"{name} returns {answers[name]}, but {base} returns {answers[base]}")
    return found


def run(
    names: list[str], folder: Path, options: argparse.Namespace
) -> Iterator[list[dict[str, Any]]]:
    """Run the comparison, and yield the rows of each case, one per contestant."""

    def start(name: str, log: Path) -> Contestant:
        module, model, arguments, environment = CONTESTANTS[name]
        paths = [f"--model={folder / model}", f"--vocab={folder / 'native' / 'vocab.txt'}"]
        return Contestant(
            name,
            f"serving.contestants.{module}",
            [*paths, *arguments],
            {**ENVIRONMENT, **environment},
            log,
        )

    with started(names, start) as contestants:
        differences, alive = check_answers(contestants), list(contestants)
        for batch_size, num_tokens in CASES:
            request = {"batch_size": batch_size, "num_tokens": num_tokens}

            def turn(name: str, request: dict[str, int] = request) -> Turn:
                cost = take_turn(contestants[name], {**request, "seconds": options.seconds})
                latencies = cost["latencies_ms"]
                cpu_ms = 1000 * cost["cpu_seconds"] / len(latencies)
                return {**cost, "rate": 1000 / np.mean(latencies), "cpu_ms": cpu_ms}

            # The first round is not counted: it sets up graphs and buffers.
            turns = interleave(interleave(alive, 1, turn), options.rounds, turn)
            alive, case = list(turns), f"{batch_size} x {num_tokens}"
            failed = [name for name in names if name not in turns]
            rows: list[dict[str, Any]] = [
                {"contestant": name, "texts x tokens": case} for name in failed
            ]
            for name, of_name in turns.items():
                latencies = [latency for turn in of_name for latency in turn["latencies_ms"]]
                p50, p99 = np.percentile(latencies, [50, 99])
                summary = summarize(of_name)
                rounds = zip(turns[names[0]], of_name, strict=True)
                rows.append(
                    {
                        "contestant": name,
                        "base": names[0],
                        "texts x tokens": case,
                        **summary,
                        "cpu_ratio": statistics.median(
                            one["cpu_ms"] / own["cpu_ms"] for one, own in rounds
                        ),
                        "requests/s": summary.pop("rate"),
                        "p50_ms": float(p50),
                        "p99_ms": float(p99),
                        "start_seconds": contestants[name].start_seconds,
                        "rss_mb": of_name[-1]["rss_mb"],
                        "peak_mb": of_name[-1]["peak_mb"],
                        "difference": differences[name],
                    }
                )
            yield rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="a BERT with a pooler, such as MiniLM")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of one turn")
    add_only(parser, CONTESTANTS)
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.checkpoint, options.prepare)
        return
    names = [name for name in CONTESTANTS if name in options.only]
    columns = {
        "contestant": "",
        "texts x tokens": "",
        "ratio": ".2f",
        "ratio_min": ".2f",
        "ratio_max": ".2f",
        "cpu_ratio": ".2f",
        "requests/s": ",.1f",
        "p50_ms": ".1f",
        "p99_ms": ".1f",
        "start_seconds": ".1f",
        "rss_mb": ",.0f",
        "peak_mb": ",.0f",
        "other_cores": ".2f",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = [f"--checkpoint={options.checkpoint.resolve()}", f"--prepare={folder}"]
        subprocess.run(  # in a separate process, to release its memory
            [sys.executable, "-m", "benchmarks.serving.latency", *arguments], cwd=ROOT, check=True
        )
        print_report(run(names, folder, options), columns)


if __name__ == "__main__":
    main()
