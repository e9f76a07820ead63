"""Print one page: the training step, the data pipeline and served answers, against their peers."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import keras_bert_d2l as kb
from benchmarks.runner import ROOT

STEP = ("huggingface-tuned-float32", "ours-float32", "ours-bfloat16")
ANSWERS = ("huggingface-pipeline", "ours", "ours-int8")
VOCAB_SIZE = 8000


def contest(module: str, *arguments: object) -> None:
    """Run a contest and print its table, without the JSON lines."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    lines = [line for line in result.stdout.splitlines() if not line.startswith("{")]
    print("\n".join(lines), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="mini", help="of the trained model: tiny, mini, base")
    parser.add_argument("--checkpoint", type=Path, help="the served BERT, such as MiniLM")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    rounds = f"--rounds={options.rounds}"

    print(f"Training step, {options.size}: tokens per second")
    contest("training.train_step", "--size", options.size, rounds, "--only", *STEP)
    print("\nData: raw text to masked batches")
    with tempfile.TemporaryDirectory() as folder:
        text, vocab = Path(folder, "docstrings.txt"), Path(folder, "vocab.txt")
        corpus = kb.Corpus.open("docstrings")
        documents = ("\n".join(sentences) for sentences in corpus.documents())
        text.write_text("\n\n".join(documents), encoding="utf-8")
        kb.learn_vocab(corpus, VOCAB_SIZE).to_file(vocab)
        contest("data.pipeline", text, "--vocab", vocab, "--layout", "lines", rounds)
    print("\nAnswers: strings in, predictions out")
    if options.checkpoint is None:
        print("Not measured: pass --checkpoint, the folder of a BERT such as MiniLM.")
    else:
        contest("serving.latency", "--checkpoint", options.checkpoint, rounds, "--only", *ANSWERS)


if __name__ == "__main__":
    main()
