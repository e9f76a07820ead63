"""Options that pretraining and fine-tuning share."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

from keras_bert_d2l.training.option_records import (
    OptionRecord,
    Positive,
    at_least,
    out_of_range,
)

if TYPE_CHECKING:  # importing it takes seconds
    from keras_bert_d2l.models.features import BatchModel

OptimizerName = Literal["adamw", "lamb", "muon"]  # optimization.optimizers.OPTIMIZERS
ScheduleName = Literal["linear", "cosine", "constant", "wsd"]  # optimization.schedules.SCHEDULES
Remat = Literal["none", "blocks"]  # layers.encoder.Remat

_LORA_LAYERS = "W_q,W_v"  # models.partial_training.LORA_LAYERS


def _names(name: str, value: object) -> str:
    names = value if isinstance(value, list | tuple) else str(value).split(",")
    if not all(isinstance(one, str) and one.strip() for one in names):
        raise out_of_range(name, value, "names, separated by commas")
    return ",".join(one.strip() for one in names)


def axis_sizes(devices: str) -> tuple[int | None, int]:
    """Return the sizes of the data axis and the model axis. `None` means all devices.

    Raises:
        ValueError: The text does not describe devices.
    """
    if devices == "data":
        return None, 1
    sizes: dict[str, int] = {}
    for part in devices.split(","):
        axis, _, size = part.partition("=")
        is_new = axis in ("data", "model") and axis not in sizes
        if not is_new or not size.isdecimal() or int(size) < 1:
            raise out_of_range(
                "devices", devices, "'data', or sizes of these axes such as 'data=2,model=2'"
            )
        sizes[axis] = int(size)
    return sizes.get("data", 1), sizes.get("model", 1)


def _devices(name: str, value: object) -> str:
    data, model = axis_sizes(str(value).replace(" ", ""))
    return "data" if data is None else f"data={data},model={model}"


Devices = Annotated[str, _devices]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions(OptionRecord):
    """Options of the training step.

    Args:
        optimizer: AdamW; LAMB, for batches of thousands of rows; or Muon, which needs fewer steps
            but more computation per step.
        schedule: Learning rate after the warm-up: it falls linearly or like a cosine to 0, is
            constant, or is constant and falls to 0 in the last fifth of the steps (wsd).
        remat: Compute the encoder blocks again in the backward pass (blocks), which takes much less
            memory and up to a third more computation. The training step stays the same.

    Raises:
        ValueError: An option has an invalid value.
    """

    optimizer: OptimizerName = "adamw"
    schedule: ScheduleName = "linear"
    remat: Remat = "none"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoraOptions(OptionRecord):
    """Options of training with LoRA.

    Args:
        lora: Train low-rank updates (LoRA) of this rank instead of the weights of the encoder. The
            run folder then also has `adapter/`, a few megabytes that PEFT reads too.
        lora_alpha: Scale the updates by this number divided by the rank. Defaults to the rank.
        lora_layers: Layers to update, separated by commas: W_q, W_k, W_v and W_o of the attention,
            dense1 and dense2 of the feed-forward network. Pretraining also has hidden (the pooler)
            and mlm/mlp/dense.

    Raises:
        ValueError: An option has an invalid value, or is given without `lora`.
    """

    lora: Annotated[int, at_least(1)] | None = None
    lora_alpha: Positive | None = None
    lora_layers: Annotated[str, _names] = _LORA_LAYERS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora is None and (self.lora_alpha or self.lora_layers != _LORA_LAYERS):
            raise ValueError(
                "`lora_alpha` and `lora_layers` require `lora`, the rank. Received: "
                f"lora_alpha={self.lora_alpha}, lora_layers={self.lora_layers!r}."
            )

    def add_lora(self, model: "BatchModel") -> None:
        """Call `model.enable_lora`, if the options say so."""
        if self.lora is not None:
            model.enable_lora(self.lora, self.lora_alpha, self.lora_layers.split(","))
