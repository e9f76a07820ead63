"""The package's own format: a folder with the model, its configuration and its vocabulary.

The folder holds

- `config.json`: the fields of `BERTConfig`, and `format`, `format_version` and the options of the
  tokenizer (`lowercase` and what else `Tokenizer` takes); for the model of a task `task`, an
  object with its `kind` (`SequenceClassifier`) and its arguments (`labels`, `dropout` ...);
- `vocab.txt`: one token a line, where there is a tokenizer;
- `model.safetensors`: the weights in float32 under their Keras paths without the model's name, for
  instance `encoder/blk_0/attention/W_q/kernel`.

It is JSON with a closed schema, plain text and numbers: reading it runs no code from the files.
It is the same for every backend of Keras, and any Keras dtype policy reads and writes it.
"""

import inspect
import json
import os
import pathlib
from typing import Any

from keras_bert_d2l.checkpoints.formats.task_fields import check_task_fields, parts_of, task_fields
from keras_bert_d2l.checkpoints.weights.safetensors_files import SafetensorsFiles, write_safetensors
from keras_bert_d2l.checkpoints.weights.transfer import Checkpoint, Row, part_of, stored_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab

CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE = "config.json", "vocab.txt", "model.safetensors"
FORMAT, FORMAT_VERSION = "keras_bert_d2l", 1

_DENSE, _NORM = ("kernel", "bias"), ("gamma", "beta")
_IN_A_BLOCK = {
    **{f"attention/W_{letter}": _DENSE for letter in "qkvo"},
    "addnorm1/ln": _NORM,
    "ffn/dense1": _DENSE,
    "ffn/dense2": _DENSE,
    "addnorm2/ln": _NORM,
}


def recognises(path: pathlib.Path) -> bool:
    """Tells whether a folder has a `config.json` of this format."""
    try:
        fields = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(fields, dict) and fields.get("format") == FORMAT


def describe(path: pathlib.Path) -> Checkpoint:
    """Reads the configuration, the vocabulary and the names of the weights.

    Raises:
        FileNotFoundError: The weights are missing.
        ValueError: A file is damaged or of another version.
    """
    file = path / WEIGHTS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(path)!r} is no whole checkpoint: beside {CONFIG_FILE} it has no "
            f"{WEIGHTS_FILE!r}."
        )
    config, options, task = _read_config(path / CONFIG_FILE)
    vocab_file = path / VOCAB_FILE
    if vocab_file.exists() and "lowercase" not in options:
        raise ValueError(
            f"`lowercase` is null or missing in the {CONFIG_FILE} beside "
            f"{os.fspath(vocab_file)!r}: set it to true for a vocabulary of lowered words, and to "
            "false for others."
        )
    return Checkpoint(
        description="keras_bert_d2l checkpoint",
        config=config,
        table=table(config, task),
        tensors=SafetensorsFiles([file]),
        vocab=Vocab.from_file(vocab_file) if vocab_file.exists() else None,
        tokenizer_options=options,
        task=task,
    )


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: dict[str, Any],
) -> None:
    """Writes the files of a checkpoint to an empty folder."""
    config, task = model.bert_config, task_fields(model)
    fields = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **({} if vocab is None else tokenizer_options),
        **({} if task is None else {"task": task}),
        **config.to_dict(),
    }
    write_text(folder / CONFIG_FILE, json.dumps(fields, indent=2) + "\n")
    if vocab is not None:
        vocab.to_file(folder / VOCAB_FILE)
    write_safetensors(folder / WEIGHTS_FILE, stored_weights(model, table(config, task)), "keras")


def table(config: BERTConfig, task: dict[str, Any] | None = None) -> list[Row]:
    """Returns a row for every weight of an architecture, under the name that it has here."""
    layers: dict[str, tuple[str, ...]] = {
        "encoder/token_embedding": ("embeddings",),
        "encoder/segment_embedding": ("embeddings",),
    }
    if config.positions == "learned":
        layers["encoder"] = ("pos_embedding",)
    if config.embedding_norm:
        layers["encoder/embedding_ln"] = _NORM
    for index in range(config.num_blks):
        layers |= {f"encoder/blk_{index}/{name}": parts for name, parts in _IN_A_BLOCK.items()}
    if config.final_norm:
        layers["encoder/final_ln"] = _NORM
    if config.pooler:
        layers["hidden"] = _DENSE
    if config.mlm_head == "mlp":
        layers |= {"mlm/mlp/dense": _DENSE, "mlm/mlp/ln": _NORM}
    if config.tie_embeddings:
        layers["mlm"] = ("bias",)
    else:
        layers["mlm/mlp/logits"] = _DENSE
    if config.next_sentence:
        layers["nsp/dense"] = _DENSE
    layers["head"] = _DENSE
    names = [f"{layer}/{part}" for layer, parts in layers.items() for part in parts]
    parts = parts_of(task)
    return [Row(name, name) for name in names if part_of(name) in parts]


def tokenizer_option_names() -> list[str]:
    """Returns what `Tokenizer` takes beside the vocabulary."""
    parameters = inspect.signature(Tokenizer.__init__).parameters
    return [name for name in parameters if name not in ("self", "vocab")]


def _read_config(
    file: pathlib.Path,
) -> tuple[BERTConfig, dict[str, Any], dict[str, Any] | None]:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        del fields["format"]
        version = fields.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise ValueError(
                f"`format_version` must be {FORMAT_VERSION}. Received: {version!r}; a newer "
                "version of keras_bert_d2l may read it."
            )
        task = fields.pop("task", None)
        if task is not None:
            check_task_fields(task)
        given = [name for name in tokenizer_option_names() if fields.get(name) is not None]
        options = {name: fields.pop(name) for name in given}
        fields.pop("lowercase", None)  # null, where there was no tokenizer
        if not isinstance(options.get("lowercase", True), bool):
            raise ValueError(
                f"`lowercase` must be true, false or null. Received: {options['lowercase']!r}."
            )
        return BERTConfig.from_dict(fields), options, task
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(file)!r} is no configuration of this format: {error}"
        ) from error
