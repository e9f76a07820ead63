"""The whole way in minutes, raw text to a model that answers strings: what `make demo` runs."""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.export.saved_model import export_saved_model
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.learning import learn_vocab
from keras_bert_d2l.text.vocab.vocab import Vocab
from keras_bert_d2l.training.callbacks import Progress, Throughput
from keras_bert_d2l.training.optimizers import BERTAdamW
from keras_bert_d2l.training.option_records import Precision
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from keras_bert_d2l.training.run_folder import checkpoint_folder

RUNS, SAVED_MODELS = pathlib.Path("runs/demo"), pathlib.Path("saved_models/demo")
DEFAULT_MINUTES = 5.0
QUESTIONS = (
    "returns a [MASK] of the same shape as the input .",
    "if true , the [MASK] is computed along the last axis .",
)

_CORPUS = "docstrings"
_VOCAB_SIZE = 4000
# Many small steps: within minutes a model has to find out that a word's neighbours tell about it.
_BATCH_SIZE, _MAX_LEN, _LEARNING_RATE = 32, 64, 2e-3
# At 128 wide google's first weights (0.02) are so small that it takes much longer; and no text
# is seen so often that dropout would help.
_FOR_MINUTES: dict[str, Any] = {"initializer": "book", "dropout": 0.0, "embedding_dropout": 0.0}
_TIMED_STEPS = 20
_FEWEST_STEPS, _MOST_STEPS = 50, 10_000
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}  # other CPUs emulate it, which is slower than float32

# Runs in a process of its own, which imports nothing of this package.
_ASK = """
import sys
import tensorflow as tf
import tensorflow_text  # registers the tokenizer's ops
model = tf.saved_model.load(sys.argv[1])
answer = model.signatures["fill_mask"](tf.constant(sys.argv[2:]))
for text, tokens, scores in zip(sys.argv[2:], answer["tokens"].numpy(), answer["scores"].numpy()):
    print("  " + text)
    for token, score in zip(tokens[0], scores[0]):
        print(f"    {score:6.1%}  {token.decode()}")
"""


class _Steps:
    """Announces the steps, with the time since the beginning."""

    def __init__(self, total: int) -> None:
        self._total, self._number, self._start = total, 0, time.perf_counter()

    def next(self, title: str) -> None:
        self._number += 1
        print(f"\n[{self._number}/{self._total}, after {self.elapsed()}] {title}", flush=True)

    def elapsed(self) -> str:
        minutes, seconds = divmod(round(time.perf_counter() - self._start), 60)
        return f"{minutes} min {seconds:02d} s"


def run(
    *,
    minutes: float = DEFAULT_MINUTES,
    steps: int | None = None,
    run_dir: str | os.PathLike[str] = RUNS,
    out: str | os.PathLike[str] = SAVED_MODELS,
    questions: Sequence[str] = QUESTIONS,
) -> pathlib.Path:
    """Learns a vocabulary from docstrings, pretrains, exports, and asks the exported model.

    A second time the vocabulary is used again, and a new run and a new version are made.

    Args:
        minutes: Time for the training; the steps are measured and chosen to fit.
        steps: Number of steps instead.
        run_dir: Folder of `vocab.txt` and of the numbered runs.
        out: Folder of the numbered versions.
        questions: Texts with masks for the exported model.

    Returns: the folder of the exported version.

    Raises:
        OSError: A folder cannot be written.
    """
    announce, runs = _Steps(4), pathlib.Path(run_dir)
    corpus = Corpus.open(_CORPUS)
    announce.next(f"Vocabulary of the {corpus.description}")
    vocab = _vocab(corpus, runs / "vocab.txt")
    config = BERTConfig.preset("tiny", vocab_size=len(vocab), max_len=_MAX_LEN, **_FOR_MINUTES)
    precision = _precision()
    announce.next("Pretraining on masked words and next sentences")
    if steps is None:
        steps = _affordable_steps(corpus, Tokenizer(vocab), config, precision, minutes * 60)
    folder = runs / str(_last_number(runs) + 1)
    pretrain(
        corpus,
        folder,
        vocab=vocab,
        bert_config=config,
        steps=steps,
        batch_size=_BATCH_SIZE,
        max_len=_MAX_LEN,
        learning_rate=_LEARNING_RATE,
        precision=precision,
        evaluate_every=max(1, steps // 10),
    )
    announce.next("Export to a SavedModel that takes strings")
    model, tokenizer, _ = load_pretrained(checkpoint_folder(folder), verbose=False)
    version = export_saved_model(model, out, tokenizer, run_dir=folder)
    print(f"Exported to {version}")
    announce.next("Questions to the exported model, in a process without this package")
    print(ask(version, questions), end="")
    print(f"\nDone after {announce.elapsed()}. More: keras-bert-d2l fill-mask, or your own text:")
    print("keras-bert-d2l pretrain --help")
    return version


def ask(version: str | os.PathLike[str], questions: Sequence[str]) -> str:
    """Returns the answers of an exported model, from a process that imports only TensorFlow.

    Raises:
        RuntimeError: The process failed.
    """
    result = subprocess.run(
        [sys.executable, "-c", _ASK, os.path.abspath(version), *questions],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(f"The exported model gave no answer: {result.stderr}")
    return result.stdout


def newest_run() -> pathlib.Path:
    """Returns the folder of the last run of `quickstart` that was made in this folder.

    Raises:
        FileNotFoundError: There is none.
    """
    number = _last_number(RUNS)
    if not number:
        raise FileNotFoundError(
            "Which model? Name its folder with --model, or make one with keras-bert-d2l quickstart."
        )
    return RUNS / str(number)


def _last_number(runs: pathlib.Path) -> int:
    return max((int(run.name) for run in runs.glob("*") if run.name.isdecimal()), default=0)


def _vocab(corpus: Corpus, path: pathlib.Path) -> Vocab:
    if path.exists():
        print(f"Learned before: {path}")
        return Vocab.from_file(path)
    vocab = learn_vocab(corpus, _VOCAB_SIZE)
    vocab.to_file(path)
    print(f"Learned {len(vocab):,} tokens, such as {', '.join(vocab.tokens[-4:])}: {path}")
    return vocab


def _precision() -> Precision:
    try:
        flags = set(pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        flags = set()
    return "mixed_bfloat16" if flags & _BFLOAT16_FLAGS else "float32"


def _affordable_steps(
    corpus: Corpus, tokenizer: Tokenizer, config: BERTConfig, precision: Precision, seconds: float
) -> int:
    """Measures some steps of a model that is then thrown away."""
    model = BERTModel.from_bert_config(config, dtype=precision)
    model.compile(BERTAdamW(_LEARNING_RATE))
    size: dict[str, Any] = {"batch_size": _BATCH_SIZE, "max_len": _MAX_LEN}
    batches = pretraining_dataset(corpus, tokenizer, **size).take(1 + _TIMED_STEPS)
    throughput = Throughput(Progress(), **size)
    history = model.fit(batches, callbacks=[throughput], verbose=0, shuffle=False).history
    rate = history["sequences/s"][0] / _BATCH_SIZE
    steps = min(max(10 * round(seconds * rate / 10), _FEWEST_STEPS), _MOST_STEPS)
    print(f"{rate:.1f} steps a second on this machine: {steps:,} steps, {seconds / 60:g} minutes")
    return steps
