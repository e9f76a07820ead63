"""Run the whole workflow in minutes, from raw text to an exported model: `make demo`."""

import math
import os
import pathlib
import time
from typing import Any

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.files import check_local, make_folder
from keras_bert_d2l.progress import duration
from keras_bert_d2l.types import PathLike

RUNS, SAVED_MODELS = pathlib.Path("runs/demo"), pathlib.Path("saved_models/demo")
# A number of steps, not a time: on every machine, the model learns the same. Training with other
# seeds gives the same first answers.
DEFAULT_STEPS = 1000
QUESTIONS = (
    "returns a [MASK] with the same shape as the input .",
    "compute the mean of the array along the given [MASK] .",
)
QUESTION_FOR_NOVELS = "she opened the [MASK] and looked out ."

_CORPUS = "docstrings"
_VOCAB_SIZE = 4000
# Short rows: on them, a model learns sooner to use the context of a word.
_BATCH_SIZE, _MAX_LEN, _LEARNING_RATE, _EVALUATIONS = 64, 32, 2e-3, 4
# Google's initializer (standard deviation 0.02) learns much more slowly at a width of 128. Dropout
# cannot help, because the model hardly sees a text twice.
_FOR_STEPS: dict[str, Any] = {"initializer": "book", "dropout": 0.0, "embedding_dropout": 0.0}


def run(
    *, steps: int = DEFAULT_STEPS, run_dir: PathLike = RUNS, out: PathLike = SAVED_MODELS
) -> pathlib.Path:
    """Learn a vocabulary from docstrings, pretrain a model, export it and query it.

    A second call reuses the vocabulary, and adds a run and an exported version.

    Args:
        steps: Number of training steps.
        run_dir: Folder for `vocab.txt` and the numbered runs.
        out: Folder for the numbered versions of the exported model.

    Returns:
        The folder of the exported version.

    Raises:
        OSError: A folder cannot be written.
        ValueError: `run_dir` or `out` is a URL.
    """
    for name, path in (("run_dir", run_dir), ("out", out)):
        check_local(name, path)
        make_folder(path)  # before the training
    start, runs = time.perf_counter(), pathlib.Path(run_dir)

    def announce(number: int, title: str) -> None:
        print(f"\n[{number}/4, after {duration(time.perf_counter() - start)}] {title}", flush=True)

    corpus = kb.Corpus.open(_CORPUS)
    announce(1, f"Learning a vocabulary from the {corpus.description}")
    vocab = _vocab(corpus, runs / "vocab.txt")
    config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab), max_len=_MAX_LEN, **_FOR_STEPS)
    announce(2, "Pretraining on masked words and next sentences")
    numbers = [int(run.name) for run in runs.glob("*") if run.name.isdecimal()]
    folder = runs / str(max(numbers, default=0) + 1)
    kb.pretrain(
        corpus,
        folder,
        vocab=vocab,
        bert_config=config,
        batch_size=_BATCH_SIZE,
        max_len=_MAX_LEN,
        recipe="modern",
        learning_rate=_LEARNING_RATE,
        precision="float32",  # not what this machine computes fastest
        steps=steps,
        evaluate_every=math.ceil(steps / _EVALUATIONS),
    )
    announce(3, "Exporting a SavedModel that accepts strings")
    model = kb.load_pretrained(folder, verbose=False).model
    version = kb.export_saved_model(model, out, run_dir=folder)
    print(f"Exported to {version}")
    announce(4, "Querying the exported model")
    import tensorflow as tf  # imported here because `--help` does not need it

    exported = tf.saved_model.load(os.fspath(version))  # does not need this package
    found = exported.signatures["fill_mask"](tf.constant(QUESTIONS))
    for text, tokens, scores in zip(QUESTIONS, found["tokens"], found["scores"], strict=True):
        print(f"  {text}")
        for token, score in zip(tokens[0].numpy(), scores[0].numpy(), strict=True):
            print(f"    {score:6.1%}  {token.decode()}")
    print(f"\nThe package has a model that was trained for longer, on novels: {OWN_MODEL}")
    print(f"  {QUESTION_FOR_NOVELS}")
    for answer in kb.fill_mask(OWN_MODEL, QUESTION_FOR_NOVELS)[0]:
        print(f"    {answer.score:6.1%}  {answer.token}")
    needed = duration(time.perf_counter() - start)
    print(f"\nDone after {needed}. Next, ask the models, or train on your own text:")
    print(f'  keras-bert-d2l fill-mask "{QUESTIONS[0]}" --model {folder}')
    print(f'  keras-bert-d2l fill-mask "{QUESTION_FOR_NOVELS}"')
    print("  keras-bert-d2l pretrain --help")
    return version


def _vocab(corpus: "kb.Corpus", path: pathlib.Path) -> "kb.Vocab":
    if path.exists():
        print(f"Reusing the vocabulary: {path}")
        return kb.Vocab.from_file(path)
    vocab = kb.learn_vocab(corpus, _VOCAB_SIZE)
    vocab.to_file(path)
    print(f"Learned {len(vocab):,} tokens, such as {', '.join(vocab.tokens[-4:])}: {path}")
    return vocab
