"""Read and write the checkpoint folders of google-research/bert.

A folder contains

- `bert_config.json`: the architecture, in the fields of `modeling.BertConfig`;
- `vocab.txt`: one token per line;
- `bert_model.ckpt.index` and `bert_model.ckpt.data-00000-of-00001`, under this or a different
  prefix: the variables under their names in `modeling.py` and `run_pretraining.py`, and in
  checkpoints of a training run also the optimizer state;
- often `checkpoint`, which names the latest prefix.

The files do not record the graph, the case of the vocabulary or the kind of model.

Source: github.com/google-research/bert, modeling.py and run_pretraining.py.
"""

import os
import pathlib
import unicodedata
import warnings

import tensorflow as tf

from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.formats.google.config import (
    CONFIG_FILE,
    config_from_json,
    config_to_json,
)
from keras_bert_d2l.checkpoints.formats.google.weights import SLOTS, STEP, table
from keras_bert_d2l.checkpoints.weights.contents import check_extent
from keras_bert_d2l.checkpoints.weights.tables import first_few
from keras_bert_d2l.checkpoints.weights.tf1_files import open_tf1, write_tf1
from keras_bert_d2l.checkpoints.weights.transfer import stored_weights
from keras_bert_d2l.files import write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab.vocab import Vocab

VOCAB_FILE, PREFIX = "vocab.txt", "bert_model.ckpt"

# Lowercasing changes 29 % of the pieces in Google's cased vocabulary and none in the uncased one.
# The threshold is above 0 because users replace unused pieces with their own words, which may
# contain uppercase letters.
_LEAST_CASED = 0.05


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder or a checkpoint prefix looks like Google's."""
    if path.is_dir():
        return (path / CONFIG_FILE).is_file() or bool(_prefixes(path))
    data_files = (file.name for file in path.parent.glob("*.data-*"))
    return path in _prefixes(path.parent) or any(
        name.startswith(f"{path.name}.data-") for name in data_files
    )


def describe(path: pathlib.Path, num_heads: int | None = None) -> Checkpoint:
    """Locate the files of a checkpoint and read everything except the weights.

    No file records whether the vocabulary is lowercase, so this is inferred from the tokens.

    Args:
        path: The folder, whose top-level checkpoint is used, or a prefix such as
            `.../bert_model.ckpt`. The configuration and the vocabulary may also be in the parent
            folder, as they are for the step checkpoints of a training run.
        num_heads: Not used. The configuration records it.

    Raises:
        FileNotFoundError: The checkpoint or `bert_config.json` is missing.
        ValueError: A file is damaged.
    """
    prefix = find_prefix(path)
    config_file = _find_config(prefix)
    config = config_from_json(config_file)
    vocab_file = config_file.with_name(VOCAB_FILE)
    vocab = Vocab.from_file(vocab_file) if vocab_file.is_file() else None
    arrays = open_tf1(prefix)
    check_extent(config, arrays)
    slots = [name for name in arrays.shapes if name.rpartition("/")[2] in SLOTS.values()]
    weights = arrays.shapes.keys() - {STEP, *slots}
    state = ", with the state of its optimizer" if slots else ""
    return Checkpoint(
        description=f"google-research/bert, TF1 checkpoint{state}",
        config=config,
        table=table(config),
        arrays=arrays.select({name: name for name in weights}),
        vocab=vocab,
        tokenizer_options={} if vocab is None else {"lowercase": _is_lowercase(vocab)},
    )


def write(
    model: BERTModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
) -> None:
    """Write a model as Google's own code would save it, without optimizer state.

    The same model always produces the same bytes. The format cannot store the tokenizer's options.
    `lowercase` corresponds to Google's flag `--do_lower_case`.

    Raises:
        ValueError: The format cannot express the model.
    """
    config_to_json(model.bert_config, folder / CONFIG_FILE)
    write_tf1(folder / PREFIX, stored_weights(model, table(model.bert_config)))
    state = f'model_checkpoint_path: "{PREFIX}"\nall_model_checkpoint_paths: "{PREFIX}"\n'
    write_text(folder / "checkpoint", state)
    if vocab is not None:
        vocab.to_file(folder / VOCAB_FILE)
        lowercase = tokenizer_options.get("lowercase", True)
        if lowercase != _is_lowercase(vocab):
            warnings.warn(
                f"The tokenizer has lowercase={lowercase}, which this format does not record and "
                "which cannot be inferred from the vocabulary. Set it when you load the checkpoint "
                f"(Google's flag: --do_lower_case={lowercase}).",
                stacklevel=2,
            )


def find_prefix(path: pathlib.Path) -> pathlib.Path:
    """Return the prefix of the checkpoint at a path. In a folder, choose the latest checkpoint."""
    if not path.is_dir():
        if path not in _prefixes(path.parent):
            raise FileNotFoundError(
                f"There is no checkpoint {os.fspath(path)!r}: the file {path.name + '.index'!r} is "
                "missing."
            )
        return path
    prefixes = _prefixes(path)
    if len(prefixes) == 1:
        return prefixes[0]
    # Compare only the name: the file may contain a path on the machine that trained the model.
    state = tf.train.get_checkpoint_state(os.fspath(path))
    latest = None if state is None else pathlib.PurePath(state.model_checkpoint_path).name
    for prefix in prefixes:
        if prefix.name == latest:
            return prefix
    if not prefixes:
        raise FileNotFoundError(
            f"{os.fspath(path)!r} has a {CONFIG_FILE} but no checkpoint: {PREFIX}.index and "
            f"{PREFIX}.data-00000-of-00001 are missing."
        )
    raise ValueError(
        f"{os.fspath(path)!r} contains {len(prefixes)} checkpoints and no file `checkpoint` that "
        "names one of them. Pass one of their paths: "
        f"{first_few(os.fspath(prefix) for prefix in prefixes)}."
    )


def _prefixes(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the prefixes of all checkpoints in a folder."""
    return sorted(file.with_suffix("") for file in folder.glob("*.index"))


def _find_config(prefix: pathlib.Path) -> pathlib.Path:
    for folder in (prefix.parent, prefix.parent.parent):
        if (folder / CONFIG_FILE).is_file():
            return folder / CONFIG_FILE
    raise FileNotFoundError(
        f"There is no {CONFIG_FILE} next to the checkpoint {os.fspath(prefix)!r} or in its parent "
        "folder. It describes the architecture: copy it from the source of the weights."
    )


def _is_lowercase(vocab: Vocab) -> bool:
    """Return whether a vocabulary consists of lowercase words without accents."""
    changed = 0
    for token in vocab:
        special = token.startswith("[") and token.endswith("]")
        decomposed = unicodedata.normalize("NFD", token.lower())
        plain = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        changed += plain != token and not special
    return changed < _LEAST_CASED * len(vocab)
