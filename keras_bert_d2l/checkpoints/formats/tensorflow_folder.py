"""Folders with checkpoints of TensorFlow: which one of them to read, and the files beside it."""

import os
import pathlib
import unicodedata

import tensorflow as tf

from keras_bert_d2l.checkpoints.formats.checkpoint import unnamed_labels
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.reading import has_file
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

CONFIG_FILE, VOCAB_FILE, PREFIX = "bert_config.json", "vocab.txt", "bert_model.ckpt"

# Remedies for a checkpoint of Google without `bert_config.json`, and for models of Keras 2.
RENAME_CONFIG = f"If it is one of google-research/bert, rename its config.json to {CONFIG_FILE}."
SAVE_AS_HDF5 = (
    "If it is a BERT of transformers in Keras 2, call `model.save_weights('tf_model.h5')` and "
    "`bert.config.save_pretrained(folder)` there, and pass the folder with both files."
)

# Lowercasing changes 29 % of the pieces in Google's cased vocabulary and none in the uncased one.
# The threshold is above 0 because users replace unused pieces with their own words, which may
# contain uppercase letters.
_LEAST_CASED = 0.05


def find_prefix(path: pathlib.Path) -> pathlib.Path:
    """Return the prefix of the checkpoint at a path. In a folder, choose the latest checkpoint."""
    if not path.is_dir():
        if path not in prefixes(path.parent):
            raise FileNotFoundError(
                f"There is no checkpoint {os.fspath(path)!r}: {path.name + '.index'!r} is missing."
            )
        return path
    found = prefixes(path)
    if len(found) == 1:
        return found[0]
    # Compare only the name: the file may contain a path on the machine that trained the model.
    state = tf.train.get_checkpoint_state(os.fspath(path))
    latest = "" if state is None else pathlib.PurePath(state.model_checkpoint_path).name
    if latest in [prefix.name for prefix in found]:
        return path / latest
    if not found:
        others = [x for x in map(os.fspath, path.iterdir()) if x.endswith((".h5", ".keras"))]
        raise FileNotFoundError(
            f"{os.fspath(path)!r} has a {CONFIG_FILE} but no checkpoint: {PREFIX}.index and "
            f"{PREFIX}.data-00000-of-00001 are missing."
            + (f" To load a model of Keras, pass its path: {first_few(others)}." if others else "")
        )
    raise ValueError(
        f"{os.fspath(path)!r} contains {len(found)} checkpoints and no file `checkpoint` that "
        "names one of them. Pass one of their paths: "
        f"{first_few(os.fspath(prefix) for prefix in found)}."
    )


def prefixes(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the prefixes of all checkpoints in a folder."""
    return sorted(file.with_suffix("") for file in folder.glob("*.index"))


def find_config(prefix: pathlib.Path, *names: str) -> pathlib.Path:
    """Return the first of some files next to a checkpoint, or else in the folder above.

    Raises:
        FileNotFoundError: There is none.
    """
    folders = prefix.parent, prefix.parent.parent
    for file in (folder / name for folder in folders for name in names):
        if has_file(file):
            return file
    raise FileNotFoundError(
        f"There is no {' or '.join(names)} next to the checkpoint {os.fspath(prefix)!r} or in its "
        "parent folder. It describes the architecture: copy it from the source of the weights. "
        f"{RENAME_CONFIG} {SAVE_AS_HDF5}"
    )


def read_vocab(folder: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Return the vocabulary of a folder, or `None`, and whether it is lowercase."""
    if not has_file(folder / VOCAB_FILE):
        return None, {}
    vocab = Vocab.from_file(folder / VOCAB_FILE)
    return vocab, {"lowercase": is_lowercase(vocab)}


def is_lowercase(vocab: Vocab) -> bool:
    """Return whether a vocabulary consists of lowercase words without accents."""
    changed = 0
    for token in vocab:
        special = token.startswith("[") and token.endswith("]")
        decomposed = unicodedata.normalize("NFD", token.lower())
        plain = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        changed += plain != token and not special
    return changed < _LEAST_CASED * len(vocab)


def sentence_task(num_labels: int) -> ConfigDict:
    """Return the task of a head of classification or, with one output, of regression."""
    fields = {"labels": unnamed_labels(num_labels), "long_texts": "cut", "dropout": 0.1}
    if num_labels == 1:
        return {"kind": "SequenceRegressor", **fields, "pooling": "cls"}
    return {"kind": "SequenceClassifier", "multi_label": False, **fields, "pooling": "cls"}
