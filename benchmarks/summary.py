"""Print one page: training, data, fine-tuning and answers against peers, commands and search.

The parts that need a checkpoint or labeled texts are skipped without them.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import keras_bert_d2l as kb
from benchmarks.runner import ROOT

STEP = ("huggingface-tuned-float32", "ours-float32", "huggingface-tuned-bfloat16", "ours-bfloat16")
FINETUNING = ("huggingface-grouped-float32", "ours-float32", "ours-bfloat16")
ANSWERS = ("huggingface-pipeline", "ours", "ours-int8", "ours-int8-rest")
PARTS = {
    "step": "Training step: tokens per second",
    "data": "Data: raw text, and a tokenized corpus, to masked batches",
    "waiting": "Waiting for data: share of a training step, in pretraining and in fine-tuning",
    "finetuning": "Fine-tuning: examples per second, beside a Trainer that batches by length",
    "answers": "Answers: strings in, predictions out",
    "commands": "Commands: seconds of the processor, and elapsed",
    "search": "Search in a million vectors",
}
VOCAB_SIZE = 8000


def run(module: str, *arguments: object) -> str:
    """Run a benchmark and return what it prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.rstrip()


def table(module: str, *arguments: object) -> str:
    """Run a contest and return its table, without the JSON lines."""
    lines = run(module, *arguments).splitlines()
    return "\n".join(line for line in lines if not line.startswith("{"))


def write_text(folder: Path) -> None:
    """Write the text `docstrings.txt` and its vocabulary."""
    corpus = kb.Corpus.open("docstrings")
    documents = ("\n".join(sentences) for sentences in corpus)
    (folder / "docstrings.txt").write_text("\n\n".join(documents), encoding="utf-8")
    kb.learn_vocab(corpus, VOCAB_SIZE).to_file(folder / "vocab.txt")


def results(part: str, options: argparse.Namespace, folder: Path) -> str:
    """Run the benchmarks of a part and return their results."""
    rounds = f"--rounds={options.rounds}"
    checkpoint = "--checkpoint", options.checkpoint
    text, vocab = folder / "docstrings.txt", ("--vocab", folder / "vocab.txt")
    if part == "step":
        return table("training.train_step", "--size", options.size, rounds, "--only", *STEP)
    if part == "data":
        tasks = "--only", "text", "store"
        return table("data.pipeline", text, *vocab, "--layout", "lines", rounds, *tasks)
    if part == "waiting":
        lines = [run("data.data_wait", text, *vocab, rounds)]
        if options.labeled is not None:
            labeled = options.labeled / "train.tsv.gz"
            lines.append(run("data.data_wait", labeled, *vocab, "--labeled", rounds))
        return "\n".join(lines)
    if part == "commands":
        return table("serving.startup", rounds)
    if part == "search":
        return table("serving.search", rounds)
    if options.checkpoint is None or (part == "finetuning" and options.labeled is None):
        return (
            "Not measured: pass --checkpoint, a BERT such as MiniLM, and --labeled, such as SST-2."
        )
    if part == "finetuning":
        data = "--data", options.labeled
        return table("tasks.finetune", *checkpoint, *data, rounds, "--only", *FINETUNING)
    return table("serving.latency", *checkpoint, rounds, "--only", *ANSWERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="mini", help="of the trained model: tiny, mini, base")
    parser.add_argument("--checkpoint", type=Path, help="the served BERT, such as MiniLM")
    parser.add_argument("--labeled", type=Path, help="folder with train.tsv.gz and dev.tsv.gz")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if {"data", "waiting"} & set(options.only):
            write_text(folder)
        for part in options.only:
            start = time.perf_counter()
            print(f"{PARTS[part]}\n{results(part, options, folder)}")
            print(f"({(time.perf_counter() - start) / 60:.1f} minutes)\n", flush=True)


if __name__ == "__main__":
    main()
