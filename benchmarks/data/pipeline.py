"""Compare the data pipeline with Hugging Face, KerasHub, google-research/bert and the book.

There are four tasks: raw text to masked batches; masking rows of ids; and tokenized corpus to
complete batches (pairs, masks, padding), masking single tokens or whole words. `own` is a pipeline
of a user with the package's steps, on pairs that are already cut. The contestants
take turns and use one thread each. The rate is tokens, without padding, per second of CPU time.
`ours/other` is our rate divided by the other contestant's rate in the same round.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.runner import (
    ENVIRONMENT,
    Contestant,
    Turn,
    interleave,
    print_report,
    started,
    summarize,
)

OURS = "ours"
TASKS = {
    "text": ("kerashub", "huggingface"),
    "masking": ("huggingface",),
    "store": ("google", "book", "own", "kerashub"),
    "store-whole-word": ("google", "own"),
}
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def prepare(options: argparse.Namespace, folder: Path) -> None:
    """Write the text as a token store and as lines of a few sentences."""
    os.environ |= ENVIRONMENT
    import keras_bert_d2l as kb

    corpus = kb.Corpus.open(options.text, layout=options.layout)
    kb.build_store(corpus, kb.Tokenizer(kb.Vocab.from_file(options.vocab)), folder / "store")
    with open(folder / "lines.txt", "w", encoding="utf-8") as file:
        for document in corpus:
            for first in range(0, len(document), options.sentences):
                print(" ".join(document[first : first + options.sentences]), file=file)


def run(task: str, options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run the comparison for a task and return one row per contestant."""
    arguments = [
        f"--task={task}",
        f"--lines={folder / 'lines.txt'}",
        f"--store={folder / 'store'}",
        f"--batch-size={options.batch_size}",
        f"--max-len={options.max_len}",
    ]

    def start(name: str, log: Path) -> Contestant:
        environment = {**ENVIRONMENT, **ONE_THREAD}
        return Contestant(name, f"data.contestants.{name}", arguments, environment, log)

    names = [*TASKS[task], OURS]
    with started(names, start) as contestants:

        def turn(name: str) -> Turn:
            cost = contestants[name].ask(options.seconds)
            return {**cost, "rate": cost["tokens"] / cost["cpu_seconds"]}

        # The first round is not counted: batches produced while others started.
        turns = interleave(interleave(contestants, 1, turn), options.rounds, turn)
    rows = []
    for name in names:
        if name not in turns or OURS not in turns:
            rows.append({"task": task, "contestant": name})
            continue
        for ours, other in zip(turns[OURS], turns[name], strict=True):
            other["ratio"] = ours["rate"] / other["rate"]
        summary = summarize(turns[name])
        rate = summary.pop("rate")
        ratios = {
            "ours/other": summary.pop("ratio"),
            "min": summary.pop("ratio_min"),
            "max": summary.pop("ratio_max"),
        }
        rows.append({"task": task, "contestant": name, "M tokens/s": rate / 1e6, **ratios})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="a corpus, such as WikiText-2's training file")
    parser.add_argument("--vocab", type=Path, required=True, help="an uncased vocab.txt")
    parser.add_argument("--layout", default="auto", help="layout of the text; see Corpus.open")
    parser.add_argument("--sentences", type=int, default=5, help="sentences per line of raw text")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--max-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of one turn")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        prepare(options, Path(name))
        tables = (run(task, options, Path(name)) for task in options.only)
        ratios = {"ours/other": ".2f", "min": ".2f", "max": ".2f"}
        print_report(tables, {"task": "", "contestant": "", "M tokens/s": ".2f", **ratios})


if __name__ == "__main__":
    main()
