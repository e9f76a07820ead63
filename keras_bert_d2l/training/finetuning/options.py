"""The options of fine-tuning: arguments or a `run.yaml` in, one checked record out."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import yaml

from keras_bert_d2l.data.tasks.readers.columns import Column
from keras_bert_d2l.files import write_text
from keras_bert_d2l.training.option_records import (
    absolute_path,
    check_integer,
    check_known,
    number,
    out_of_range,
    read_yaml,
)
from keras_bert_d2l.training.pretraining.options import Precision

Task = Literal["classify", "regress", "tag", "answer"]

_HEADER = "# The options of this run, as `keras-bert-d2l finetune --config` reads them.\n"
_CHOICES: dict[str, Any] = {"task": Task, "precision": Precision}
_FLAGS = ("jit", "multi_label", "freeze_encoder")
# Smallest values; None is allowed beside those of the second line.
_INTEGERS = {"epochs": 1, "batch_size": 1, "seed": 0}
_OPTIONAL_INTEGERS = {"patience": 1, "max_len": 5, "freeze_blocks": 0, "lora": 1}
_NUMBERS = ("learning_rate", "warmup", "weight_decay", "layer_decay", "held_out")
_PATHS = ("model", "train", "dev")
_COLUMNS = ("text", "text_b", "label", "id")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningOptions:
    """How a model is fine-tuned: what a run that goes on has to have as it had it.

    Args:
        epochs: How often to go through the training data.
        learning_rate: Its peak.
        warmup: Share of all steps in which the rate rises, in [0, 1).
        weight_decay: Of `BERTAdamW`.
        layer_decay: Of `BERTAdamW`; below 1 lower blocks learn more slowly.
        batch_size: Rows in a batch, B, where examples are given.
        max_len: Tokens in a row, T, at most, where examples are given. `None`: what the model
            can read, for questions at most 384.
        seed: Decides the order of the examples.
        class_weights: Weights of labels in the loss, by name.
        monitor: The figure by which an epoch is the best; `None`: the task's.
        patience: Stop after so many epochs without a better one; `None`: do all.
        jit: Whether the step is compiled by XLA, anew for each length of a batch.

    Raises:
        ValueError: An option is out of its range or of the wrong type.
    """

    epochs: int = 3
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    batch_size: int = 32
    max_len: int | None = None
    seed: int = 0
    class_weights: dict[str, float] | None = None
    monitor: str | None = None
    patience: int | None = None
    jit: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = normal_form(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)  # a frozen record that completes itself
        for name, fits, meaning in (
            ("learning_rate", self.learning_rate > 0, "above 0"),
            ("warmup", 0 <= self.warmup < 1, "a share of the steps, in [0, 1)"),
            ("weight_decay", self.weight_decay >= 0, "at least 0"),
            ("layer_decay", 0 < self.layer_decay <= 1, "in (0, 1]"),
        ):
            if not fits:
                raise out_of_range(name, getattr(self, name), meaning)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRunOptions(FinetuningOptions):
    """All that a fine-tuning run from files depends on.

    Args:
        task: `"classify"`, `"regress"`, `"tag"` or `"answer"`.
        model: The checkpoint to begin with, in any format, or the folder of a run.
        train: The file or folder of the training data; see `read_examples`.
        dev: That of the development data. `None`: a share of `train`.
        held_out: This share, in (0, 1).
        text: The column of the texts, the words or the questions, by its name or its number;
            `None`: found by the usual names.
        text_b: That of the second texts or the contexts.
        label: That of the labels, scores, tags or answers.
        id: That of the names of examples.
        header: Whether a table begins with the names of its columns; `None`: it is looked at.
        multi_label: Whether a text can have any number of labels.
        separator: What stands between these in a table.
        freeze_encoder: Whether the head and the pooler alone are trained.
        freeze_blocks: The embeddings and so many of the lowest blocks stay as they are.
        lora: Rank of the additions that are trained instead of the encoder.
        precision: Keras's dtype policy.
        **options: Those of `FinetuningOptions`.

    Raises:
        ValueError: An option is missing, out of its range, of the wrong type or contradicts
            another one.
    """

    task: Task
    model: str
    train: str
    dev: str | None = None
    held_out: float = 0.1
    text: Column | None = None
    text_b: Column | None = None
    label: Column | None = None
    id: Column | None = None
    header: bool | None = None
    multi_label: bool = False
    separator: str = ","
    freeze_encoder: bool = False
    freeze_blocks: int | None = None
    lora: int | None = None
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name, what in (
            ("model", "the checkpoint to begin with"),
            ("train", "the training data"),
        ):
            if getattr(self, name) is None:
                raise ValueError(f"`{name}` is missing: name {what}.")
        super().__post_init__()
        if not 0 < self.held_out < 1:
            raise out_of_range("held_out", self.held_out, "in (0, 1)")
        if self.multi_label and self.task != "classify":
            raise ValueError(
                "`multi_label` is for the task 'classify'. Received: multi_label=True, "
                f"task={self.task!r}."
            )
        frozen = {
            "freeze_encoder": self.freeze_encoder,
            "freeze_blocks": self.freeze_blocks is not None,
            "lora": self.lora is not None,
        }
        if sum(frozen.values()) > 1:
            raise ValueError(
                "`freeze_encoder`, `freeze_blocks` and `lora` say in different ways what is "
                "trained. Received: "
                f"{' and '.join(name for name, is_given in frozen.items() if is_given)}; leave "
                "all but one out."
            )

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> Self:
        """Returns the record of a dictionary of options.

        Raises:
            ValueError: An option is unknown, missing, of the wrong type or out of its range.
        """
        check_known(options, cls)
        return cls(**{"task": None, "model": None, "train": None, **options})

    def to_yaml(self, path: str | os.PathLike[str]) -> None:
        """Writes the options to a YAML file, whole or not at all."""
        names = [field.name for field in dataclasses.fields(TaskRunOptions)]
        first = ("task", "model", "train", "dev")
        fields = {n: getattr(self, n) for n in (*first, *(n for n in names if n not in first))}
        write_text(path, _HEADER + yaml.safe_dump(fields, sort_keys=False, allow_unicode=True))


def read_task_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads some or all options of `TaskRunOptions` from a YAML file; values are not checked yet.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is not YAML, is no mapping, or has an unknown option.
    """
    return read_yaml(path, TaskRunOptions)


def normal_form(name: str, value: Any) -> Any:
    """Returns the value of an option as the record keeps it: absolute paths, numbers as floats.

    Raises:
        ValueError: The value is of the wrong type, or no number of examples, steps and the like.
    """
    if name in _NUMBERS:
        return number(name, value)
    if name == "class_weights":
        return _weights(value)
    if name in _INTEGERS or (name in _OPTIONAL_INTEGERS and value is not None):
        check_integer(name, value, {**_INTEGERS, **_OPTIONAL_INTEGERS}[name])
    elif name in _FLAGS and not isinstance(value, bool):
        raise out_of_range(name, value, "true or false")
    elif name in _CHOICES and value not in get_args(_CHOICES[name]):
        raise out_of_range(name, value, f"one of {get_args(_CHOICES[name])}")
    elif name in _PATHS and value is not None:
        return absolute_path(name, value)
    elif name in _COLUMNS and (isinstance(value, bool) or not isinstance(value, str | int | None)):
        raise out_of_range(name, value, "the name of a column, or its number from 1 on")
    elif name in ("monitor", "separator") and not isinstance(value, str | None):
        raise out_of_range(name, value, "a text")
    elif name == "header" and not isinstance(value, bool | None):
        raise out_of_range(name, value, "true or false")
    return value


def _weights(value: Any) -> dict[str, float] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise out_of_range("class_weights", value, "weights of labels, by name")
    return {str(label): number("class_weights", weight) for label, weight in value.items()}
