"""The model card of an exported version: `model_card.json`, next to the graph."""

import importlib.metadata
import os
import pathlib
from collections.abc import Mapping

from keras_bert_d2l.checkpoints.formats.checkpoint import embedding_fields, task_fields
from keras_bert_d2l.files import verify_checksums, write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.serving.audit import read_saved_model
from keras_bert_d2l.serving.protocol import CARD_FILE, JSONObject, Specs, interfaces
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.run.callbacks import finite
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.types import PathLike

PRODUCER = "keras-bert-d2l"


def card_fields(
    model: BERTModel | TaskModel, tokenizer: Tokenizer | None, **task_options: object
) -> dict[str, object]:
    """Return what the model cards of a SavedModel and of an ONNX file tell about a model."""
    task = task_fields(model)
    return {
        "producer": f"{PRODUCER} {importlib.metadata.version(PRODUCER)}",
        "task": task and {**task, **task_options},
        "embedding": embedding_fields(model),
        "config": model.bert_config.to_dict(),
        "tokenizer": tokenizer and tokenizer.options,
        "vocabulary": tokenizer
        and {"size": len(tokenizer.vocab), "sha256": tokenizer.vocab.fingerprint},
    }


def write_model_card(
    folder: pathlib.Path,
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    run_dir: PathLike | None,
    *,
    name: str,
    version: int,
    task_options: Mapping[str, object],
) -> None:
    """Write `model_card.json` into the folder of a SavedModel.

    Args:
        folder: Folder with a `saved_model.pb`.
        model: The model.
        tokenizer: Its tokenizer.
        run_dir: Folder of the run that trained the model.
        name: Name of the model on the server.
        version: Version number.
        task_options: Export options to list in the card of a task model.

    Raises:
        FileNotFoundError: `run_dir` is not a run folder.
    """
    signatures = interfaces(read_saved_model(folder).meta_graphs[0].signature_def)
    card = {
        "name": name,
        "version": version,
        **card_fields(model, tokenizer, **task_options),
        "precision": model.dtype_policy.name,
        "signatures": {
            name: {"inputs": _tensors(one.inputs), "outputs": _tensors(one.outputs)}
            for name, one in signatures.items()
        },
        "training": None if run_dir is None else _training(run_dir),
    }
    write_json(folder / CARD_FILE, card, ensure_ascii=False)


def _tensors(specs: Specs) -> dict[str, JSONObject]:
    """Describe tensors as JSON. A dimension of `None` can have any size."""
    return {name: {"dtype": spec.dtype_name, "shape": spec.shape} for name, spec in specs.items()}


def _training(run_dir: PathLike) -> dict[str, object]:
    """Return the path of a run and the metrics of its best evaluation."""
    run = RunFolder.for_reading(run_dir)
    verify_checksums(run.path)
    if run.summary_file.is_file():  # a fine-tuning run, which has already chosen its best epoch
        best = read_json_object(run.summary_file)["best"]
    elif run.options_file.is_file():
        best_step = run.read_json(run.state_file).get("best_step")
        best = next((finite(line) for line in run.metrics() if line["step"] == best_step), None)
    else:
        raise FileNotFoundError(
            f"{os.fspath(run_dir)!r} does not contain a run: it has no {run.options_file.name}."
        )
    return {"run": os.fspath(run_dir), "best": best}
