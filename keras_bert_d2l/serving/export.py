"""A model and its tokenizer in, a numbered SavedModel that answers strings out."""

import os
import pathlib

import keras

from keras_bert_d2l.checkpoints.native import check_vocabulary
from keras_bert_d2l.files import replacing_folder
from keras_bert_d2l.inference.fill_mask import check_top_k
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.signatures import (
    TEXT_SPECS,
    TOKENS_SPECS,
    TextSignatures,
    TokenSignatures,
)
from keras_bert_d2l.text.tokenizer import Tokenizer


def export_saved_model(
    model: BERTModel,
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    version: int | None = None,
    *,
    top_k: int = 5,
) -> pathlib.Path:
    """Writes a model, with its tokenizer in the graph, as a SavedModel for TensorFlow Serving.

    The version appears in `path` as a whole and in one step, so that a server that watches `path`
    never sees a part of it. It needs neither this package nor Keras: with `tensorflow` and, for
    strings, `tensorflow_text` imported, `tf.saved_model.load(folder).signatures` holds

    - `serving_default`: `text` -> `embedding`, `pooled`, `nsp` (`TextSignatures.embed`);
    - `fill_mask`: `text` -> `tokens`, `scores`, `ids`, `positions` (`TextSignatures.fill_mask`);
    - `tokens`: `tokens`, `segments`, `valid_lens`, `pred_positions` -> `encoded`, `pooled`,
      `mlm_logits`, `nsp_logits` (`TokenSignatures.tokens`).

    Without a tokenizer `serving_default` is `tokens`, and there is no `fill_mask`.

    Args:
        model: The model.
        path: The folder of all versions of the model, for instance `"saved_models/demo"`.
        tokenizer: The model's tokenizer; `None`: the export answers token ids alone.
        version: The number of the version, at least 1; `None`: the next one, 1 in a new folder.
        top_k: Number of tokens that `fill_mask` predicts for each mask.

    Returns: the folder of the version, `path/version`.

    Raises:
        ValueError: The backend is not TensorFlow, the vocabulary is not of the model's size, or
            `version` or `top_k` is out of range.
        FileExistsError: There is such a version already.
        OSError: The folder cannot be written.
    """
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "A SavedModel is written by the TensorFlow backend. Received: the backend "
            f"{keras.backend.backend()!r}; save the model with `save_pretrained`, and load and "
            "export it in a process with KERAS_BACKEND=tensorflow."
        )
    folder = _version_folder(pathlib.Path(path), version)
    archive = _archive(model, tokenizer, top_k)
    with replacing_folder(folder) as temporary:
        archive.write_out(temporary, verbose=False)
        _refuse_existing(folder)  # another process may have written this version meanwhile
    return folder


def _archive(
    model: BERTModel, tokenizer: Tokenizer | None, top_k: int
) -> keras.export.ExportArchive:
    archive = keras.export.ExportArchive()  # finds the variables that its endpoints use by itself
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
        check_top_k(top_k, len(tokenizer.vocab))
        archive.track(tokenizer)
        of_text = TextSignatures(model, tokenizer, top_k)
        archive.add_endpoint("serving_default", of_text.embed, list(TEXT_SPECS))
        archive.add_endpoint("fill_mask", of_text.fill_mask, list(TEXT_SPECS))
    # Where it is the first endpoint, Keras makes it serving_default too.
    archive.add_endpoint("tokens", TokenSignatures(model).tokens, list(TOKENS_SPECS))
    return archive


def _version_folder(path: pathlib.Path, version: int | None) -> pathlib.Path:
    if version is None:
        taken = [int(entry.name) for entry in path.glob("*") if entry.name.isdecimal()]
        return path / str(max(taken, default=0) + 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"`version` must be an integer of at least 1. Received: {version!r}.")
    folder = path / str(version)
    _refuse_existing(folder)
    return folder


def _refuse_existing(folder: pathlib.Path) -> None:
    if folder.exists():
        raise FileExistsError(
            f"{os.fspath(folder)!r} exists, and an export never replaces a version: choose another "
            "number, or leave `version` out for the next one."
        )
