"""Variables of Keras to and from safetensors files, by their place in a list, bit for bit."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import safetensors
import safetensors.numpy


def sync(model: keras.Model) -> None:
    """Fetches the weights into the model: during `fit` Keras keeps those of JAX elsewhere."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def value_of(variable: keras.Variable) -> np.ndarray:
    """Returns what a variable holds."""
    return keras.ops.convert_to_numpy(variable)


def write_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    """Writes what variables hold to a file in a folder that nobody reads yet."""
    arrays = {str(index): value_of(variable) for index, variable in enumerate(variables)}
    file.write_bytes(safetensors.numpy.save(arrays))


def read_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    """Gives variables what `write_variables` has written.

    Raises:
        ValueError: The file is damaged or of other variables.
    """
    try:
        stored = safetensors.numpy.load_file(file)
    except (safetensors.SafetensorError, FileNotFoundError) as error:
        raise damaged(file, error) from error
    assign(variables, {int(key): value for key, value in stored.items()}, file)


def assign(variables: Sequence[keras.Variable], values: dict[int, Any], file: pathlib.Path) -> None:
    """Gives variables the values that a file has under their places.

    Raises:
        ValueError: They do not fit.
    """
    if values.keys() != set(range(len(variables))):
        raise damaged(file, f"it holds {len(values)} variables, not {len(variables)}")
    for index, variable in enumerate(variables):
        value = np.asarray(values[index])
        if value.dtype.kind not in "iuf" or value.shape != tuple(variable.shape):
            raise damaged(file, f"variable {index} does not fit: {value!r:.80}")
        variable.assign(value)


def damaged(path: pathlib.Path, reason: Any) -> ValueError:
    """Returns the error on a file of the state of training that cannot be used."""
    return ValueError(
        f"The state of training is damaged at {os.fspath(path)!r}: {reason}. Begin a new run from "
        "the weights of the last or the best checkpoint; `pretrain` takes one as `init`."
    )
