"""Typed keyword arguments that the models pass on to the methods of `keras.Model`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

import keras

from keras_bert_d2l.layers.encoder import Remat

Optimizer: TypeAlias = str | keras.optimizers.Optimizer
Loss: TypeAlias = str | keras.losses.Loss | Mapping[str, str | keras.losses.Loss]
Metrics: TypeAlias = Sequence[str | keras.metrics.Metric]
MetricsOfOutputs: TypeAlias = Metrics | Mapping[str, Metrics]
Results: TypeAlias = Any  # from `evaluate`: a number, a list, or a dictionary with `return_dict`


class KerasCompileOptions(TypedDict, total=False):
    """The keyword arguments of `keras.Model.compile` after `loss`."""

    loss_weights: Mapping[str, float] | None
    metrics: MetricsOfOutputs | None
    weighted_metrics: MetricsOfOutputs | None
    run_eagerly: bool
    steps_per_execution: int
    jit_compile: bool | str
    auto_scale_loss: bool


class CompileOptions(KerasCompileOptions, total=False):
    """The keyword arguments of `compile` after `loss`."""

    micro_batches: int
    remat: Remat


def with_default_metrics(
    options: CompileOptions, metrics: MetricsOfOutputs | None
) -> CompileOptions:
    """Add default metrics to the arguments of `compile`, unless metrics are given."""
    if options.get("metrics") is None and options.get("weighted_metrics") is None:
        return {**options, "weighted_metrics": metrics}
    return options


class ExportOptions(TypedDict, total=False):
    """The keyword arguments of `export` after `format`."""

    verbose: bool | None
    input_signature: Sequence[keras.InputSpec | Mapping[str, keras.InputSpec]] | None


class SummaryOptions(TypedDict, total=False):
    """The keyword arguments of `summary` after `line_length`."""

    positions: Sequence[float] | None
    print_fn: Callable[[str], object] | None
    expand_nested: bool
    show_trainable: bool
    layer_range: Sequence[str] | None


class PredictOptions(TypedDict, total=False):
    """The keyword arguments of `predict` after `batch_size`."""

    verbose: str | int
    steps: int | None
    callbacks: Sequence[keras.callbacks.Callback] | None


class EvaluateOptions(PredictOptions, total=False):
    """The keyword arguments of `evaluate` after `sample_weight`."""

    return_dict: bool


class FitOptions(TypedDict, total=False):
    """The keyword arguments of `fit` that need no preparation."""

    verbose: str | int
    callbacks: Sequence[keras.callbacks.Callback] | None
    validation_split: float
    class_weight: Mapping[int, float] | None
    initial_epoch: int
    steps_per_epoch: int | None
    validation_steps: int | None
    validation_batch_size: int | None
    validation_freq: int
