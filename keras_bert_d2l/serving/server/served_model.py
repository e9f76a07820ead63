"""Load a SavedModel and call its signatures."""

import contextlib
import functools
import importlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from keras_bert_d2l.contract.task import task_kinds
from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.models.tasks.windows import longest_row
from keras_bert_d2l.reading import check_file, has_file, read_json_object
from keras_bert_d2l.serving.audit import (
    GRAPH_FILE,
    check_file_access,
    newest_version,
    read_saved_model,
)
from keras_bert_d2l.serving.protocol import CARD_FILE, ONNX_FILE, Arrays, find_interface, interfaces
from keras_bert_d2l.signatures.signature import TEXT, traced_once
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab, vocab_file_in
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
        interfaces: Inputs and outputs of the signatures by name.
        model: The result of `tf.saved_model.load`.
        prompts: The prompts of the signatures that embed texts, if they are known.
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
                problem = "contains no model version" if folder.is_dir() else "is not a folder"
                raise FileNotFoundError(
                    f"{os.fspath(path)!r} {problem}. Expected a numbered subfolder with a "
                    f"{GRAPH_FILE}, or a {ONNX_FILE}. To serve a checkpoint, first run "
                    "`keras-bert-d2l export --model CHECKPOINT --out saved_models/NAME`, then "
                    "`keras-bert-d2l serve saved_models/NAME`."
                )
            folder = newest
        number = folder.name
        self.version = int(number) if number.isdecimal() else 1
        self.name = folder.parent.name if number.isdecimal() else number
        with contextlib.suppress(Exception):  # needed by older exports and those of other programs
            importlib.import_module("tensorflow_text")
        if verify:
            verify_checksums(folder)
        for file in folder.rglob("*"):
            if not file.is_dir():
                check_file(file)  # TensorFlow would wait for the content of a named pipe
        self._folder = folder
        saved_model = read_saved_model(folder)
        if not allow_files:
            check_file_access(saved_model)
        self.max_len, self.prompts = _of_card(folder)
        try:
            self.interfaces = interfaces(saved_model.meta_graphs[0].signature_def)
            self.model = tf.saved_model.load(os.fspath(folder))
        except Exception as error:  # TensorFlow raises various exceptions for a damaged folder
            reason = f"{_reason(error)}. Restore it from a copy, or export it again."
            raise ValueError(f"{os.fspath(folder)!r} cannot be loaded: {reason}") from error

    @functools.cached_property
    def count_tokens(self) -> Callable[[Sequence[str]], int] | None:
        """Function that counts the tokens of an export of this package, as in `Served`."""
        file = vocab_file_in(self._folder / "assets")
        if self.max_len is None or not has_file(file):
            return None
        vocab = Vocab.from_file(file)
        tokenizer = Tokenizer(vocab, **read_json_object(self._folder / CARD_FILE)["tokenizer"])
        count = traced_once(lambda text: tokenizer.tokenize(text).row_lengths(), (TEXT,))
        return lambda texts: int(
            tf.reduce_sum(tf.minimum(count(tf.constant(texts)) + ADDED_TO_ONE, self.max_len))
        )

    def ask(self, signature: str, inputs: Arrays) -> Arrays:
        """Call a signature and return its outputs, as `Served.ask` describes."""
        specs = find_interface(self.interfaces, signature).inputs
        tensors = {
            name: tf.constant(x, tf.as_dtype(specs[name].dtype)) for name, x in inputs.items()
        }
        try:
            answer = self.model.signatures[signature](**tensors)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(f"The model rejected the request: {_reason(error)}") from error
        return {name: tensor.numpy() for name, tensor in answer.items()}


def _of_card(folder: pathlib.Path) -> tuple[int | None, Mapping[str, str]]:
    """Return what the model cards of this package's exports tell: the length of padded texts, and
    the prompts of the signatures that embed.

    The length is `None` for the models of other programs, and for those that read whole texts.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        card = read_json_object(folder / CARD_FILE)
        kind = card["task"] and task_kinds()[card["task"]["kind"]]
        if not getattr(kind, "gives_tokens", False):
            task = card["task"] or {}
            max_len = int(task.get("max_len") or card["config"]["max_len"])
            return longest_row(max_len, task.get("long_texts", "cut")), card.get("prompts", {})
    return None, {}


def _reason(error: Exception) -> str:
    """Extract the reason from TensorFlow's message, without the location in the graph."""
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    reason = message.rpartition(_BEFORE_REASON)[2].partition(_AFTER_REASON)[0]
    reason = " ".join(reason.split()).removeprefix("assertion failed: [").removesuffix("]")
    return f"{reason or type(error).__name__:.500}"
