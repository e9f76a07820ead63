"""Save and restore the training state of a run, bit for bit.

The state is in `last/`: `optimizer.safetensors`, `variables.safetensors` with the other variables,
such as the dropout seeds, which Keras does not save, `training_state.json` with the progress, and
copies of `metrics.jsonl` and `report.jsonl`. Between two evaluations it may also have
`metrics.safetensors`. The `last/` of a pretraining run is also a checkpoint, which contains the
weights.
"""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import safetensors
import safetensors.numpy

from keras_bert_d2l.checkpoints.location import STATE_FILE
from keras_bert_d2l.files import replacing_file, replacing_folder, write_json
from keras_bert_d2l.reading import check_file, has_file
from keras_bert_d2l.training.devices.distribution import is_first
from keras_bert_d2l.training.run.run_folder import RunFolder, damaged

_VARIABLES, _OPTIMIZER, _METRICS = (
    f"{name}.safetensors" for name in ("variables", "optimizer", "metrics")
)
_BACKEND = "backend"


@dataclasses.dataclass
class Progress:
    """Progress of a run.

    Attributes:
        step: Number of completed optimizer steps.
    """

    step: int = 0


P = TypeVar("P", bound=Progress)


def sync(model: keras.Model) -> None:
    """Copy the weights into the model, because the JAX trainer stores them elsewhere in `fit`."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def check_weights(model: keras.Model, progress: Progress) -> None:
    """Raise `FloatingPointError` if a weight is not finite, so that it is not saved."""
    for weight in model.trainable_variables:
        if not keras.ops.all(keras.ops.isfinite(weight)):
            raise FloatingPointError(
                f"The training diverged: the weight {weight.path} is not finite after step "
                f"{progress.step:,}. Start a new run with a lower `learning_rate` or a longer "
                "warm-up. The checkpoints from before this step are unchanged."
            )


def save_state(
    run: RunFolder,
    model: keras.Model,
    variables: Sequence[keras.Variable],
    progress: Progress,
    settings: Mapping[str, object],
    *,
    save_model: Callable[[pathlib.Path], object] = lambda folder: None,
    metrics: bool = False,
) -> None:
    """Write the training state to `last/`, in the first of several processes.

    Args:
        run: The run folder.
        model: The compiled model.
        variables: Variables to save in addition to those of the optimizer.
        progress: The progress of the run.
        settings: Options and data hashes that must be the same when the run resumes. The Keras
            backend is added to them.
        save_model: Called with the folder, to add further files to it.
        metrics: Also save the metrics since the last evaluation.

    Raises:
        FloatingPointError: A weight is not finite.
    """
    sync(model)
    check_weights(model, progress)
    if not is_first():
        return
    with replacing_folder(run.last) as folder:
        save_model(folder)
        _write_variables(folder / _VARIABLES, variables)
        _write_variables(folder / _OPTIMIZER, model.optimizer.variables)
        if metrics:
            _write_variables(folder / _METRICS, model.metrics_variables)
        for file in (run.metrics_file, run.records_file):
            if file.exists():
                shutil.copy(file, folder)
        settings = {**settings, _BACKEND: keras.backend.backend()}
        state = {**dataclasses.asdict(progress), "settings": settings}
        write_json(folder / STATE_FILE, state, indent=None)


def restore_progress(run: RunFolder, kind: type[P]) -> tuple[P, dict[str, Any]]:
    """Return the progress and the settings of a run, and restore its logs.

    A killed process may have left metrics and samples of steps that are about to be repeated.

    Raises:
        ValueError: The file is missing or damaged, or the run has another Keras backend.
    """
    stored, settings = run.read_state()
    if (backend := settings.pop(_BACKEND, "tensorflow")) != keras.backend.backend():
        raise ValueError(
            f"The run {run.name!r} was started with the Keras backend {backend!r} and "
            "resumes only with it, because dropout differs. Received: the backend "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND={backend}, or start a new run from "
            "its best checkpoint."
        )
    try:
        progress = kind(**stored)
    except TypeError as error:
        raise damaged(run.state_file, error) from error
    for log in (run.metrics_file, run.records_file):
        saved = run.last / log.name
        has_file(log)  # raises an error for a named pipe, which is not replaced
        with replacing_file(log) as file:
            shutil.copyfile(saved if saved.exists() else os.devnull, file)
    return progress, settings


def restore_variables(
    run: RunFolder, model: keras.Model, variables: Sequence[keras.Variable]
) -> None:
    """Restore the variables of `save_state` and the optimizer, which must be built.

    Raises:
        ValueError: A file is missing or damaged, or the variables have other shapes.
    """
    _read_variables(run.last / _VARIABLES, variables)
    _read_variables(run.last / _OPTIMIZER, model.optimizer.variables)


def restore_metrics(run: RunFolder, model: keras.Model) -> None:
    """Restore the metrics since the last evaluation, if the run was stopped between two.

    Keras resets them when `fit` starts.
    """
    if (run.last / _METRICS).exists():
        _read_variables(run.last / _METRICS, model.metrics_variables)


def _write_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    values = map(keras.ops.convert_to_numpy, variables)
    safetensors.numpy.save_file({str(n): value for n, value in enumerate(values)}, file)


def _read_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    try:
        stored: dict[str, Any] = safetensors.numpy.load_file(check_file(file))
        if len(stored) != len(variables):
            raise ValueError(f"it contains {len(stored)} variables instead of {len(variables)}")
        for index, variable in enumerate(variables):
            variable.assign(stored[str(index)])  # raises ValueError if the shape is different
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise damaged(file, error) from error
