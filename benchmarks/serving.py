"""Serving a text classifier beside Hugging Face's pipeline, in one interleaved run.

A string goes in, an answer comes out. A checkpoint gets a random head, which all contestants
have. Each contestant is a process of its own with one client, which asks again as soon as it has
its answer. In each round each of them is asked for a while, in turn and back (A B C C B A), with 1
and 8 texts of 16 and 128 tokens; what counts is the median over the rounds of a contestant's
requests per second divided by the base's in the same round. Prints a table of these ratios, one of
latencies, and one JSON line per contestant.
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
from pathlib import Path
from typing import Any

import numpy as np

from contest import Contestant, add_only
from train_step import NUM_QUIET_CORES, busy_cpu_seconds, wait_until_quiet

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# What glibc gives back to the system after a request it would take again with the next one.
KEEPING_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_ARENA_MAX": "1",
}
BASE = "huggingface-pipeline"
CONTESTANTS: dict[str, tuple[str, str, list[str], dict[str, str]]] = {
    # name: module, model, options, environment
    BASE: ("huggingface", "huggingface", [], {}),
    "ours": ("ours", "saved/1", [], {}),
    "ours-tuned": ("ours", "saved/1", ["--threads"], KEEPING_MEMORY),
    "ours-bfloat16": ("ours", "saved/2", [], {}),
    "ours-bfloat16-tuned": ("ours", "saved/2", ["--threads"], KEEPING_MEMORY),
    "ours-onnx": ("onnx", "onnx/model.onnx", ["--tokenizer=ours"], {}),
    "ours-onnx-tokenizers": ("onnx", "onnx/model.onnx", ["--tokenizer=huggingface"], {}),
    "ours-int8": ("onnx", "int8/model.onnx", ["--tokenizer=ours"], {}),
    "ours-int8-tokenizers": ("onnx", "int8/model.onnx", ["--tokenizer=huggingface"], {}),
    "keras-predict": ("keras", "native", [], {}),
}
CASES = [(1, 16), (8, 16), (1, 128), (8, 128)]  # texts in a request, tokens of each
MOST_DIFFERENCE = {"bfloat16": 2e-2, "int8": 1e-1}  # of probabilities
ROUNDING = 1e-4  # and of those in float32


def prepare(checkpoint: Path, folder: Path) -> None:
    """Writes a classifier in all forms that contestants load."""
    os.environ |= ENVIRONMENT
    import keras

    import keras_bert_d2l as kb
    from keras_bert_d2l.serving.onnx.onnx_model import export_onnx

    keras.utils.set_random_seed(0)
    bert, tokenizer, _ = kb.load_pretrained(checkpoint)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    kernel = classifier.head.kernel  # a new one is so small that every answer would be one half
    kernel.assign(keras.random.normal(kernel.shape, stddev=0.5))
    for format in ("native", "huggingface"):
        kb.save_pretrained(classifier, folder / format, format=format)
    export_onnx(classifier, folder / "onnx")
    export_onnx(classifier, folder / "int8", int8=True)
    kb.export_saved_model(classifier, folder / "saved", tokenizer, 1)
    keras.config.set_dtype_policy("mixed_bfloat16")
    classifier, tokenizer, _ = kb.load_pretrained(folder / "native")
    kb.export_saved_model(classifier, folder / "saved", tokenizer, 2)


def start(name: str, folder: Path) -> Contestant:
    print(f"starting {name}", file=sys.stderr, flush=True)
    module, model, arguments, environment = CONTESTANTS[name]
    paths = [f"--model={folder / model}", f"--vocab={folder / 'native' / 'vocab.txt'}"]
    return Contestant(
        name,
        f"serving_{module}",
        [*paths, *arguments],
        {**ENVIRONMENT, **environment},
        folder / f"{name}.log",
    )


def check_answers(contestants: dict[str, Contestant]) -> dict[str, float]:
    """Refuses contestants that answer something else than the first; returns the differences."""
    answers = {name: np.array(one.first["scores"]) for name, one in contestants.items()}
    first = next(iter(answers))
    found = {name: float(abs(scores - answers[first]).max()) for name, scores in answers.items()}
    for name, difference in found.items():
        most = next((most for kind, most in MOST_DIFFERENCE.items() if kind in name), ROUNDING)
        if difference > most:
            raise SystemExit(f"{name} answers {answers[name]}, and {first} {answers[first]}")
    return found


def take_turn(contestant: Contestant, batch_size: int, num_tokens: int, seconds: float) -> Any:
    wait_until_quiet()
    busy = busy_cpu_seconds()
    turn = contestant.ask({"batch_size": batch_size, "num_tokens": num_tokens, "seconds": seconds})
    total = sum(turn["latencies_ms"]) / 1000
    turn["rate"] = len(turn["latencies_ms"]) / total
    turn["other_cores"] = max(0.0, (busy_cpu_seconds() - busy - turn["cpu_seconds"]) / total)
    return turn


def contest(
    contestants: dict[str, Contestant], rounds: int, seconds: float
) -> dict[tuple[str, tuple[int, int]], list[dict[str, Any]]]:
    """Lets the contestants answer by turns; the first round, which sets things up, is left out."""
    names, turns = list(contestants), collections.defaultdict(list)
    for number in range(rounds + 1):
        for case in CASES:
            order = names[:: 1 if number % 2 == 0 else -1]
            now = {name: take_turn(contestants[name], *case, seconds) for name in order}
            for name, turn in now.items():
                turn["ratio"] = turn["rate"] / now[names[0]]["rate"]
                if number:
                    turns[name, case].append(turn)
        print(f"round {number}/{rounds}", file=sys.stderr, flush=True)
    return turns


def summarise(turns: list[dict[str, Any]]) -> dict[str, float]:
    latencies = [latency for turn in turns for latency in turn["latencies_ms"]]
    p50, p99 = np.percentile(latencies, [50, 99])
    ratios = [turn["ratio"] for turn in turns]
    return {
        "ratio": round(statistics.median(ratios), 2),
        "ratio_min": round(min(ratios), 2),
        "ratio_max": round(max(ratios), 2),
        "requests_per_second": round(statistics.median(turn["rate"] for turn in turns), 1),
        "p50_ms": round(float(p50), 2),
        "p99_ms": round(float(p99), 2),
        "p99_to_p50": round(float(p99 / p50), 2),
        "requests": len(latencies),
        "other_cores": round(statistics.median(turn["other_cores"] for turn in turns), 2),
    }


def print_table(title: str, rows: list[dict[str, Any]], cells: list[list[str]]) -> None:
    width = max(len(row["contestant"]) for row in rows)
    headings = [f"{batch_size} x {num_tokens}" for batch_size, num_tokens in CASES]
    print(f"{title:{width}} " + "".join(f"{heading:>16}" for heading in headings))
    for row, texts in zip(rows, cells, strict=True):
        print(f"{row['contestant']:{width}} " + "".join(f"{text:>16}" for text in texts))
    print()


def report(rows: list[dict[str, Any]]) -> None:
    cases = [[row["cases"][f"{b}x{t}"] for b, t in CASES] for row in rows]
    print_table("ratio", rows, [[f"{case['ratio']:.2f}" for case in some] for some in cases])
    latencies = [[f"{case['p50_ms']:.1f} / {case['p99_ms']:.1f}" for case in x] for x in cases]
    print_table("p50 / p99 ms", rows, latencies)
    for row in rows:
        print(
            f"{row['contestant']:24} starts in {row['start_seconds']:5.1f} s, "
            f"{row['rss_mb']:6,d} MB, at most {row['peak_mb']:6,d} MB"
        )
    if any(case["other_cores"] > NUM_QUIET_CORES for some in cases for case in some):
        print("Other processes were at work (other_cores): do not quote these figures.")
    for row in rows:
        print(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="a BERT with a pooler, such as MiniLM")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    add_only(parser, CONTESTANTS)
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.checkpoint, options.prepare)
        return
    names = [name for name in CONTESTANTS if name in options.only]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        subprocess.run(  # in a process of its own, which leaves its memory
            [sys.executable, __file__, f"--checkpoint={options.checkpoint}", f"--prepare={folder}"],
            check=True,
        )
        contestants = {}
        for name in names:
            contestants[name] = start(name, folder)
            stack.callback(contestants[name].stop)
        differences = check_answers(contestants)
        turns = contest(contestants, options.rounds, options.seconds)
    rows = []
    for name in names:
        last = turns[name, CASES[-1]][-1]
        rows.append(
            {
                "contestant": name,
                "base": names[0],
                "difference": differences[name],
                "start_seconds": round(contestants[name].start_seconds, 2),
                "rss_mb": round(last["rss_mb"]),
                "peak_mb": round(last["peak_mb"]),
                "cases": {f"{b}x{t}": summarise(turns[name, (b, t)]) for b, t in CASES},
            }
        )
    report(rows)


if __name__ == "__main__":
    main()
