"""Token store builds: tokens per second and peak memory by corpus size.

The text is a corpus or synthetic. It is written with one sentence per line, and repeated for the
larger sizes, each time with the sentences of all documents shuffled, so there are few similar
documents. Each build removes duplicates. It runs in a separate process, and
TensorFlow uses one thread per process. Prints a table and a JSON line.
"""

import argparse
import concurrent.futures
import itertools
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.training.memory import write_corpus


def write_lines(source: Path, path: Path, copies: int) -> None:
    """Write the documents of a corpus `copies` times, one sentence per line."""
    from keras_bert_d2l.text.corpus import Corpus

    documents = list(Corpus.open(source))
    sentences = [sentence for document in documents for sentence in document]
    draw = random.Random(0)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(copies):
            lines = iter(sentences)
            for document in documents:
                file.write("\n".join([*itertools.islice(lines, len(document)), "", ""]))
            draw.shuffle(sentences)


def build(corpus: Path, vocab: Path, store: Path, workers: int) -> dict[str, float]:
    """Build a store in this process and return its cost."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # hide TensorFlow's messages
    import tensorflow as tf

    from keras_bert_d2l.data.store.building import build_store
    from keras_bert_d2l.text.corpus import Corpus
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
    from keras_bert_d2l.text.vocab import Vocab

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tokenizer = Tokenizer(Vocab.from_file(vocab))
    tokenizer.tokenize(["the first call is slow"])
    start, cpu = time.perf_counter(), time.process_time()
    built = build_store(
        Corpus.open(corpus, layout="lines"),
        tokenizer,
        store,
        workers=workers,
        deduplicate=True,
    )
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peaks = [
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {
        "documents": built.num_documents,
        "tokens": built.num_tokens,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_mb": peaks[0],
        "worker_peak_mb": peaks[1] if workers > 1 else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="a corpus; default: synthetic text")
    parser.add_argument("--vocab", type=Path, required=True, help="a vocab.txt")
    parser.add_argument("--megabytes", type=float, default=30.0, help="size of the synthetic text")
    parser.add_argument("--factors", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    context = multiprocessing.get_context("spawn")
    results = []
    print(
        f"{'factor':>6} {'MB':>6} {'M tokens':>9} {'M/s':>6} {'M/s CPU':>8} {'peak MB':>8} worker"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = options.text or folder / "synthetic.txt"
        if options.text is None:
            write_corpus(text, options.megabytes)
        for factor in options.factors:
            corpus = folder / "corpus.txt"
            # Use new interpreters, because a forked process inherits its parent's peak memory.
            for call in (
                (write_lines, text, corpus, factor),
                (build, corpus, options.vocab, folder / f"store{factor}", options.workers),
            ):
                with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
                    cost = pool.submit(*call).result()
            megabytes, tokens = corpus.stat().st_size / 1e6, cost["tokens"] / 1e6
            cost |= {"factor": factor, "megabytes": round(megabytes, 1)}
            shutil.rmtree(folder / f"store{factor}")
            results.append({name: round(value, 2) for name, value in cost.items()})
            print(
                f"{factor:6} {megabytes:6.0f} {tokens:9.1f} {tokens / cost['seconds']:6.2f} "
                f"{tokens / cost['cpu_seconds']:8.2f} {cost['peak_mb']:8.0f} "
                f"{cost['worker_peak_mb']:6.0f}",
                flush=True,
            )
    print(json.dumps({"workers": options.workers, "builds": results}))


if __name__ == "__main__":
    main()
