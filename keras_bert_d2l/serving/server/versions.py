"""Load and serve the newest numbered version of a SavedModel.

As in TensorFlow Serving by default, one version is served at a time, until a newer one replaces
it. A version that cannot be loaded, for example because it is still being copied, is tried again
when its files have changed.
"""

import contextlib
import gc
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.models.tasks import QuestionAnswerer
from keras_bert_d2l.models.tasks.long_texts import longest_row
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.serving.export.audit import GRAPH_FILE, check_file_access, read_saved_model
from keras_bert_d2l.serving.export.model_card import CARD_FILE
from keras_bert_d2l.serving.protocol.interface import Arrays, Interface, find_interface, interfaces
from keras_bert_d2l.text._tensorflow_text import tensorflow_text
from keras_bert_d2l.types import PathLike

_Files = dict[pathlib.Path, tuple[int, int]]
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
        max_len: Length to which the model truncates and pads texts, if it is known.
    """

    number: int
    definitions: Mapping[str, meta_graph_pb2.SignatureDef]
    interfaces: dict[str, Interface]
    model: tf.Module
    max_len: int | None

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
        verify: Whether to compare the files of a version with its `SHA256SUMS`, if it has one.
        allow_files: Whether to serve models that can access files or the network.

    Raises:
        FileNotFoundError: The folder contains no version.
        ValueError: The newest version cannot be loaded, has changed since it was written, or can
            access files.
    """

    def __init__(self, path: PathLike, *, verify: bool = True, allow_files: bool = False) -> None:
        self._path = pathlib.Path(path)
        self._verify, self._allow_files = verify, allow_files
        self._states: dict[int, tuple[str, str]] = {}
        self._failed: dict[int, _Files] = {}  # the files of the versions that cannot be loaded
        folders = self._folders()
        if not folders:
            raise FileNotFoundError(
                f"{os.fspath(path)!r} contains no model version: expected a numbered subfolder "
                f"with a {GRAPH_FILE}. Create one with `keras-bert-d2l export`."
            )
        self.newest = self._load(folders[max(folders)], max(folders))
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
        """Load the newest version that can be loaded, if it is not loaded yet.

        A version that cannot be loaded is reported on stderr, and skipped until its files change.
        """
        try:
            folders = self._folders()
        except OSError:  # the folder is gone: keep serving the loaded version
            return
        for number in sorted(folders, reverse=True):
            if number <= self.newest.number or self._takes_over(number, folders[number]):
                return

    def _takes_over(self, number: int, folder: pathlib.Path) -> bool:
        """Serve a newer version, and return whether it could be loaded."""
        files = _files(folder)
        if self._failed.get(number) == files:
            return False
        try:
            version = self._load(folder, number)
        except (OSError, ValueError) as error:
            state = (_END, str(error))
            if self._states.get(number) != state:
                until = "It is tried again when its files change."
                print(f"Skipping version {number}: {error} {until}", file=sys.stderr, flush=True)
            self._states[number], self._failed[number] = state, files
            return False
        # Requests in progress keep using the version they started with.
        before, self.newest = self.newest, version
        self._states |= {number: (_AVAILABLE, ""), before.number: (_END, "")}
        del before
        gc.collect()  # TensorFlow's objects form cycles, which would keep the weights in memory
        print(f"Loaded version {number}.", flush=True)
        return True

    def _folders(self) -> dict[int, pathlib.Path]:
        if _is_version(self._path):
            name = self._path.resolve().name
            return {int(name) if name.isdecimal() else 1: self._path}
        return {
            int(entry.name): entry
            for entry in self._path.glob("*")
            if entry.name.isdecimal() and _is_version(entry)
        }

    def _load(self, folder: pathlib.Path, number: int) -> Version:
        with contextlib.suppress(ImportError):  # a model that takes token ids does not need its ops
            tensorflow_text()
        if self._verify:
            verify_checksums(folder)
        saved_model = read_saved_model(folder)
        if not self._allow_files:
            check_file_access(saved_model)
        definitions = saved_model.meta_graphs[0].signature_def
        try:
            model = tf.saved_model.load(os.fspath(folder))
            return Version(number, definitions, interfaces(definitions), model, _max_len(folder))
        except Exception as error:  # TensorFlow raises various exceptions for a damaged folder
            raise ValueError(f"{os.fspath(folder)!r} cannot be loaded: {_reason(error)}") from error


def _is_version(path: pathlib.Path) -> bool:
    try:
        return (path / GRAPH_FILE).is_file()
    except PermissionError:  # loading it reports the error, and other versions stay visible
        return True


def _files(folder: pathlib.Path) -> _Files:
    """Return the sizes and times of the files of a folder, to detect that they have changed."""
    found = {}
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = file.stat()
            found[file] = (status.st_size, status.st_mtime_ns)
    return found


def _max_len(folder: pathlib.Path) -> int | None:
    """Return the length of padded texts, which the model cards of this package's exports tell.

    `None` for the models of other programs, and for question answering, which reads whole texts.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        card = read_json_object(folder / CARD_FILE)
        if card["task"] is None or card["task"]["kind"] != QuestionAnswerer.__name__:
            long_texts = (card["task"] or {}).get("long_texts", "cut")
            return longest_row(int(card["config"]["max_len"]), long_texts)
    return None


def _reason(error: Exception) -> str:
    """Extract the reason from TensorFlow's message, without the location in the graph."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    reason = message.rpartition(_BEFORE_REASON)[2].partition(_AFTER_REASON)[0]
    return f"{' '.join(reason.split()) or type(error).__name__:.500}"
