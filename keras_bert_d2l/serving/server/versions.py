"""Load and serve the newest numbered version of a SavedModel.

As in TensorFlow Serving by default, one version is served at a time, until a newer one replaces
it.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from keras_bert_d2l.serving.export.audit import GRAPH_FILE, read_saved_model
from keras_bert_d2l.serving.protocol.interface import Arrays, Interface, find_interface, interfaces
from keras_bert_d2l.text._tensorflow_text import tensorflow_text
from keras_bert_d2l.types import PathLike

_AVAILABLE, _END = "AVAILABLE", "END"
# TensorFlow's error messages contain the reason between these markers.
_BEFORE_REASON, _AFTER_REASON = "<stack traces unavailable>", "[[{{node"


class Version(NamedTuple):
    """A loaded SavedModel.

    Attributes:
        number: Version number.
        definitions: Protocol buffers of its signatures.
        interfaces: Inputs and outputs of its signatures.
        model: The result of `tf.saved_model.load`.
    """

    number: int
    definitions: Mapping[str, meta_graph_pb2.SignatureDef]
    interfaces: dict[str, Interface]
    model: tf.Module

    def ask(self, signature: str, inputs: Arrays) -> Arrays:
        """Call a signature and return its outputs.

        Args:
            signature: Name of the signature.
            inputs: Arrays with the dtypes and shapes of its inputs.

        Raises:
            ValueError: The model rejects the values.
        """
        specs = find_interface(self.interfaces, signature).inputs
        tensors = {name: tf.constant(x, specs[name].dtype) for name, x in inputs.items()}
        try:
            answer = self.model.signatures[signature](**tensors)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(f"The model rejected the request: {_reason(error)}") from error
        return {name: tensor.numpy() for name, tensor in answer.items()}


class ServedVersions:
    """Numbered versions of a model, the newest of which is loaded.

    Args:
        path: Folder with the numbered versions, or the folder of one version.

    Raises:
        FileNotFoundError: The folder contains no version.
        ValueError: The newest version cannot be loaded.
    """

    def __init__(self, path: PathLike) -> None:
        self._path = pathlib.Path(path)
        self._states: dict[int, tuple[str, str]] = {}
        folders = self._folders()
        if not folders:
            raise FileNotFoundError(
                f"{os.fspath(path)!r} contains no model version: expected a numbered subfolder "
                f"with a {GRAPH_FILE}. Create one with `keras-bert-d2l export`."
            )
        self.newest = _load(folders[max(folders)], max(folders))
        self._states[self.newest.number] = (_AVAILABLE, "")

    @property
    def name(self) -> str:
        """Name of the model's folder."""
        path = self._path.resolve()
        return path.parent.name if _is_version(path) and path.name.isdecimal() else path.name

    def find(self, number: int | None) -> Version | None:
        """Return version `number` if it is loaded. `None` returns the newest version."""
        newest = self.newest
        return newest if number in (None, newest.number) else None

    def states(self) -> dict[int, tuple[str, str]]:
        """Return the state of each version seen so far with its error message, or `""`."""
        return dict(self._states)

    def refresh(self) -> None:
        """Load the newest version if it is not loaded yet.

        A version that cannot be loaded is reported on stderr and not retried.
        """
        try:
            folders = self._folders()
        except OSError:  # the folder is gone: keep serving the loaded version
            return
        number = max(folders, default=0)
        if number <= self.newest.number or number in self._states:
            return
        try:
            version = _load(folders[number], number)
        except (OSError, ValueError) as error:
            self._states[number] = (_END, str(error))
            print(f"Skipping version {number}: {error}", file=sys.stderr, flush=True)
            return
        # Requests in progress keep using the version they started with.
        before, self.newest = self.newest, version
        self._states |= {number: (_AVAILABLE, ""), before.number: (_END, "")}
        print(f"Loaded version {number}.", flush=True)

    def _folders(self) -> dict[int, pathlib.Path]:
        if _is_version(self._path):
            name = self._path.resolve().name
            return {int(name) if name.isdecimal() else 1: self._path}
        return {
            int(entry.name): entry
            for entry in self._path.glob("*")
            if entry.name.isdecimal() and _is_version(entry)
        }


def _is_version(path: pathlib.Path) -> bool:
    try:
        return (path / GRAPH_FILE).is_file()
    except PermissionError:  # loading it reports the error, and other versions stay visible
        return True


def _load(folder: pathlib.Path, number: int) -> Version:
    with contextlib.suppress(ImportError):  # a model that takes token ids does not need its ops
        tensorflow_text()
    definitions = read_saved_model(folder).meta_graphs[0].signature_def
    try:
        model = tf.saved_model.load(os.fspath(folder))
        return Version(number, definitions, interfaces(definitions), model)
    except Exception as error:  # TensorFlow raises various exceptions for a damaged folder
        raise ValueError(f"{os.fspath(folder)!r} cannot be loaded: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Extract the reason from TensorFlow's message, without the location in the graph."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    reason = message.rpartition(_BEFORE_REASON)[2].partition(_AFTER_REASON)[0]
    return f"{' '.join(reason.split()) or type(error).__name__:.500}"
