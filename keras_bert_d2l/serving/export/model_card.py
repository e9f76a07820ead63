"""What an exported version is, as a JSON file beside it: `model_card.json`."""

import importlib.metadata
import json
import math
import operator
import os
import pathlib
from typing import Any

import tensorflow as tf

from keras_bert_d2l.checkpoints.formats.task_fields import task_fields
from keras_bert_d2l.files import write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.export.audit import read_saved_model
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.finetuning.finetune import METRICS_JSON
from keras_bert_d2l.training.finetuning.options import read_task_options
from keras_bert_d2l.training.pretraining.options import read_options
from keras_bert_d2l.training.pretraining.run_folder import RunFolder

CARD_FILE = "model_card.json"
_PACKAGES = ("keras-bert-d2l", "keras", "tensorflow", "tensorflow-text")
_HELD_OUT_LOSS = "val_loss"
_INITIALIZER = "__saved_model_init_op"  # TensorFlow's own among the signatures


def write_model_card(
    folder: pathlib.Path,
    *,
    name: str,
    version: int,
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    pairs: bool,
    null_threshold: float | None,
    run_dir: str | os.PathLike[str] | None,
) -> None:
    """Writes `model_card.json` into the folder of a SavedModel.

    Args:
        folder: The folder, with its `saved_model.pb`.
        name: The model's name for the server.
        version: The number of the version.
        model: The model.
        tokenizer: Its tokenizer.
        pairs: Whether it is asked pairs of texts.
        null_threshold: Above which `null_score` it says that there is no answer; `None`: never.
        run_dir: The folder of the run that trained it.

    Raises:
        FileNotFoundError: `run_dir` is no folder of a run.
    """
    task = task_fields(model)
    card = {
        "name": name,
        "version": version,
        "task": task and {**task, "pairs": pairs, "null_threshold": null_threshold},
        "config": model.bert_config.to_dict(),
        "precision": model.dtype_policy.name,
        "tokenizer": None if tokenizer is None else tokenizer.options,
        "vocabulary": None if tokenizer is None else _vocabulary(tokenizer),
        "packages": _versions(),
        "signatures": describe_signatures(folder),
        "training": None if run_dir is None else _training(run_dir),
    }
    text = json.dumps(card, indent=2, ensure_ascii=False, allow_nan=False, default=os.fspath)
    write_text(folder / CARD_FILE, text + "\n")


def describe_signatures(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns what the signatures of a SavedModel take and return.

    Args:
        path: The folder with `saved_model.pb`, of any program.

    Returns: for each signature `{"inputs": tensors, "outputs": tensors}`, where `tensors` maps
        names to `{"dtype": ..., "shape": [...]}`; `None` in a shape is any size, and a shape that
        is `None` any shape.

    Raises:
        FileNotFoundError: The folder holds no `saved_model.pb`.
        ValueError: The file is damaged.
    """
    signatures = read_saved_model(path).meta_graphs[0].signature_def
    return {
        name: {
            "inputs": _tensors(signatures[name].inputs),
            "outputs": _tensors(signatures[name].outputs),
        }
        for name in sorted(signatures)
        if name != _INITIALIZER
    }


def _tensors(infos: Any) -> dict[str, Any]:
    return {
        name: {
            "dtype": tf.as_dtype(infos[name].dtype).name,
            "shape": tf.TensorShape(infos[name].tensor_shape).as_list()
            if not infos[name].tensor_shape.unknown_rank
            else None,
        }
        for name in sorted(infos)
    }


def _vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    return {"size": len(tokenizer.vocab), "sha256": tokenizer.vocab.fingerprint}


def _versions() -> dict[str, str]:
    installed = {}
    for package in _PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # tensorflow-text, on Windows
            continue
    return installed


def _training(run_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """The options of a run, and the figures of its best evaluation."""
    run = RunFolder(run_dir)
    metrics_file = run.path / METRICS_JSON
    if metrics_file.is_file():  # a run of fine-tuning, which has chosen its best epoch
        metrics = json.loads(metrics_file.read_text(encoding="utf-8"))
        is_from_files = run.options_file.is_file()
        options = read_task_options(run.options_file) if is_from_files else metrics["options"]
        return {"options": options, "best": metrics["best"]}
    if not run.options_file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(run_dir)!r} holds no run: it has no {run.options_file.name}."
        )
    measured = [line for line in run.metrics() if line.get(_HELD_OUT_LOSS, math.nan) < math.inf]
    best = min(measured, key=operator.itemgetter(_HELD_OUT_LOSS), default=None)
    if best is not None:
        best = {name: value if math.isfinite(value) else None for name, value in best.items()}
    return {"options": read_options(run.options_file), "best": best}
