"""Compare checkpoint loading with Hugging Face's `from_pretrained`: time and memory.

A BERT with random weights is saved in our format and in Hugging Face's format. Each load runs in
a separate process, in turns (A B C C B A), from files in the page cache. The clock starts after
the imports. `seconds` is the time until the loader returns, and `ready` the time until every
weight has been read once, because PyTorch maps the file into memory and reads it lazily.
`peak_mb` is the peak resident memory up to that point minus the memory after the imports, and
`peak_ratio` is `peak_mb` divided by the size of the weights.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.runner import ENVIRONMENT, ROOT, print_report, status_mb

CONTESTANTS = {  # name: folder to load
    "huggingface": "huggingface",
    "ours-native": "native",
    "ours-huggingface": "huggingface",
}


def load(name: str, folder: Path) -> dict[str, float]:
    """Load the checkpoint in this process and return the cost."""
    if name == "huggingface":
        from transformers import BertForPreTraining

        loader: Any = BertForPreTraining.from_pretrained
    else:
        import keras

        import keras_bert_d2l

        loader = keras_bert_d2l.load_pretrained
    bare = status_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    start, cpu_start = time.perf_counter(), time.process_time()
    loaded = loader(folder)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    if name == "huggingface":
        total = sum(float(weight.detach().sum()) for weight in loaded.parameters())
    else:
        total = sum(float(keras.ops.sum(weight)) for weight in loaded.model.trainable_weights)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "ready": time.perf_counter() - start,
        "peak_mb": status_mb("VmHWM") - bare,
        "kept_mb": status_mb("VmRSS") - bare,
        "sum": total,
    }


def write(size: str, folder: Path) -> float:
    """Write the checkpoints in this process and return the size of the weights in MB."""
    import keras_bert_d2l

    config = keras_bert_d2l.BERTConfig.preset(size, activation="gelu")
    model = keras_bert_d2l.BERTModel.from_bert_config(config)
    for format in set(CONTESTANTS.values()):
        keras_bert_d2l.save_pretrained(model, folder / format, format=format)
    return 4 * model.count_params() / 2**20


def in_a_process(*arguments: object) -> Any:
    """Run this file in a new process and return the last line that it prints."""
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.serving.load", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        sys.exit(result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def contest(size: str, rounds: int, names: list[str]) -> list[dict[str, Any]]:
    """Return the metrics of each contestant: median times and maximum memory."""
    with tempfile.TemporaryDirectory() as folder:
        weights_mb = in_a_process("--write", folder, "--size", size)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for name in names:  # brings the files into the page cache
            in_a_process("--load", name, folder)
        for _ in range(rounds):
            for name in [*names, *reversed(names)]:
                runs[name].append(in_a_process("--load", name, folder))
    return [
        {
            "contestant": name,
            "size": size,
            "weights_mb": round(weights_mb),
            "runs": len(figures),
            **{
                name: round(statistics.median(one[name] for one in figures), 2)
                for name in ("seconds", "cpu_seconds", "ready")
            },
            "slowest": round(max(one["seconds"] for one in figures), 2),
            "peak_mb": round(max(one["peak_mb"] for one in figures)),
            "peak_ratio": round(max(one["peak_mb"] for one in figures) / weights_mb, 3),
            "kept_mb": round(max(one["kept_mb"] for one in figures)),
            "sum": round(figures[0]["sum"], 1),  # must be the same for all
        }
        for name, figures in runs.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="base", help="a preset of BERTConfig")
    parser.add_argument("--rounds", type=int, default=3, help="each loads twice per round")
    parser.add_argument(
        "--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="CONTESTANT"
    )
    parser.add_argument("--load", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        name, folder = options.load
        print(json.dumps(load(name, Path(folder) / CONTESTANTS[name])))
    elif options.write:
        print(json.dumps(write(options.size, options.write)))
    else:
        results = contest(options.size, options.rounds, options.only)
        columns = dict.fromkeys(["seconds", "cpu_seconds", "ready", "slowest"], ".2f")
        columns |= {"peak_mb": ",.0f", "peak_ratio": ".2f", "kept_mb": ",.0f"}
        print_report([results], {"contestant": "", **columns})


if __name__ == "__main__":
    main()
