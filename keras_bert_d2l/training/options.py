"""Option records: one typed definition for Python, the command line and YAML.

A record is a frozen dataclass. The annotation of a field defines its valid values, the default
applies everywhere, and the entry in the class docstring is the help text on the command line.
This module imports neither TensorFlow nor Keras, so that `--help` is fast.
"""

import dataclasses
import functools
import math
import os
import typing
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from keras_bert_d2l.checkpoints.location import is_own_model, is_remote
from keras_bert_d2l.checks import (
    at_least,
    check_annotated,
    check_known,
    check_not_negative,
    check_positive,
    check_share,
    check_type,
    is_number,
    shown,
    wrong,
)
from keras_bert_d2l.files import url, write_text
from keras_bert_d2l.reading import errors_naming, read_yaml
from keras_bert_d2l.types import PathLike

if TYPE_CHECKING:  # importing it takes seconds
    from keras_bert_d2l.models.batch_model import BatchModel

_CHOSEN = ("precision", "rows")  # a run replaces "auto" with its choice


def number(name: str, value: object) -> float:
    """Return the value of an option as a float, or raise `ValueError` if it is not finite."""
    try:  # YAML 1.1 reads 1e-3 as a string, because it has no decimal point
        found = float(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not is_number(found) or not math.isfinite(found):
        raise wrong(name, "a number", value)
    return float(found)


def absolute_path(name: str, value: object) -> str:
    """Return the absolute path, with `~` expanded, or the URL of a path in an object store."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise wrong(name, "a path", value)
    return url(value) or os.path.abspath(os.path.expanduser(value))


def checkpoint(name: str, value: object) -> str:
    """Return the absolute path of a checkpoint, or the unchanged name of a model."""
    if isinstance(value, str) and (is_remote(value) or is_own_model(value)):
        return value
    return absolute_path(name, value)


# Field types shared by several records.
FilePath = Annotated[str, absolute_path]
CheckpointName = Annotated[str, checkpoint]
Text = Annotated[str, functools.partial(check_type, kind=str)]
Positive = Annotated[float, check_positive, number]
NotNegative = Annotated[float, check_not_negative, number]
Share = Annotated[float, check_share, number]
Rate = Annotated[float, functools.partial(check_not_negative, below=1), number]
Precision = Literal["auto", "float32", "mixed_bfloat16", "mixed_float16"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionRecord:
    """Base class of the option records. Checks the fields, and reads and writes YAML."""

    command: ClassVar[str]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._set(field.name, self.normal_form(field.name, getattr(self, field.name)))

    def _check_exclusive(self, *names: str) -> None:
        """Raise `ValueError` if more than one of the options is set."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        chosen = [name for name in names if getattr(self, name) != defaults[name]]
        listed = "` and `".join(chosen)
        self._check(len(chosen) < 2, f"`{listed}` exclude each other: remove all but one.", *chosen)

    def _check(self, is_right: bool, rule: str, *names: str) -> None:
        """Raise `ValueError` with a rule and the set options that break it, unless `is_right`."""
        if not is_right:
            given = {name: value for name in names if (value := getattr(self, name)) is not None}
            received = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(f"{rule} Received: {received}.")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the dataclass is frozen

    @classmethod
    def normal_form(cls, name: str, value: object) -> object:
        """Return the normalized value of an option, such as an absolute path or a float.

        Raises:
            ValueError: The option is unknown, or the value is invalid.
        """
        cls.check_known([name])
        return check_annotated(name, value, _field_types(cls)[name])  # type: ignore[arg-type]

    @classmethod
    def check_known(cls, options: Iterable[str]) -> None:
        """Raise `ValueError` for an unknown option name."""
        check_known("option", options, [field.name for field in dataclasses.fields(cls)])

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> Self:
        """Create a record from a dictionary of options.

        Raises:
            ValueError: An option is unknown or missing, or has an invalid value.
        """
        cls.check_known(options)
        return cls(**{**dict.fromkeys(cls.missing(options)), **options})

    @classmethod
    def missing(cls, options: Mapping[str, Any]) -> list[str]:
        """Return the names of the required options that are not given."""
        required = [
            one.name for one in dataclasses.fields(cls) if one.default is dataclasses.MISSING
        ]
        return [name for name in required if options.get(name) is None]

    @classmethod
    def read_yaml(cls, path: PathLike) -> dict[str, Any]:
        """Read some or all options from a YAML file, without checking their values.

        Raises:
            FileNotFoundError: The file does not exist.
            ValueError: The file is not YAML, is not a mapping, or has an unknown option.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        options = {  # an option of another version that was not used has no effect
            name: value
            for name, value in read_options(path).items()
            if value is not None or name in known
        }
        with errors_naming(path):
            cls.check_known(options)
        return options

    @classmethod
    def of_run(cls, path: PathLike, given: Mapping[str, Any]) -> Self:
        """Return the options of a run to resume.

        Args:
            path: The `run.yaml` of the run.
            given: Options that must have the same values, unless they are `None`. Only `devices`
                may be different.

        Raises:
            ValueError: The file is damaged, or an option differs.
        """
        options = cls.read_yaml(path)
        if given.get("devices") is not None:  # a run may resume on another machine
            options["devices"] = given["devices"]
        with errors_naming(path):
            record = cls.from_dict(options)
        for name, value in given.items():
            if value is None or (name in _CHOSEN and value == "auto"):
                continue
            if record.normal_form(name, value) != getattr(record, name):
                raise ValueError(
                    f"The run of {os.fspath(path)!r} has {name}={getattr(record, name)!r} and "
                    f"resumes with its own options. Received: {name}={shown(value)}; omit it, or "
                    "start a new run in a different folder."
                )
        return record

    def to_yaml(self, path: PathLike) -> None:
        """Write all options to a YAML file, atomically."""
        import yaml

        header = f"# Options of this run; reuse them with `keras-bert-d2l {self.command} --config`."
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        write_text(path, f"{header}\n{text}")


@functools.cache
def _field_types(record: type[OptionRecord]) -> dict[str, Any]:
    return typing.get_type_hints(record, include_extras=True)


def read_options(path: PathLike) -> dict[str, Any]:
    """Read options from a YAML file, without checking their names and values.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is not YAML, or is not a mapping.
    """
    options = read_yaml(path)
    if options is None:  # the file contains only comments
        return {}
    if not isinstance(options, dict):
        raise ValueError(
            f"{os.fspath(path)!r} must contain options, one `name: value` per line. "
            f"Received: {shown(options)}."
        )
    return options


OptimizerName = Literal["adamw", "muon"]  # optimization.run_optimizer.OPTIMIZERS
ScheduleName = Literal["linear", "cosine", "constant", "wsd"]  # optimization.schedules.SCHEDULES
Devices = Literal["data"]
Remat = Literal["none", "blocks"]  # layers.encoder.Remat

_LORA_LAYERS = "W_q,W_v"  # models.partial_training.LORA_LAYERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions(OptionRecord):
    """Options of the training step.

    Args:
        optimizer: AdamW, or Muon, which needs fewer steps but more computation per step.
        schedule: Learning rate after the warm-up: it falls linearly or like a cosine to 0, is
            constant, or is constant and falls to 0 in the last fifth of the steps (wsd).
        remat: Compute the encoder blocks again in the backward pass (blocks), which takes much less
            memory and up to a third more computation. The training step stays the same.
        learning_rate: Peak learning rate, reached after the warm-up.
        weight_decay: Weight decay.
        micro_batches: Split each batch into this many parts and process one after another, which
            takes less memory. The training step stays the same. Not with JAX.
        seed: Random seed of everything that the run draws at random.
        jit: Whether to compile the training step with XLA. Defaults to a choice by device.

    Raises:
        ValueError: An option has an invalid value.
    """

    optimizer: OptimizerName = "adamw"
    schedule: ScheduleName = "linear"
    remat: Remat = "none"
    learning_rate: Positive
    weight_decay: NotNegative = 0.01
    micro_batches: Annotated[int, at_least(1)] = 1
    seed: Annotated[int, at_least(0)] = 0
    jit: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoraOptions(OptionRecord):
    """Options of training with LoRA.

    Args:
        lora: Train low-rank updates (LoRA) of this rank instead of the weights of the encoder. The
            run folder then also has `adapter/`, a few megabytes that PEFT reads too.
        lora_alpha: Scale the updates by this number divided by the rank. Defaults to the rank.
        lora_layers: Layers to update, separated by commas: W_q, W_k, W_v and W_o of the attention,
            dense1 and dense2 of the feed-forward network. Pretraining also has pooler and
            mlm/mlp/dense.

    Raises:
        ValueError: An option has an invalid value, or is given without `lora`.
    """

    lora: Annotated[int, at_least(1)] | None = None
    lora_alpha: Positive | None = None
    lora_layers: Text = _LORA_LAYERS

    def __post_init__(self) -> None:
        super().__post_init__()
        is_set = self.lora_alpha or self.lora_layers != _LORA_LAYERS
        rule = "`lora_alpha` and `lora_layers` require `lora`, the rank."
        self._check(self.lora is not None or not is_set, rule, "lora_alpha", "lora_layers")

    def add_lora(self, model: "BatchModel") -> None:
        """Call `model.enable_lora`, if the options say so."""
        if self.lora is not None:
            layers = [name.strip() for name in self.lora_layers.split(",")]
            model.enable_lora(self.lora, self.lora_alpha, layers)
