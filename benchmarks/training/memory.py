"""Peak memory of `pretrain` on a corpus and on a corpus ten times as large.

Each run is a separate process and includes everything: reading text, learning a vocabulary,
tokenizing, a few training steps, evaluation and checkpoints. The text is synthetic with a Zipf
distribution, so the larger corpus also has more distinct words.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ZIPF_EXPONENT = 1.3  # yields about as many distinct words as English text
LARGEST_WORD = 10_000_000
WORDS_PER_SENTENCE = 20
SENTENCES_PER_DOCUMENT = 25
SYLLABLES = [a + b for a, b in itertools.product("bcdfghjklmnprstvwz", "aeiou")]


def spell(word: int) -> str:
    """Return the word with a given frequency rank. Rarer words are longer."""
    syllables = []
    while word:
        word, last = divmod(word, len(SYLLABLES))
        syllables.append(SYLLABLES[last])
    return "".join(syllables)


def write_corpus(path: Path, megabytes: float) -> None:
    """Write documents with one sentence per line, separated by blank lines."""
    rng = np.random.default_rng(0)
    shape = (SENTENCES_PER_DOCUMENT, WORDS_PER_SENTENCE)
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            words = np.minimum(rng.zipf(ZIPF_EXPONENT, shape), LARGEST_WORD).tolist()
            file.writelines(" ".join(map(spell, sentence)) + " .\n" for sentence in words)
            file.write("\n")


def pretrain(corpus: Path, run_dir: Path, steps: int) -> dict[str, float]:
    """Run `pretrain` in this process and return the cost."""
    # Hide TensorFlow's messages. Exceptions still reach the parent process.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    import keras_bert_d2l  # in the child process, to keep the parent small

    start = time.perf_counter()
    keras_bert_d2l.pretrain(
        str(corpus),
        run_dir,
        preset="tiny",
        steps=steps,
        evaluate_every=steps,
        batch_size=32,
        cache_dir=str(run_dir.with_suffix(".cache")),
        verbose=0,
    )
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_mb": peak_kb / 1024, "seconds": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=3.0, help="size of the smaller corpus")
    parser.add_argument(
        "--factor",
        type=float,
        default=10.0,
        help="ratio of the corpus sizes",
    )
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()

    peaks = []
    print(f"{'corpus MB':>9} {'peak MB':>9} {'seconds':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in (options.megabytes, options.factor * options.megabytes):
            corpus = Path(folder, f"{megabytes}.txt")
            write_corpus(corpus, megabytes)
            # Use a new interpreter, because a forked process inherits its parent's peak memory.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                cost = pool.apply(pretrain, (corpus, corpus.with_suffix(".run"), options.steps))
            peaks.append(cost["peak_mb"])
            print(f"{megabytes:9.1f} {cost['peak_mb']:9,.0f} {cost['seconds']:9.1f}", flush=True)
    print(
        json.dumps(
            {
                "megabytes": options.megabytes,
                "factor": options.factor,
                "peak_mb": [round(peak) for peak in peaks],
                "peak_ratio": round(peaks[1] / peaks[0], 3),
            }
        )
    )


if __name__ == "__main__":
    main()
