"""Measure the exact search of `similar` in a file of random vectors, which is in the page cache."""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.runner import print_report
from keras_bert_d2l.tasks.embed.predictions import nearest

CHUNK = 50_000


def unit_vectors(rng: np.random.Generator, number: int, width: int) -> np.ndarray:
    vectors = rng.standard_normal((number, width), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rng, rows = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder:
        path, shape = Path(folder) / "vectors.npy", (options.vectors, options.width)
        file = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        for start in range(0, options.vectors, CHUNK):
            stop = min(start + CHUNK, options.vectors)
            file[start:stop] = unit_vectors(rng, stop - start, options.width)
        file.flush()
        vectors = np.load(path, mmap_mode="r")
        for number in (1, 16):
            queries, costs = unit_vectors(rng, number, options.width), []
            for _ in range(options.rounds + 1):
                start, cpu = time.perf_counter(), time.process_time()
                list(nearest(queries, vectors, 5))
                costs.append((time.perf_counter() - start, time.process_time() - cpu))
            seconds, cpu_seconds = map(statistics.median, zip(*costs[1:], strict=True))
            row = {"queries": number, "vectors": options.vectors, "seconds": seconds}
            rows.append({**row, "cpu_seconds": cpu_seconds, "per_query": seconds / number})
    columns = dict.fromkeys(["seconds", "cpu_seconds", "per_query"], ".3f")
    print_report([rows], {"queries": "", "vectors": ",", **columns})


if __name__ == "__main__":
    main()
