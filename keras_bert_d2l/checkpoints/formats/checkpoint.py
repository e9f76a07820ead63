"""The contents of a checkpoint, in the same form for every format, and its task as plain fields."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.weights import BERT_PARTS, HEAD_NAMES, Row
from keras_bert_d2l.checks import check_that, shown, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.contract.task import embedder, task_kinds
from keras_bert_d2l.layers.pooling import checked_steps
from keras_bert_d2l.layers.sparse import SparsePooling
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.printing import one_line
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict


class Checkpoint(NamedTuple):
    """Everything in a checkpoint except the values of its weights.

    Attributes:
        description: The format and the kind of model, for summaries.
        config: The architecture.
        table: A row for every weight of that architecture.
        arrays: The weights, which are read on demand.
        vocab: The vocabulary, or `None` if the folder has none.
        tokenizer_options: The options of the tokenizer that uses the vocabulary.
        task: The name of the model's task class as `kind`, and its arguments other than `bert`; or
            `None` for a `BERTModel`.
        unsupported: What the tokenizer of the folder has that ours does not support.
        embedding: The arguments of a `TextEmbedder` with which the folder embeds texts, or `None`.
            `unsupported` among them says what a `TextEmbedder` cannot compute.
        step_weights: The weights of the steps after the pooling, by our names.
        name: The path of the checkpoint or its name on the Hub, for messages.
        positions: The sinusoidal positions of the file, whose last bits depend on the program that
            computed them, or `None`.
        unnamed: Why the names of the task's labels are not known, or an empty string.
        sparse: How the folder pools MLM logits into sparse vectors, or `None` if it does not.
    """

    description: str
    config: BERTConfig
    table: Sequence[Row]
    arrays: NamedArrays
    vocab: Vocab | None
    tokenizer_options: TokenizerOptions
    task: ConfigDict | None = None
    unsupported: str = ""
    embedding: ConfigDict | None = None
    step_weights: Mapping[str, np.ndarray] = {}
    name: str = ""
    positions: np.ndarray | None = None
    unnamed: str = ""
    sparse: SparsePooling | None = None

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that a `BERTModel` uses; only the next-sentence head reads a pooler."""
        return tuple(HEAD_NAMES.values()) if self.config.next_sentence else ("mlm", "rtd")


# Folders of this package that were written before these fields lack them.
_OPTIONAL = {"activation", "long_texts", "max_len", "steps", "prompts", "default_prompt_name"}
_OPTIONAL |= {"include_prompt", "include_special", "similarity", "truncate_dim"}
_OPTIONAL |= {"crf", "valid_tags"}


def task_fields(model: BERTModel | TaskModel) -> ConfigDict | None:
    """Return the fields of a task model, or `None` for a `BERTModel`."""
    if not isinstance(model, TaskModel):
        return None
    return {"kind": type(model).__name__, **model.task_config()}


def embedding_fields(model: BERTModel | TaskModel) -> ConfigDict | None:
    """Return how `embed` pools the tokens of a model; `None` for models that do not embed."""
    if isinstance(model, BERTModel):
        model = embedder()(model)
    return None if model.has_head else model.task_config()


def check_task_fields(fields: object) -> ConfigDict:
    """Validate the task fields of a file and return them; raise `ValueError` if they are invalid.

    Only the names of the fields and of the labels are checked here. The task class checks the rest.
    """
    kind = fields.get("kind") if isinstance(fields, dict) else None
    kinds = task_kinds()
    if not isinstance(fields, dict) or not isinstance(kind, str) or kind not in kinds:
        raise wrong("task", f'an object whose "kind" is one of {tuple(kinds)}', fields)
    expected, calibrated = {"kind", *kinds[kind].fields}, kinds[kind].calibrated.keys()
    if (fields.keys() - calibrated) | (_OPTIONAL & expected) != expected:
        raise ValueError(
            f"The task of a {kind} must have the fields {sorted(expected)}. Received: "
            f"{shown(sorted(fields))}."
        )
    labels = fields.get("labels", [])
    are_strings = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    check_that(are_strings, "labels", "a list of strings", labels)
    return fields


def unnamed_labels(number: int) -> list[str]:
    """Return names of labels whose names are not known, as in transformers."""
    return [f"LABEL_{label}" for label in range(number)]


def make_task(bert: BERTModel, fields: ConfigDict) -> TaskModel:
    """Create a task model on top of a BERT.

    Raises:
        ValueError: A field is out of range, or the BERT does not support the task.
    """
    options = {name: value for name, value in fields.items() if name != "kind"}
    return task_kinds()[fields["kind"]](bert, **options)


def parts_of(task: ConfigDict | None, config: BERTConfig | None = None) -> tuple[str, ...]:
    """Return the possible parts (from `PARTS`) of a task model, or of a `BERTModel` for `None`.

    `config` is needed where the format has models with `pooler_norm`.
    """
    if task is None:
        return BERT_PARTS
    kind = task_kinds()[task["kind"]]
    reads_pooler = kind.pools and task["pooling"] == "cls"
    if config is not None and config.pooler_norm:
        reads_pooler = kind.has_head
    has = {"encoder": True, "hidden": reads_pooler, "head": kind.has_head}
    has["crf"] = task.get("crf", False)
    return tuple(part for part, is_there in has.items() if is_there)


def step_weights(fields: ConfigDict | None) -> list[list[str]]:
    """Return the names of the weights of each step after the pooling of a `TextEmbedder`."""
    names = []
    for number, step in enumerate(checked_steps((fields or {}).get("steps", ()))):
        weights = [] if isinstance(step, str) else ["kernel", "bias"]
        has_bias = not isinstance(step, str) and step["use_bias"]
        names.append([f"head/step_{number}/{x}" for x in weights if has_bias or x == "kernel"])
    return names


def describe_task(task: ConfigDict) -> str:
    """Return a short description of a task, for messages."""
    parts = []
    if "labels" in task:
        several = "; any number per text" if task.get("multi_label") else ""
        parts.append(f"labels: {', '.join(map(one_line, task['labels']))}{several}")
    if "pooling" in task and (not task_kinds()[task["kind"]].has_head or task["pooling"] != "cls"):
        parts.append(f"pooling: {task['pooling']}")
    if task.get("activation", "linear") != "linear":
        parts.append(f"activation: {task['activation']}")
    if "temperature" in task:
        parts.append(f"temperature: {task['temperature']:.3g}")
    return f"{task['kind']} ({'; '.join(parts)})" if parts else task["kind"]
