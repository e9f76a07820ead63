"""The data pipeline beside Hugging Face's, KerasHub's, google's and the book's, interleaved.

Four tasks: from lines of raw text to masked batches; masks on rows of ids; and from a tokenised
corpus to finished batches (pairs, masks, padding), with single tokens or whole words masked. Every
contestant is a process of its own with one thread for its work. In each round all make batches for
a while, in turn and back. What counts is tokens, without padding, per second of CPU time, and the
median over the rounds of ours divided by theirs in the same round. Prints a table, then one JSON
line per contestant.
"""

import argparse
import collections
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from contest import Contestant

OURS = "ours"
TASKS = {  # contestants, and the ratios promised
    "text": {"kerashub": 3.5, "huggingface": 15.0},
    "masking": {"huggingface": 40.0},
    "store": {"google": 7.0, "book": None},
    "store-whole-word": {"google": 4.0},
}
ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def turn(contestant: Contestant, seconds: float) -> float:
    """Makes batches for so long; returns tokens per second of CPU time."""
    cost = contestant.ask(seconds)
    return cost["tokens"] / cost["cpu_seconds"]


def prepare(options: argparse.Namespace, folder: Path) -> None:
    """Writes the text as a store and as lines, each a paragraph's worth of sentences."""
    os.environ |= ENVIRONMENT
    from keras_bert_d2l.data.store.building import build_store
    from keras_bert_d2l.text.corpus.corpus import Corpus
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
    from keras_bert_d2l.text.vocab.vocab import Vocab

    corpus = Corpus.open(options.text, layout=options.layout)
    build_store(corpus, Tokenizer(Vocab.from_file(options.vocab)), folder / "store")
    with open(folder / "lines.txt", "w", encoding="utf-8") as file:
        for document in corpus:
            for first in range(0, len(document), options.sentences):
                print(" ".join(document[first : first + options.sentences]), file=file)


def rounds(options: argparse.Namespace, task: str, folder: Path) -> Iterator[dict[str, float]]:
    """Yields the rate of each contestant in each round."""
    arguments = [
        f"--task={task}",
        f"--lines={folder / 'lines.txt'}",
        f"--store={folder / 'store'}",
        f"--batch-size={options.batch_size}",
        f"--max-len={options.max_len}",
    ]
    names = [OURS, *TASKS[task]]
    with contextlib.ExitStack() as stack:
        contestants = {}
        for name in names:
            print(f"{task}: starting {name}", file=sys.stderr, flush=True)
            contestants[name] = Contestant(
                name, f"pipeline_{name}", arguments, ENVIRONMENT, folder / f"{task}-{name}.log"
            )
            stack.callback(contestants[name].stop)
        for contestant in contestants.values():  # what was made while others started
            turn(contestant, options.seconds)
        for number in range(options.rounds):
            order = names[:: 1 if number % 2 == 0 else -1]
            rates = {name: turn(contestants[name], options.seconds) for name in order}
            yield {name: rates[name] for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="a corpus, such as WikiText-2's training file")
    parser.add_argument("--vocab", type=Path, required=True, help="a vocab.txt, uncased")
    parser.add_argument("--layout", default="auto", help="of the text, as of Corpus.open")
    parser.add_argument("--sentences", type=int, default=5, help="in a line of raw text")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    options = parser.parse_args()
    found: dict[tuple[str, str], list[tuple[float, float]]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(options, folder)
        for task in options.only:
            for rates in rounds(options, task, folder):
                for contestant, rate in rates.items():
                    found[task, contestant].append((rate, rates[OURS] / rate))
    report(found)


def report(found: dict[tuple[str, str], list[tuple[float, float]]]) -> None:
    lines = []
    print(f"{'task':17} {'contestant':12} {'M tokens/s':>10} {'ours/it':>8} {'min':>7} {'max':>7}")
    for (task, contestant), turns in found.items():
        ratios = [ratio for _, ratio in turns]
        line = {
            "task": task,
            "contestant": contestant,
            "tokens_per_cpu_second": round(statistics.median(rate for rate, _ in turns)),
            "ours_to_it": round(statistics.median(ratios), 2),
            "min": round(min(ratios), 2),
            "max": round(max(ratios), 2),
            "promised": TASKS[task].get(contestant),
            "rounds": len(turns),
        }
        lines.append(line)
        print(
            f"{task:17} {contestant:12} {line['tokens_per_cpu_second'] / 1e6:10.2f} "
            f"{line['ours_to_it']:8.2f} {line['min']:7.2f} {line['max']:7.2f}"
        )
    for line in lines:
        print(json.dumps(line))


if __name__ == "__main__":
    main()
