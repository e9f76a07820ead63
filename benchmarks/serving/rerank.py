"""Compare reranking with sentence-transformers' `CrossEncoder`, in turns.

Measures from strings to scores, in pairs per second: one query of 8 tokens with 100 candidates of
60 tokens, or of 10 to 110. All contestants have the weights of the same checkpoint with the same
random head. `int8_ratio` compares with the ONNX backend of sentence-transformers in int8, as its
`export_dynamic_quantized_onnx_model` writes it. It needs the package `optimum-onnx`.
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

from benchmarks.runner import (
    ENVIRONMENT,
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
from benchmarks.serving.latency import check_answers

NUM_TEXTS = 100
CASES = {"60": (62, 62), "10 to 110": (12, 112)}  # fewest and most tokens, [CLS] and [SEP] included
INT8_FILE = "onnx/model_qint8_avx512_vnni.onnx"
INT8_BASE = "sentence-transformers-int8"
CONTESTANTS: dict[str, tuple[str, str, list[str]]] = {
    # name: module, model, options
    "sentence-transformers": ("cross_encoder", "huggingface", []),
    "ours": ("reranker", "saved/1", []),
    "ours-onnx": ("reranker", "onnx", []),
    "ours-int8": ("reranker", "int8", []),
}
if importlib.util.find_spec("optimum"):
    CONTESTANTS |= {
        "sentence-transformers-onnx": ("cross_encoder", "theirs", ["--onnx=onnx/model.onnx"]),
        INT8_BASE: ("cross_encoder", "theirs", [f"--onnx={INT8_FILE}"]),
    }
ENVIRONMENT = {**ENVIRONMENT, "USE_TF": "0"}  # transformers 4, which optimum needs, would load it


def prepare(checkpoint: Path, folder: Path) -> None:
    """Write a reranker in every format that the contestants load."""
    os.environ |= ENVIRONMENT
    import keras

    import keras_bert_d2l as kb

    keras.utils.set_random_seed(0)
    reranker = kb.Reranker(kb.load_pretrained(checkpoint).model)
    kernel = reranker.head.kernel  # with a new head, all scores would be about 0.5
    kernel.assign(keras.random.normal(kernel.shape, stddev=0.5))
    kb.save_pretrained(reranker, folder / "huggingface", format="huggingface")
    kb.export_onnx(reranker, folder / "onnx")
    kb.export_onnx(reranker, folder / "int8", int8=True)
    kb.export_saved_model(reranker, folder / "saved", version=1)
    if INT8_BASE in CONTESTANTS:
        prepare_theirs(folder)


def prepare_theirs(folder: Path) -> None:
    """Write the ONNX files of sentence-transformers, as its documentation recommends for CPUs."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.backend import export_dynamic_quantized_onnx_model

    model = CrossEncoder(str(folder / "huggingface"), backend="onnx", device="cpu")
    model.save_pretrained(str(folder / "theirs"))
    export_dynamic_quantized_onnx_model(model, "avx512_vnni", str(folder / "theirs"))


def run(
    names: list[str], folder: Path, options: argparse.Namespace
) -> Iterator[list[dict[str, Any]]]:
    """Run the comparison, and yield the rows of each case, one per contestant."""

    def start(name: str, log: Path) -> Contestant:
        module, model, arguments = CONTESTANTS[name]
        paths = [f"--model={folder / model}", f"--vocab={folder / 'huggingface' / 'vocab.txt'}"]
        module = f"serving.contestants.{module}"
        return Contestant(name, module, [*paths, *arguments], ENVIRONMENT, log)

    with started(names, start) as contestants:
        differences, alive = check_answers(contestants), list(contestants)
        for case, (fewest, most) in CASES.items():
            request = {"batch_size": NUM_TEXTS, "num_tokens": most, "fewest": fewest}
            request["untimed"] = 1  # a request takes long

            def turn(name: str, request: dict[str, Any] = request) -> Turn:
                cost = take_turn(contestants[name], {**request, "seconds": options.seconds})
                mean = statistics.mean(cost["latencies_ms"])
                cpu_ms = 1000 * cost["cpu_seconds"] / len(cost["latencies_ms"])
                return {**cost, "rate": 1000 * NUM_TEXTS / mean, "cpu_ms": cpu_ms}

            # The first round is not counted: it sets up graphs and buffers.
            turns = interleave(interleave(alive, 1, turn), options.rounds, turn)
            alive, failed = list(turns), [name for name in names if name not in turns]
            rows = [{"contestant": name, "tokens": case} for name in failed]
            for name, own in turns.items():
                row = {"contestant": name, "base": names[0], "tokens": case, **summarize(own)}
                row["cpu_ratio"] = median_ratio(turns[names[0]], own, "cpu_ms")
                if INT8_BASE in turns:
                    row["int8_ratio"] = median_ratio(own, turns[INT8_BASE], "rate")
                row |= {"pairs/s": row.pop("rate"), "rss_mb": own[-1]["rss_mb"]}
                rows.append({**row, "difference": differences[name]})
            yield rows


def median_ratio(turns: list[Turn], others: list[Turn], key: str) -> float:
    pairs = zip(turns, others, strict=True)
    return statistics.median(one[key] / other[key] for one, other in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="a BERT with a pooler, such as MiniLM"
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of one turn")
    add_only(parser, CONTESTANTS)
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.checkpoint, options.prepare)
        return
    names = [name for name in CONTESTANTS if name in options.only]
    columns = {
        "contestant": "",
        "tokens": "",
        "ratio": ".2f",
        "ratio_min": ".2f",
        "ratio_max": ".2f",
        "int8_ratio": ".2f",
        "cpu_ratio": ".2f",
        "pairs/s": ",.0f",
        "rss_mb": ",.0f",
        "difference": ".1e",
        "other_cores": ".2f",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = [f"--checkpoint={options.checkpoint.resolve()}", f"--prepare={folder}"]
        subprocess.run(  # in a separate process, to release its memory
            [sys.executable, "-m", "benchmarks.serving.rerank", *arguments], cwd=ROOT, check=True
        )
        print_report(run(names, folder, options), columns)


if __name__ == "__main__":
    main()
