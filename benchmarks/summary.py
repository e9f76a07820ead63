"""Print one page: training, data, fine-tuning and answers against peers, commands and search.

The parts that need a checkpoint or labeled texts are skipped without them. Results are printed as
they come. A part that fails is reported, the others run, and the exit code is 1.
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


def run(module: str, *arguments: object, json_lines: bool = False) -> None:
    """Run a benchmark, and print what it prints, with or without its JSON lines."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if json_lines or not line.startswith("{"):
                print(line, end="", flush=True)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def write_text(folder: Path) -> None:
    """Write the text `docstrings.txt` and its vocabulary."""
    corpus = kb.Corpus.open("docstrings")
    documents = ("\n".join(sentences) for sentences in corpus)
    (folder / "docstrings.txt").write_text("\n\n".join(documents), encoding="utf-8")
    kb.learn_vocab(corpus, VOCAB_SIZE).to_file(folder / "vocab.txt")


def run_part(part: str, options: argparse.Namespace, folder: Path) -> None:
    """Run the benchmarks of a part."""
    rounds = f"--rounds={options.rounds}"
    checkpoint = "--checkpoint", options.checkpoint
    text, vocab = folder / "docstrings.txt", ("--vocab", folder / "vocab.txt")
    if part == "step":
        run("training.train_step", "--size", options.size, rounds, "--only", *STEP)
    elif part == "data":
        tasks = "--only", "text", "store"
        run("data.pipeline", text, *vocab, "--layout", "lines", rounds, *tasks)
    elif part == "waiting":
        run("data.data_wait", text, *vocab, rounds, json_lines=True)
        if options.labeled is not None:
            labeled = options.labeled / "train.tsv.gz"
            run("data.data_wait", labeled, *vocab, "--labeled", rounds, json_lines=True)
    elif part == "commands":
        run("serving.startup", rounds)
    elif part == "search":
        run("serving.search", rounds)
    elif options.checkpoint is None or (part == "finetuning" and options.labeled is None):
        print(
            "Not measured: pass --checkpoint, a BERT such as MiniLM, and --labeled, such as SST-2."
        )
    elif part == "finetuning":
        data = "--data", options.labeled
        run("tasks.finetune", *checkpoint, *data, rounds, "--only", *FINETUNING)
    else:
        run("serving.latency", *checkpoint, rounds, "--only", *ANSWERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="mini", help="of the trained model: tiny, mini, base")
    parser.add_argument("--checkpoint", type=Path, help="the served BERT, such as MiniLM")
    parser.add_argument("--labeled", type=Path, help="folder with train.tsv.gz and dev.tsv.gz")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    options, failed = parser.parse_args(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if {"data", "waiting"} & set(options.only):
            write_text(folder)
        for part in options.only:
            start = time.perf_counter()
            print(PARTS[part], flush=True)
            try:
                run_part(part, options, folder)
            except subprocess.CalledProcessError as error:
                failed.append(part)
                print(f"Failed with exit code {error.returncode}; the reason is above.")
            print(f"({(time.perf_counter() - start) / 60:.1f} minutes)\n", flush=True)
    if failed:
        sys.exit(f"These parts failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
