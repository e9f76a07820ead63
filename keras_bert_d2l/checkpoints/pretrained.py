"""Models to and from disk, in every format: a path in, a model, a tokenizer and a config out.

A format is a module that recognises its files, describes them and, most of them, writes them. The
first of `_FORMATS` that recognises a path reads it.
"""

import json
import math
import os
import pathlib
import warnings
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple, get_args

from keras_bert_d2l.checkpoints.formats import book, google, huggingface, native, notebook
from keras_bert_d2l.checkpoints.task_fields import describe_task, make_task
from keras_bert_d2l.checkpoints.weights.conversion import (
    Checkpoint,
    Tensors,
    first,
    load_weights,
    part_of,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import replacing_folder
from keras_bert_d2l.layers.initializers import without_initialization
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.strings import check_vocab_size
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab

Format = Literal["native", "huggingface", "google", "book"]  # those that are written too


# In the order of asking: first what a file says of itself, last what only names of weights tell.
_FORMATS = {
    "native": native,
    "huggingface": huggingface,
    "google": google,
    "book": book,
    "notebook": notebook,
}
_LOOKED_FOR = (
    'config.json with "format": "keras_bert_d2l" (native) or "model_type": "bert" (huggingface), '
    "bert_config.json and bert_model.ckpt.index (google), pretrained.safetensors or pretrained.npz "
    "(book), and .safetensors or .npz files with the book's or the notebook's names of weights"
)
_OF_TASKS = ("native", "huggingface")
_WITHOUT_HEADS = (book, notebook)  # their files need not tell the number of attention heads

# What `save_pretrained` may find in a folder and replace: the files that it writes itself.
_REPLACEABLE = {
    *("config.json", "vocab.txt", "model.safetensors", "tokenizer_config.json"),
    *("bert_config.json", "checkpoint", "bert_model.ckpt.index"),
    *("bert_model.ckpt.data-00000-of-00001", "vocab.json", "pretrained.safetensors"),
}
_HEADS = {"hidden": "pooler", "mlm": "mlm", "nsp": "nsp"}  # as people call them
HEADS = tuple(_HEADS.values())


class Pretrained(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        model: The model with its weights: a `BERTModel`, or the model of a task.
        tokenizer: Its tokenizer, or `None` where the checkpoint has no vocabulary.
        config: The model's architecture.
    """

    model: BERTModel | TaskModel
    tokenizer: Tokenizer | None
    config: BERTConfig


class WeightSummary(NamedTuple):
    """One array of a checkpoint.

    Attributes:
        name: Its name in the file.
        shape: Its shape in the file.
        dtype: Its dtype in the file.
        mean: Its mean, NaN where it holds a NaN.
        std: Its standard deviation.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float
    std: float


def load_pretrained(
    path: str | os.PathLike[str],
    *,
    num_heads: int | None = None,
    heads: Collection[str] = HEADS,
    verbose: bool = True,
) -> Pretrained:
    """Reads a checkpoint of any format that the package knows.

    The format is found out by looking: this package's own, Hugging Face's, google-research/bert's,
    the book's, the notebook's; see docs/checkpoints.md. Other files in the folder are left alone.
    A head that the files do not have begins anew, which is printed. Where tensorflow-text is
    missing (Windows), the tokenizer is `None` and a warning says so: the model works with token
    ids.

    Args:
        path: The folder; or a file of weights, or the prefix of a TF1 checkpoint.
        num_heads: Attention heads per block, for files of weights alone that do not tell it.
        heads: Those of `"pooler"`, `"mlm"` and `"nsp"` that will be used: that another one begins
            anew is not printed.
        verbose: Whether to print one line of what was found also where no head is missing.

    Returns: the model, in the current dtype policy of Keras, the tokenizer and the configuration.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        ValueError: A file is damaged, asks for what BERT is not, or does not fit the others.
    """
    path = pathlib.Path(path)
    checkpoint = _describe(path, num_heads)
    tokenizer = _tokenizer(path, checkpoint)
    model, missing = _load_model(checkpoint)
    if isinstance(model, TaskModel):
        model.tokenizer = tokenizer
    if verbose or any(_HEADS[part] in heads for part in missing):
        print(_summary(path, checkpoint, heads))
    return Pretrained(model, tokenizer, checkpoint.config)


def save_pretrained(
    model: BERTModel | TaskModel,
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    format: Format = "native",
) -> None:
    """Writes a model and its tokenizer to a folder, whole or not at all.

    An older checkpoint in the folder is replaced in one step. The state of training (optimiser,
    generators) is no part of it.

    Args:
        model: The model, also that of a task, with its head and the names of its labels.
        path: The folder to write: a new one, an empty one, or one that holds a checkpoint.
        tokenizer: The tokenizer that the model was trained with; `None`: that of a task's model,
            else without a vocabulary.
        format: `"native"`, which keeps everything; `"huggingface"`, `"google"` or `"book"`, for
            other programs. Tasks are written in the first two.

    Raises:
        ValueError: The format is unknown or cannot express the model, the tokenizer's vocabulary
            is not of the model's size, or `path` is the working directory.
        FileExistsError: `path` holds anything but a checkpoint.
        OSError: The folder cannot be written.
    """
    if tokenizer is None and isinstance(model, TaskModel):
        tokenizer = model.tokenizer
    if tokenizer is None:
        _save(model, path, None, {}, format)
        return
    check_vocabulary(model, tokenizer)
    options = {name: getattr(tokenizer, name) for name in native.tokenizer_option_names()}
    _save(model, path, tokenizer.vocab, options, format)


def convert_checkpoint(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    format: Format = "native",
    *,
    num_heads: int | None = None,
) -> None:
    """Writes a checkpoint once more, in another format, and prints a line of what was found.

    Args:
        source: The checkpoint, as for `load_pretrained`.
        target: The folder to write, as for `save_pretrained`.
        format: `"native"`, `"huggingface"`, `"google"` or `"book"`.
        num_heads: As for `load_pretrained`.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        FileExistsError: `target` holds anything but a checkpoint.
        ValueError: A file is damaged, or the format cannot express the model.
    """
    _check_format(format)
    _check_replaceable(target)
    source = pathlib.Path(source)
    checkpoint = _describe(source, num_heads)
    model, _ = _load_model(checkpoint)
    print(_summary(source, checkpoint))
    # The vocabulary passes through without a tokenizer, for which Windows has no tensorflow-text.
    _save(model, target, checkpoint.vocab, checkpoint.tokenizer_options, format)


def inspect_checkpoint(
    path: str | os.PathLike[str], *, num_heads: int | None = None
) -> tuple[str, Iterator[WeightSummary]]:
    """Tells what a checkpoint holds, weight for weight, also where it would not load.

    Args:
        path: The checkpoint, as for `load_pretrained`.
        num_heads: As for `load_pretrained`.

    Returns: a line for people as `load_pretrained` prints it, and the weights in the order of
        their names, each read when it is asked for.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        ValueError: A file is damaged.
    """
    path = pathlib.Path(path)
    checkpoint = _describe(path, num_heads)
    return _summary(path, checkpoint), _summaries(checkpoint.tensors)


def check_bert(model: Any) -> None:
    """Refuses the model of a task where a `BERTModel` with its pretraining heads is needed."""
    if not isinstance(model, BERTModel):
        raise ValueError(
            "This needs a BERTModel, with the heads of pretraining. Received: a "
            f"{type(model).__name__}, which has a head of its own instead; use the checkpoint that "
            "it was made from."
        )


def check_vocabulary(model: BERTModel | TaskModel, tokenizer: Tokenizer | None) -> None:
    """Refuses a tokenizer that is missing, or whose vocabulary is not of the model's size."""
    if tokenizer is None:
        raise ValueError(
            "Texts need a tokenizer. Received: tokenizer=None; a checkpoint without a vocabulary "
            "has none, so make it of the model's own: `Tokenizer(Vocab.from_file(path))`."
        )
    check_vocab_size(tokenizer, model.bert_config)


def _describe(path: pathlib.Path, num_heads: int | None) -> Checkpoint:
    """Returns what the first format that recognises the path says of it."""
    module = next((one for one in _FORMATS.values() if one.recognises(path)), None)
    if module is None:
        raise _unknown(path)
    if module in _WITHOUT_HEADS:
        checkpoint = module.describe(path, num_heads)
    else:
        checkpoint = module.describe(path)
    config, vocab = checkpoint.config, checkpoint.vocab
    if num_heads not in (None, config.num_heads):
        raise ValueError(
            f"`num_heads` must be what {os.fspath(path)!r} says, {config.num_heads}. Received: "
            f"num_heads={num_heads}."
        )
    if vocab is not None and len(vocab) != config.vocab_size:
        raise ValueError(
            f"{os.fspath(path)!r}: the vocabulary has {len(vocab)} tokens, but the configuration "
            f"says vocab_size={config.vocab_size}: put back the vocabulary that the model was made "
            "for."
        )
    return checkpoint


def _unknown(path: pathlib.Path) -> FileNotFoundError:
    """Returns the error on a path that no format recognises."""
    name = os.fspath(path)
    if not path.exists():
        return FileNotFoundError(f"There is no file or folder {name!r}.")
    message = f"{name!r} is no checkpoint of a known format. Looked for {_LOOKED_FOR}."
    if path.is_dir():
        inside = sorted(
            os.fspath(folder)
            for folder in path.iterdir()
            if folder.is_dir() and any(one.recognises(folder) for one in _FORMATS.values())
        )
        if inside:
            message += f" There are checkpoints in it, name one of them: {first(inside)}."
        try:
            json.loads((path / native.CONFIG_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            pass
        except ValueError as error:  # of the JSON or the UTF-8 decoder
            message += f" Its {native.CONFIG_FILE} is no JSON: {error}."
    return FileNotFoundError(message)


def _load_model(checkpoint: Checkpoint) -> tuple[BERTModel | TaskModel, list[str]]:
    with without_initialization():
        model: BERTModel | TaskModel = BERTModel.from_bert_config(checkpoint.config)
        if checkpoint.task is not None:
            model = make_task(model, checkpoint.task)
    return model, load_weights(model, checkpoint.table, checkpoint.tensors)


def _tokenizer(path: pathlib.Path, checkpoint: Checkpoint) -> Tokenizer | None:
    if checkpoint.vocab is None:
        return None
    try:
        return Tokenizer(checkpoint.vocab, **checkpoint.tokenizer_options)
    except ImportError as error:
        warnings.warn(f"The checkpoint is loaded without its tokenizer. {error}", stacklevel=3)
        return None
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r}: {error}") from error


def _summary(path: pathlib.Path, checkpoint: Checkpoint, heads: Collection[str] = HEADS) -> str:
    """Returns the line on what was found, and on those of some heads that were not."""
    config, task, shapes = checkpoint.config, checkpoint.task, checkpoint.tensors.shapes()
    stored = [row for row in checkpoint.table if row.theirs in shapes]
    parts = {part_of(row.ours) for row in stored}
    absent = {part_of(row.ours) for row in checkpoint.table} - parts
    found = [name for part, name in _HEADS.items() if part in parts]
    fresh = [name for part, name in _HEADS.items() if part in absent and name in heads]
    num_weights = sum(math.prod(shapes[row.theirs]) for row in stored)
    return (
        f"{os.fspath(path)}: {checkpoint.description}; {config.num_blks} blocks, "
        f"{config.num_hiddens} wide, {config.num_heads} attention heads, {config.vocab_size:,} "
        f"tokens, {num_weights:,} weights; "
        + (describe_task(task) if task else f"heads: {', '.join(found) or 'none'}")
        + (f"; missing and freshly initialised: {', '.join(fresh)}" if fresh else "")
        + ("" if checkpoint.vocab else "; no vocabulary")
    )


def _summaries(tensors: Tensors) -> Iterator[WeightSummary]:
    dtypes = tensors.dtypes()
    for name, shape in sorted(tensors.shapes().items()):
        value = tensors.read(name)
        yield WeightSummary(name, shape, dtypes[name], float(value.mean()), float(value.std()))


def _save(
    model: BERTModel | TaskModel,
    path: str | os.PathLike[str],
    vocab: Vocab | None,
    tokenizer_options: dict[str, Any],
    format: str,
) -> None:
    _check_format(format)
    _check_replaceable(path)
    if isinstance(model, TaskModel) and format not in _OF_TASKS:
        raise ValueError(
            f"`format` must be one of {_OF_TASKS} for the model of a task. Received: {format!r}."
        )
    with replacing_folder(pathlib.Path(path).resolve()) as temporary:
        _FORMATS[format].write(model, temporary, vocab, tokenizer_options)


def _check_format(format: str) -> None:
    if format not in get_args(Format):
        raise ValueError(f"`format` must be one of {get_args(Format)}. Received: {format!r}.")


def _check_replaceable(path: str | os.PathLike[str]) -> None:
    folder, name = pathlib.Path(path).resolve(), os.fspath(path)
    if folder == pathlib.Path.cwd():
        raise ValueError(
            f"A checkpoint replaces its folder as a whole, which the working directory {name!r} "
            f"must not be: name a folder in it, such as {os.path.join(name, 'model')!r}."
        )
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FileExistsError(f"{name!r} is a file: name a folder to save the checkpoint in.")
    foreign = sorted(entry.name for entry in folder.iterdir() if entry.name not in _REPLACEABLE)
    if foreign:
        raise FileExistsError(
            f"A checkpoint replaces its folder as a whole, and {name!r} holds {foreign[0]!r}, "
            "which is no part of one: name a folder of its own, such as "
            f"{os.path.join(name, 'model')!r}."
        )
