"""Load a SavedModel and call its signatures."""

import contextlib
import os
import pathlib

import tensorflow as tf

from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.models.tasks.text_inputs import longest_row
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.serving.audit import (
    GRAPH_FILE,
    check_file_access,
    newest_version,
    read_saved_model,
)
from keras_bert_d2l.serving.model_card import CARD_FILE
from keras_bert_d2l.serving.protocol import Arrays, find_interface, interfaces
from keras_bert_d2l.tasks.task import task_kinds
from keras_bert_d2l.text.normalization import tensorflow_text
from keras_bert_d2l.types import PathLike

# TensorFlow's error messages contain the reason between these markers.
_BEFORE_REASON, _AFTER_REASON = "<stack traces unavailable>", "[[{{node"


class ServedModel:
    """The newest version of an exported model.

    Args:
        path: Folder with the numbered versions, or the folder of one version.
        verify: Whether to compare the files of the version with its `SHA256SUMS`, if it has one.
        allow_files: Whether to load a model that can access files or the network.

    Attributes:
        name: Name of the model's folder.
        version: Number of the version; 1 if its folder has no number.
        definitions: Protocol buffers of the signatures by name.
        interfaces: Inputs and outputs of the signatures by name.
        model: The result of `tf.saved_model.load`.
        max_len: Length to which the model truncates and pads texts, if it is known.

    Raises:
        FileNotFoundError: The folder contains no version.
        ValueError: The version cannot be loaded, has changed since it was written, or can access
            files.
    """

    def __init__(self, path: PathLike, *, verify: bool = True, allow_files: bool = False) -> None:
        folder = pathlib.Path(path).resolve()
        if not (folder / GRAPH_FILE).is_file():
            newest = newest_version(folder)
            if newest is None:
                raise FileNotFoundError(
                    f"{os.fspath(path)!r} contains no model version: expected a numbered subfolder "
                    f"with a {GRAPH_FILE}. Create one with `keras-bert-d2l export`."
                )
            folder = newest
        number = folder.name
        self.version = int(number) if number.isdecimal() else 1
        self.name = folder.parent.name if number.isdecimal() else number
        with contextlib.suppress(ImportError):  # a model that takes token ids does not need its ops
            tensorflow_text()
        if verify:
            verify_checksums(folder)
        saved_model = read_saved_model(folder)
        if not allow_files:
            check_file_access(saved_model)
        self.definitions = saved_model.meta_graphs[0].signature_def
        self.max_len = _max_len(folder)
        try:
            self.interfaces = interfaces(self.definitions)
            self.model = tf.saved_model.load(os.fspath(folder))
        except Exception as error:  # TensorFlow raises various exceptions for a damaged folder
            raise ValueError(f"{os.fspath(folder)!r} cannot be loaded: {_reason(error)}") from error

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


def _max_len(folder: pathlib.Path) -> int | None:
    """Return the length of padded texts, which the model cards of this package's exports tell.

    `None` for the models of other programs, and for question answering, which reads whole texts.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        card = read_json_object(folder / CARD_FILE)
        kind = card["task"] and task_kinds()[card["task"]["kind"]]
        if not hasattr(kind, "window_sizes"):
            long_texts = (card["task"] or {}).get("long_texts", "cut")
            return longest_row(int(card["config"]["max_len"]), long_texts)
    return None


def _reason(error: Exception) -> str:
    """Extract the reason from TensorFlow's message, without the location in the graph."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    reason = message.rpartition(_BEFORE_REASON)[2].partition(_AFTER_REASON)[0]
    return f"{' '.join(reason.split()) or type(error).__name__:.500}"
