"""The package's own checkpoints: a model and its tokenizer to a folder, and back.

The folder holds

- `config.json`: the fields of `BERTConfig`, and `format`, `format_version` and the tokenizer's
  `lowercase`;
- `vocab.txt`: one token a line, where there is a tokenizer;
- `model.safetensors`: the weights in float32 under their Keras paths without the model's name, for
  instance `encoder/blk_0/attention/W_q/kernel`.

It is JSON with a closed schema, plain text and numbers: reading it runs no code from the files.
It is the same for every backend of Keras, and any Keras dtype policy reads and writes it.
"""

import json
import os
import pathlib
import warnings
from collections.abc import Iterable
from typing import NamedTuple

import keras
import numpy as np
import safetensors
import safetensors.numpy

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import replacing_folder, write_text
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE = "config.json", "vocab.txt", "model.safetensors"
FORMAT, FORMAT_VERSION = "keras_bert_d2l", 1

_NUM_NAMED = 3  # of the weights that do not fit, so many are named
_DAMAGED = "The file is damaged or of another model: copy it again, or save the model anew."


class Pretrained(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        model: The model with its weights.
        tokenizer: Its tokenizer, or `None` where the checkpoint has no vocabulary.
        config: The model's architecture.
    """

    model: BERTModel
    tokenizer: Tokenizer | None
    config: BERTConfig


def save_pretrained(
    model: BERTModel, path: str | os.PathLike[str], tokenizer: Tokenizer | None = None
) -> None:
    """Writes a model and its tokenizer to a folder, whole or not at all.

    An older checkpoint in the folder is replaced in one step. The state of training (optimiser,
    generators) is no part of it.

    Args:
        model: The model.
        path: The folder to write: a new one, an empty one, or one that holds a checkpoint.
        tokenizer: The tokenizer that the model was trained with; `None`: without a vocabulary.

    Raises:
        ValueError: The tokenizer's vocabulary is not of the model's size, or `path` is the
            working directory.
        FileExistsError: `path` holds anything but a checkpoint.
        OSError: The folder cannot be written.
    """
    folder = pathlib.Path(path).resolve()
    _check_replaceable(folder, path)
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    fields = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "lowercase": None if tokenizer is None else tokenizer.lowercase,
        **model.bert_config.to_dict(),
    }
    weights = {
        name: np.ascontiguousarray(keras.ops.convert_to_numpy(weight), dtype=np.float32)
        for name, weight in named_weights(model).items()
    }
    with replacing_folder(folder) as temporary:
        write_text(temporary / CONFIG_FILE, json.dumps(fields, indent=2) + "\n")
        if tokenizer is not None:
            tokenizer.vocab.to_file(temporary / VOCAB_FILE)
        # One key of metadata, as its order is not fixed: the same model gives the same bytes.
        content = safetensors.numpy.save(weights, metadata={"format": "keras"})
        (temporary / WEIGHTS_FILE).write_bytes(content)


def load_pretrained(path: str | os.PathLike[str]) -> Pretrained:
    """Reads what `save_pretrained` wrote.

    Other files in the folder are left alone. Where tensorflow-text is missing (Windows), the
    tokenizer is `None` and a warning says so: the model works with token ids.

    Args:
        path: The folder.

    Returns: the model, in the current dtype policy of Keras, the tokenizer and the configuration.

    Raises:
        FileNotFoundError: The folder or one of its files is missing.
        ValueError: A file is damaged, of another format or version, or does not fit the others.
    """
    folder = pathlib.Path(path)
    # The weights come first: other folders have a config.json too, that of a run for instance.
    weights_file = _existing(folder / WEIGHTS_FILE)
    config, lowercase = _read_config(_existing(folder / CONFIG_FILE))
    tokenizer = _read_tokenizer(folder / VOCAB_FILE, config, lowercase)
    model = BERTModel.from_bert_config(config)
    _load_weights(model, weights_file)
    return Pretrained(model, tokenizer, config)


def named_weights(model: BERTModel) -> dict[str, keras.Variable]:
    """Returns the weights of a model by their paths without the model's own name.

    A tied token embedding is there once, and the states of dropout's generators are not.
    """
    # The model's own path may be longer than its name, where it was made in a name scope.
    prefix = model.encoder.pos_embedding.path.removesuffix("encoder/pos_embedding")
    return {weight.path.removeprefix(prefix): weight for weight in model.weights}


def check_vocabulary(model: BERTModel, tokenizer: Tokenizer | None) -> None:
    """Refuses a tokenizer that is missing, or whose vocabulary is not of the model's size."""
    if tokenizer is None:
        raise ValueError(
            "Texts need a tokenizer. Received: tokenizer=None; a checkpoint without a vocabulary "
            "has none, so make it of the model's own: `Tokenizer(Vocab.from_file(path))`."
        )
    expected, received = model.bert_config.vocab_size, len(tokenizer.vocab)
    if received != expected:
        raise ValueError(
            f"The tokenizer's vocabulary must have the {expected} tokens that the model was made "
            f"for. Received: a tokenizer with {received} tokens; use the model's own vocabulary."
        )


def _check_replaceable(folder: pathlib.Path, path: str | os.PathLike[str]) -> None:
    name = os.fspath(path)
    if folder == pathlib.Path.cwd():
        raise ValueError(
            f"A checkpoint replaces its folder as a whole, which the working directory {name!r} "
            f"must not be: name a folder in it, such as {os.path.join(name, 'model')!r}."
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"{name!r} is a file: name a folder to save the checkpoint in.")
    ours = {CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE}
    foreign = sorted(entry.name for entry in folder.iterdir() if entry.name not in ours)
    if foreign:
        raise FileExistsError(
            f"A checkpoint replaces its folder as a whole, and {name!r} holds {foreign[0]!r}, "
            "which is no part of one: name a folder of its own, such as "
            f"{os.path.join(name, 'model')!r}."
        )


def _existing(file: pathlib.Path) -> pathlib.Path:
    if file.is_file():
        return file
    folder = file.parent
    inside = sorted(config.parent.name for config in folder.glob(f"*/{CONFIG_FILE}"))
    hint = f" Checkpoints in it: {', '.join(inside)}." if inside else ""
    raise FileNotFoundError(
        f"{os.fspath(folder)!r} is no checkpoint: it has no {file.name!r}. `save_pretrained` "
        f"writes {CONFIG_FILE}, {WEIGHTS_FILE} and, with a tokenizer, {VOCAB_FILE}.{hint}"
    )


def _read_config(file: pathlib.Path) -> tuple[BERTConfig, bool | None]:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError(f'it must be a JSON object with "format": "{FORMAT}".')
        version = fields.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise ValueError(
                f"`format_version` must be {FORMAT_VERSION}. Received: {version!r}; a newer "
                "version of keras_bert_d2l may read it."
            )
        lowercase = fields.pop("lowercase", None)
        if lowercase is not None and not isinstance(lowercase, bool):
            raise ValueError(f"`lowercase` must be true, false or null. Received: {lowercase!r}.")
        return BERTConfig.from_dict(fields), lowercase
    except ValueError as error:  # among them those of the JSON and UTF-8 decoders
        raise ValueError(
            f"{os.fspath(file)!r} is no configuration of this format: {error}"
        ) from error


def _read_tokenizer(
    file: pathlib.Path, config: BERTConfig, lowercase: bool | None
) -> Tokenizer | None:
    if not file.exists():
        return None
    vocab = Vocab.from_file(file)
    if len(vocab) != config.vocab_size:
        raise ValueError(
            f"{os.fspath(file)!r} has {len(vocab)} tokens, but {CONFIG_FILE} beside it says "
            f"vocab_size={config.vocab_size}: put back the vocabulary that the model was made for."
        )
    if lowercase is None:
        raise ValueError(
            f"`lowercase` is null or missing in the {CONFIG_FILE} beside {os.fspath(file)!r}: set "
            "it to true for a vocabulary of lowered words, and to false for others."
        )
    try:
        return Tokenizer(vocab, lowercase)
    except ImportError as error:
        warnings.warn(f"The checkpoint is loaded without its tokenizer. {error}", stacklevel=3)
        return None


def _load_weights(model: BERTModel, file: pathlib.Path) -> None:
    weights = named_weights(model)
    try:
        with safetensors.safe_open(file, framework="numpy") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            stored = {n: (s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()}
            _check_weights(stored, weights, file)
            for name, weight in weights.items():
                weight.assign(tensors.get_tensor(name))
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{os.fspath(file)!r} is no whole safetensors file: {error}. {_DAMAGED}"
        ) from error


def _check_weights(
    stored: dict[str, tuple[str, tuple[int, ...]]],
    weights: dict[str, keras.Variable],
    file: pathlib.Path,
) -> None:
    """Refuses a file that has not exactly the weights of the model, in float32."""
    name = os.fspath(file)
    missing, left_over = weights.keys() - stored.keys(), stored.keys() - weights.keys()
    if missing:
        raise ValueError(f"{name!r} lacks weights of the model: {_first(missing)}. {_DAMAGED}")
    if left_over:
        raise ValueError(
            f"{name!r} holds weights that the model has not: {_first(left_over)}. {_DAMAGED}"
        )
    expected = {name: ("F32", tuple(weight.shape)) for name, weight in weights.items()}
    wrong = {
        f"{name} is {stored[name]} instead of {expected[name]}"
        for name in weights
        if stored[name] != expected[name]
    }
    if wrong:
        raise ValueError(f"{name!r} does not fit {CONFIG_FILE}: {_first(wrong)}. {_DAMAGED}")


def _first(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
    return ", ".join(names[:_NUM_NAMED]) + more
