"""Detect the format of a checkpoint and read everything except its weights."""

import dataclasses
import math
import os
import pathlib
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from keras_bert_d2l.checkpoints.array_files import NamedArrays
from keras_bert_d2l.checkpoints.formats import (
    google,
    huggingface,
    kerashub,
    model_garden,
    native,
    state_dicts,
    tensorflow_hub,
)
from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint, describe_task
from keras_bert_d2l.checkpoints.location import SHORT_NAMES, find_checkpoint, known_prompts
from keras_bert_d2l.checkpoints.weights import HEAD_NAMES, part_of
from keras_bert_d2l.checks import did_you_mean
from keras_bert_d2l.files import read_checksums, verify_checksums
from keras_bert_d2l.printing import one_line
from keras_bert_d2l.reading import has_file, read_json_object
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import PathLike

# The first format that recognizes a path reads it. Formats identified by specific files come first;
# formats guessed from the weight names come last.
FORMATS = {
    "native": native,
    "huggingface": huggingface,
    "kerashub": kerashub,
    "tensorflow_hub": tensorflow_hub,
    "model_garden": model_garden,
    "google": google,
    "book": state_dicts,
}
_UNUSED = re.compile(r"\[unused\d+\]|\[line \d+\]|<.+>NOTUSED")  # the last of CamemBERT
_LOOKED_FOR = (
    "config.json and weights (native, huggingface, kerashub), saved_model.pb (tensorflow_hub), a "
    "checkpoint of TensorFlow with params.yaml (model_garden) or bert_config.json (google), and "
    ".safetensors, .npz, .params or .pt files with the weight names of the book or the notebook"
)


class WeightSummary(NamedTuple):
    """One array of a checkpoint, as `inspect_checkpoint` reports it.

    Attributes:
        name: Name of the array in the file. In the format of Hugging Face, the name that
            transformers writes today.
        shape: Shape of the array in the file.
        dtype: Dtype of the array in the file.
        mean: Mean of the array, or NaN if the array contains a NaN.
        std: Standard deviation of the array.

    Example:

    ```python
    import keras_bert_d2l as kb

    weight = kb.WeightSummary("hidden/bias", (4,), "F32", mean=0.0, std=0.02)
    print(f"{weight.name}: {weight.mean:.3f} ± {weight.std:.3f}")
    ```
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float


def inspect_checkpoint(
    path: PathLike, *, num_heads: int | None = None, verify: bool = True
) -> tuple[str, Iterator[WeightSummary]]:
    """Summarize a checkpoint and list its weights, even if they do not fit the configuration.

    Args:
        path: The checkpoint, as for `load_pretrained`.
        num_heads: Number of attention heads, as for `load_pretrained`.
        verify: Whether to compare the files with `SHA256SUMS`, as for `load_pretrained`.

    Returns:
        The one-line summary that `load_pretrained` prints, and an iterator over the weights in
        the order of their names. Each weight is read when the iterator reaches it.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        ValueError: A file is damaged.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=100))
    kb.save_pretrained(model, "checkpoints/tiny")
    summary, weights = kb.inspect_checkpoint("checkpoints/tiny")
    print(summary)
    for weight in weights:
        print(weight.name, weight.shape, weight.mean)
    ```
    """
    checkpoint = open_checkpoint(path, num_heads, verify=verify)
    return summary(checkpoint), _summaries(checkpoint.arrays)


def _summaries(arrays: NamedArrays) -> Iterator[WeightSummary]:
    for name, shape in sorted(arrays.shapes.items()):
        value = arrays.read(name)
        mean, std = float(value.mean()), float(value.std())
        yield WeightSummary(name, shape, arrays.dtypes[name], mean, std)


def open_checkpoint(
    path: PathLike,
    num_heads: int | None = None,
    *,
    verify: bool = True,
    tokenizer: bool = True,
    asked: str = "",
) -> Checkpoint:
    """Detect the format of a checkpoint and read everything except its weights.

    Args:
        path: The checkpoint, as for `load_pretrained`.
        num_heads: Number of attention heads, as for `load_pretrained`.
        verify: Whether to compare the files with `SHA256SUMS`, as for `load_pretrained`.
        tokenizer: Whether to read the files of the tokenizer.
        asked: The class of a task. It is that of a head whose class the files do not name.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        ValueError: A file is damaged, or two files contradict each other or `num_heads`.
    """
    given, path = path, find_checkpoint(path)
    name = os.fspath(path if path.is_relative_to(given) else given)
    if verify and path.is_dir():
        verify_checksums(path)
    elif verify and any(name.startswith(path.name) for name in read_checksums(path.parent)):
        verify_checksums(path.parent)
    format = next((format for format in FORMATS.values() if format.recognizes(path)), None)
    if format is None:
        raise _unknown(path)
    if format is huggingface:
        checkpoint = huggingface.describe(path, tokenizer=tokenizer, asked=asked)
    elif format is state_dicts:
        checkpoint = state_dicts.describe(path, num_heads, tokenizer=tokenizer)
    else:
        checkpoint = format.describe(path, tokenizer=tokenizer)
    if checkpoint.vocab is not None and not native.recognizes(path):
        checkpoint = _with_rows_of_tokens(checkpoint, checkpoint.vocab)
    config, vocab = checkpoint.config, checkpoint.vocab
    if num_heads not in (None, config.num_heads):
        raise ValueError(
            f"`num_heads` must match the value in {name!r}, {config.num_heads}. "
            f"Received: num_heads={num_heads}."
        )
    field = "vocab_size" if config.num_tokens is None else "num_tokens"
    size = getattr(config, field)
    if vocab is not None and len(vocab) != size:
        raise ValueError(
            f"{name!r}: the vocabulary has {len(vocab)} tokens, but the configuration "
            f"has {field}={size}. Restore the vocabulary that the model was "
            "trained with, or load the model alone with `load_pretrained(path, tokenizer=False)`."
        )
    embedding, known = checkpoint.embedding, known_prompts(given)
    if known and embedding is not None and not any((embedding.get("prompts") or {}).values()):
        embedding = {**embedding, "prompts": known}
    return checkpoint._replace(name=name, embedding=embedding)


def _with_rows_of_tokens(checkpoint: Checkpoint, vocab: Vocab) -> Checkpoint:
    """Return a checkpoint whose vocabulary fits its embedding, if the two differ in size.

    Further rows, such as those that pad the embedding to a multiple of 64, are never predicted.
    Tokens without a row are dropped if no text contains them.
    """
    config = checkpoint.config
    more = config.vocab_size - len(vocab)
    if more > 0:
        return checkpoint._replace(config=dataclasses.replace(config, num_tokens=len(vocab)))
    extra = vocab.tokens[config.vocab_size :]
    options = checkpoint.tokenizer_options
    used = {*options.get("special_tokens", ()), *options.get("normalized_tokens", ())}
    if not extra or not all(_UNUSED.fullmatch(token) and token not in used for token in extra):
        return checkpoint
    return checkpoint._replace(
        vocab=vocab.first_tokens(config.vocab_size),
        description=f"{checkpoint.description} (without {len(extra):,} unused tokens at the end of "
        "the vocabulary, which have no row in the embedding)",
    )


def _unknown(path: pathlib.Path) -> FileNotFoundError:
    """Return the error for a path that no format recognizes."""
    name = os.fspath(path)
    if has_file(path / native.CONFIG_FILE):
        read_json_object(path / native.CONFIG_FILE)  # raises an error if it is damaged
    if not path.exists():
        message = f"There is no file or folder {name!r}."
        if path.name == name:
            message += (
                " To load a model of the Hugging Face Hub, pass its id, such as "
                "google-bert/bert-base-uncased, or a short name, such as bert-base-uncased or "
                f"bge-small. {did_you_mean(name, SHORT_NAMES)}"
            ).rstrip()
        return FileNotFoundError(message)
    message = f"{name!r} is not a checkpoint of a known format. Looked for {_LOOKED_FOR}."
    if path.suffix in (".keras", ".h5"):
        message += " Load a model of Keras 3 with `keras.models.load_model`. "
        message += google.SAVE_AS_HDF5
    elif has_file(path / "adapter_config.json"):
        message += " It is an adapter: load the model it was trained on, then call `load_adapter`."
    return FileNotFoundError(message)


def summary(checkpoint: Checkpoint, heads: Collection[str] | None = None) -> str:
    """Return a one-line summary of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        heads: The names of the heads to report if they are missing. `None` means those in use.
    """
    config, task, shapes = checkpoint.config, checkpoint.task, checkpoint.arrays.shapes
    stored = [row for row in checkpoint.table if row.theirs in shapes]
    parts = {part_of(row.ours) for row in stored}
    absent = {part_of(row.ours) for row in checkpoint.table} - parts
    found = [name for part, name in HEAD_NAMES.items() if part in parts]
    named = checkpoint.heads if heads is None else heads
    fresh = [name for part, name in HEAD_NAMES.items() if part in absent and name in named]
    num_tokens = config.num_tokens or config.vocab_size
    more = config.vocab_size - num_tokens
    embedding = checkpoint.embedding or {}
    pooling = embedding.get("unsupported") or embedding.get("pooling")
    num_weights = sum(math.prod(shapes[row.theirs]) for row in stored)
    return one_line(
        f"{checkpoint.name}: {checkpoint.description}; {config.num_blks} blocks, "
        f"{config.num_hiddens} wide, {config.num_heads} attention heads, {num_tokens:,} "
        f"tokens, {num_weights:,} weights; "
        + (describe_task(task) if task else f"heads: {', '.join(found) or 'none'}")
        + (f"; text embedding: {pooling}" if pooling else "")
        + (f"; missing and freshly initialized: {', '.join(fresh)}" if fresh else "")
        + (f"; unsupported tokenizer: {checkpoint.unsupported}" if checkpoint.unsupported else "")
        + (f"; {more:,} more rows of the embedding are never predicted" if more else "")
        + ("" if checkpoint.vocab else "; no tokenizer")
    )
