"""Read and write Keras variables as safetensors files, bit for bit, keyed by list index."""

import os
import pathlib
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import safetensors
import safetensors.numpy


def sync(model: keras.Model) -> None:
    """Copy the weights into the model, because the JAX trainer stores them elsewhere in `fit`."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def write_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    """Write the values of the variables to a file."""
    values = map(keras.ops.convert_to_numpy, variables)
    file.write_bytes(safetensors.numpy.save({str(n): value for n, value in enumerate(values)}))


def read_variables(file: pathlib.Path, variables: Sequence[keras.Variable]) -> None:
    """Assign the values in a file of `write_variables` to the variables.

    Raises:
        ValueError: The file is damaged or belongs to other variables.
    """
    try:
        stored = safetensors.numpy.load_file(file)
    except (safetensors.SafetensorError, FileNotFoundError) as error:
        raise damaged(file, error) from error
    assign(variables, {int(key): value for key, value in stored.items()}, file)


def assign(
    variables: Sequence[keras.Variable], values: Mapping[int, object], file: pathlib.Path
) -> None:
    """Assign values to variables by position.

    Args:
        variables: The variables.
        values: A value for each position.
        file: The source of the values, for the error message.

    Raises:
        ValueError: The values do not fit the variables.
    """
    if values.keys() != set(range(len(variables))):
        raise damaged(file, f"it contains {len(values)} variables instead of {len(variables)}")
    for index, variable in enumerate(variables):
        value = np.asarray(values[index])
        if value.dtype.kind not in "iuf" or value.shape != tuple(variable.shape):
            raise damaged(file, f"variable {index} does not fit: {value!r:.80}")
        variable.assign(value)


def damaged(path: pathlib.Path, reason: object) -> ValueError:
    """Return the error for a training state that cannot be read."""
    return ValueError(
        f"The training state at {os.fspath(path)!r} is damaged: {str(reason).rstrip('.')}. Start a "
        "new run from the weights of the last or best checkpoint; `pretrain` accepts a "
        "checkpoint as `init`."
    )
