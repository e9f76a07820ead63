"""CPU time of each stage from text to a token store, as CPU-hours per terabyte of text.

A stage is measured with one thread in one process, several times over, as the difference between
two builds, with and without it. Reading the text, splitting it into sentences and hashing it belong
to the first stage. Prints a table and a JSON line with medians.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EVERYTHING: dict[str, Any] = {
    "deduplicate": True,
    "near_duplicates": 0.8,
    "language": "en",
    "quality": ["c4", "gopher"],
}
STAGES: dict[str, dict[str, Any]] = {
    "tokenize": {},
    "near_duplicates": {"near_duplicates": 0.8},
    "language": {"language": "en"},
    "c4": {"quality": ["c4"]},
    "gopher": {"quality": ["gopher"]},
    "everything": EVERYTHING,
}


def build(text: Path, vocab: Path, store: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Build a store in this process and return its cost."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # hide TensorFlow's messages
    import tensorflow as tf

    from keras_bert_d2l.data.store.building import build_store
    from keras_bert_d2l.text.corpus.corpus import Corpus
    from keras_bert_d2l.text.selection.selection import Selection, Selector
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
    from keras_bert_d2l.text.vocab.vocab import Vocab

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tokenizer = Tokenizer(Vocab.from_file(vocab))
    tokenizer.tokenize(["the first call is slow"])
    Selector(Selection(language=options.get("language")))  # loads the model
    start = time.process_time()
    built = build_store(Corpus.open(text), tokenizer, store, **options)
    return {
        "seconds": time.process_time() - start,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "documents": built.num_documents,
        "discarded": built.discarded | {"duplicate": built.num_duplicates},
    }


def size_of(text: Path) -> int:
    return (
        sum(file.stat().st_size for file in text.rglob("*"))
        if text.is_dir()
        else text.stat().st_size
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, help="a file or a folder")
    parser.add_argument("--vocab", type=Path, required=True, help="a vocab.txt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES))
    options = parser.parse_args()
    terabytes = size_of(options.text) / 1e12
    context = multiprocessing.get_context("spawn")
    costs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.only}
    for _ in range(options.rounds):
        for name in costs:
            with (
                tempfile.TemporaryDirectory() as folder,
                concurrent.futures.ProcessPoolExecutor(1, context) as pool,
            ):
                task = pool.submit(
                    build, options.text, options.vocab, Path(folder, "store"), STAGES[name]
                )
                costs[name].append(task.result())
    hours = {
        name: statistics.median(cost["seconds"] for cost in some) / 3600 / terabytes
        for name, some in costs.items()
    }
    base = hours.get("tokenize", 0.0)
    print(f"{'stage':16} {'CPU-h/TB':>9} {'alone':>7} {'peak MB':>8} {'documents':>10}  discarded")
    for name, value in hours.items():
        own = value if name in ("tokenize", "everything") else value - base
        cost = costs[name][-1]
        print(
            f"{name:16} {value:9.1f} {own:7.1f} {cost['peak_mb']:8.0f} {cost['documents']:10,}  "
            f"{cost['discarded']}"
        )
    print(json.dumps({"megabytes": terabytes * 1e6, "cpu_hours_per_tb": hours}))


if __name__ == "__main__":
    main()
