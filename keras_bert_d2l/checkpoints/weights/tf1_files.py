"""Read TF1 checkpoints one variable at a time, and write them.

TensorFlow verifies the CRC-32C of the index and of each variable.
"""

import errno
import math
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.weights.arrays import NamedArrays

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # found only in checkpoints of TensorFlow 2
_UNREADABLE = (tf.errors.OpError, IndexError, ValueError)  # raised by TensorFlow's reader
_DAMAGED = "The file is damaged or incomplete: copy it again."


def open_tf1(prefix: pathlib.Path) -> NamedArrays:
    """Open a TF1 checkpoint by its prefix, the path without `.index`.

    Raises:
        ValueError: The index is damaged, or belongs to an object-based checkpoint of TensorFlow 2.
    """
    source = os.fspath(prefix)
    try:
        reader = tf.train.load_checkpoint(source)
        shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
        if shapes:  # TensorFlow opens the data file when it reads the first variable: do it now
            reader.get_tensor(min(shapes, key=lambda name: math.prod(shapes[name])))
    except _UNREADABLE as error:
        raise ValueError(
            f"{source + '.index'!r} is not a readable checkpoint index, or one of its data files "
            f"is missing: {error}. {_DAMAGED}"
        ) from error
    if _OBJECT_GRAPH in shapes:
        raise ValueError(
            f"{source!r} is an object-based checkpoint of TensorFlow 2, whose names depend on the "
            "program that wrote it. Use the TF1 checkpoint of the same model "
            "(github.com/google-research/bert)."
        )

    def read(name: str) -> np.ndarray:
        try:
            return np.asarray(reader.get_tensor(name), dtype=np.float32)
        except _UNREADABLE as error:
            raise ValueError(
                f"{name!r} cannot be read from the data file of {source!r}: {error}. {_DAMAGED}"
            ) from error

    dtypes = {name: dtype.name for name, dtype in reader.get_variable_to_dtype_map().items()}
    return NamedArrays(source, shapes, dtypes, read)


def write_tf1(prefix: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a TF1 checkpoint. The same arrays always produce the same bytes."""
    names = sorted(arrays)
    try:
        with tf.device("CPU"):
            tf.raw_ops.SaveV2(
                prefix=os.fspath(prefix),
                tensor_names=names,
                shape_and_slices=[""] * len(names),  # complete arrays, not slices
                tensors=[arrays[name] for name in names],
            )
    except tf.errors.OpError as error:  # "... FILE; No space left on device [Op:SaveV2]"
        reason = error.message.rpartition("; ")[2].partition(" [Op:")[0]
        raise OSError(errno.EIO, reason) from error
