"""A folder of numbered SavedModels in, the newest of them out, loaded; also when a newer appears.

As TensorFlow Serving by default: one version answers at a time, and the one before it goes.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.serving.export.audit import GRAPH_FILE, read_saved_model
from keras_bert_d2l.serving.protocol.tensors import Interface, find_interface, interfaces
from keras_bert_d2l.text._tensorflow_text import tensorflow_text

_AVAILABLE, _END = "AVAILABLE", "END"
_BEFORE_REASON, _AFTER_REASON = "<stack traces unavailable>", "[[{{node"  # in a message


class Version(NamedTuple):
    """A loaded SavedModel.

    Attributes:
        number: The number of the version.
        definitions: The protocol buffers `SignatureDef` of its signatures.
        interfaces: What they take and return.
        model: What `tf.saved_model.load` returned.
    """

    number: int
    definitions: Mapping[str, Any]
    interfaces: dict[str, Interface]
    model: Any

    def ask(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the answer of a signature; strings as objects of type `bytes`.

        Args:
            signature: Its name.
            inputs: Arrays of the dtypes and shapes that it takes.

        Raises:
            ValueError: The model refuses the values.
        """
        specs = find_interface(self.interfaces, signature).inputs
        tensors = {name: tf.constant(x, specs[name].dtype) for name, x in inputs.items()}
        try:
            answer = self.model.signatures[signature](**tensors)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(f"The model refuses the request: {_reason(error)}") from error
        return {name: tensor.numpy() for name, tensor in answer.items()}


class ServedVersions:
    """The versions of a model.

    Args:
        path: The folder with the numbered versions, or the folder of one version.

    Raises:
        FileNotFoundError: There is no version.
        ValueError: The newest one cannot be loaded.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        self._states: dict[int, tuple[str, str]] = {}  # and what went wrong
        folders = self._folders()
        if not folders:
            raise FileNotFoundError(
                f"{os.fspath(path)!r} holds no version: no folder with a number for a name and a "
                f"{GRAPH_FILE} in it. Write one with `keras-bert-d2l export`."
            )
        self.newest = _load(folders[max(folders)], max(folders))
        self._states[self.newest.number] = (_AVAILABLE, "")

    @property
    def name(self) -> str:
        """The name that the folder gives the model."""
        path = self._path.resolve()
        return path.parent.name if self._is_version(path) and path.name.isdecimal() else path.name

    def find(self, number: int | None) -> Version | None:
        """Returns the version of a number, if it is loaded; of `None` the newest."""
        newest = self.newest
        return newest if number in (None, newest.number) else None

    def states(self) -> dict[int, tuple[str, str]]:
        """Returns for each version that was seen its state, and what went wrong."""
        return dict(self._states)

    def refresh(self) -> None:
        """Loads the newest version, if it is not loaded.

        One that cannot be loaded is told on stderr, and not tried again.
        """
        try:
            folders = self._folders()
        except OSError:  # the folder is gone: what is loaded answers on
            return
        number = max(folders, default=0)
        if number <= self.newest.number or number in self._states:
            return
        try:
            version = _load(folders[number], number)
        except (OSError, ValueError) as error:
            self._states[number] = (_END, str(error))
            print(f"Version {number} is left out: {error}", file=sys.stderr, flush=True)
            return
        before, self.newest = self.newest, version  # what runs keeps the version that it has
        self._states[number] = (_AVAILABLE, "")
        self._states[before.number] = (_END, "")
        print(f"Version {number} is loaded.", flush=True)

    def _folders(self) -> dict[int, pathlib.Path]:
        if self._is_version(self._path):
            name = self._path.resolve().name
            return {int(name) if name.isdecimal() else 1: self._path}
        return {
            int(entry.name): entry
            for entry in self._path.glob("*")
            if entry.name.isdecimal() and self._is_version(entry)
        }

    @staticmethod
    def _is_version(path: pathlib.Path) -> bool:
        try:
            return (path / GRAPH_FILE).is_file()
        except PermissionError:  # it is told when it is loaded, and hides no other version
            return True


def _load(folder: pathlib.Path, number: int) -> Version:
    with contextlib.suppress(ImportError):  # a model that takes token ids needs none of its ops
        tensorflow_text()
    definitions = read_saved_model(folder).meta_graphs[0].signature_def
    try:
        model = tf.saved_model.load(os.fspath(folder))
        return Version(number, definitions, interfaces(definitions), model)
    except Exception as error:  # TensorFlow tells a damaged folder in many ways
        raise ValueError(f"{os.fspath(folder)!r} cannot be loaded: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The part of TensorFlow's message that says what is wrong, without where in the graph."""
    told = error.message if isinstance(error, tf.errors.OpError) else str(error)
    told = told.rpartition(_BEFORE_REASON)[2].partition(_AFTER_REASON)[0]
    return f"{' '.join(told.split()) or type(error).__name__:.500}"
