"""Load models and tokenizers from checkpoints of any known format."""

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, cast

from keras_bert_d2l.checkpoints.detection import open_checkpoint, summary
from keras_bert_d2l.checkpoints.formats import kerashub, native, tensorflow_hub
from keras_bert_d2l.checkpoints.formats.checkpoint import (
    Checkpoint,
    describe_task,
    make_task,
    task_fields,
    unnamed_labels,
)
from keras_bert_d2l.checkpoints.formats.huggingface.config import CONFIG_FILE
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import (
    JSON_FILE,
    OPTIONS_FILE,
    read_tokenizer,
)
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer_definition import (
    MERGES_FILE,
    SENTENCEPIECE_FILES,
)
from keras_bert_d2l.checkpoints.location import find_checkpoint
from keras_bert_d2l.checkpoints.weights import (
    HEAD_NAMES,
    check_contents,
    load_weights,
    main_shapes,
    named_weights,
)
from keras_bert_d2l.checks import check_labels, check_that, shown, shown_names, wrong
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.contract.task import embedder
from keras_bert_d2l.layers.base import without_initialization
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import stage, without_bar
from keras_bert_d2l.reading import errors_naming, readable_fields
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import ConfigDict, Option, PathLike

# Each of them alone is a file of a Hugging Face tokenizer.
_OF_TOKENIZERS = (OPTIONS_FILE, JSON_FILE, MERGES_FILE, *SENTENCEPIECE_FILES)


class Pretrained(NamedTuple):
    """The contents of a checkpoint.

    Attributes:
        model: The model with its weights: a `BERTModel`, or a task model.
        tokenizer: `model.tokenizer`, or `None` if the checkpoint has no vocabulary.
        config: The architecture of the model.

    Example:

    ```python
    import keras_bert_d2l as kb

    config = kb.BERTConfig.preset("tiny", vocab_size=100)
    kb.save_pretrained(kb.BERTModel.from_bert_config(config), "checkpoints/tiny")
    pretrained = kb.load_pretrained("checkpoints/tiny")
    assert pretrained.config == config
    model, tokenizer, config = pretrained
    ```
    """

    model: BERTModel | TaskModel
    tokenizer: Tokenizer | None
    config: BERTConfig


def load_pretrained(
    path: PathLike,
    *,
    num_heads: int | None = None,
    heads: Collection[str] | None = None,
    tokenizer: bool = True,
    verify: bool = True,
    verbose: bool = True,
) -> Pretrained:
    """Load a checkpoint of any known format.

    The format is detected automatically: this package's own, Hugging Face's, KerasHub's,
    TensorFlow Hub's, the Model Garden's, google-research/bert's, the book's or the notebook's (see
    docs/checkpoints.md). Other files in the folder are ignored. A head that the files lack is
    initialized at random, reported, and recorded in `BERTModel.missing_heads`.

    Args:
        path: The folder of the checkpoint, a single file of weights, or the prefix of a TensorFlow
            checkpoint. Or the folder of a run, whose best checkpoint is loaded. Or the name of a
            model on the Hugging Face Hub, which is downloaded to the cache of `huggingface_hub`: a
            short name such as `"minilm"`, or an id such as `"google-bert/bert-base-uncased"`, with
            `@` and a branch, tag or commit if you like. A local path takes precedence.
        num_heads: Number of attention heads per block. Needed only for weight files that do not
            record it.
        heads: The heads you intend to use, from `"pooler"`, `"mlm"` and `"nsp"`. A missing head is
            reported only if it is listed here. By default, all heads are reported, except a pooler
            that no head reads.
        tokenizer: Whether to load the tokenizer. Set it to `False` to load only the model, whatever
            the files of the tokenizer contain.
        verify: Whether to compare the files with the `SHA256SUMS` of the folder, if it has one.
            This reads every file an additional time.
        verbose: Whether to print a one-line summary even if no head is missing.

    Returns:
        The model in Keras's current dtype policy with the tokenizer attached, the tokenizer and
        the configuration.

    Raises:
        FileNotFoundError: There is no checkpoint, or one of its files is missing.
        ValueError: A file is damaged, describes a model that is not a BERT, or contradicts
            another file, or the tokenizer is not supported.
        OSError: The download failed.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=100))
    kb.save_pretrained(model, "checkpoints/tiny")
    model, tokenizer, config = kb.load_pretrained("checkpoints/tiny")
    ```
    """
    checkpoint = open_checkpoint(path, num_heads, verify=verify, tokenizer=tokenizer)
    return _load(checkpoint, heads, tokenizer=tokenizer, verbose=verbose)


def load_tokenizer(path: PathLike) -> Tokenizer:
    """Load a tokenizer without a model.

    Args:
        path: A folder written by `save_tokenizer` or by Hugging Face's libraries; a preprocessing
            model of TensorFlow Hub; or a checkpoint, as for `load_pretrained`, also by name.

    Raises:
        FileNotFoundError: There is no tokenizer.
        ValueError: A file is damaged, or the tokenizer is not supported.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a film".split())
    kb.save_tokenizer(kb.Tokenizer(vocab, lowercase=False), "tokenizers/films")
    assert not kb.load_tokenizer("tokenizers/films").options["lowercase"]
    ```
    """
    name = os.fspath(path)
    folder, unsupported = find_checkpoint(path, only_tokenizer=True), ""
    if kerashub.recognizes(folder, JSON_FILE):
        vocab, options = kerashub.read_tokenizer(folder)
    elif not native.recognizes(folder) and (
        any(os.path.lexists(folder / file) for file in _OF_TOKENIZERS)
        or "tokenizer_class" in readable_fields(folder / CONFIG_FILE)
    ):
        vocab, options, unsupported = read_tokenizer(folder)
    elif tensorflow_hub.recognizes(folder):
        vocab, options = tensorflow_hub.read_tokenizer(folder)
    else:
        checkpoint = open_checkpoint(path)
        vocab, options = checkpoint.vocab, checkpoint.tokenizer_options
        unsupported = checkpoint.unsupported
    if unsupported:
        raise ValueError(f"The tokenizer of {name!r} has {unsupported}, which is not supported.")
    if vocab is None:
        raise FileNotFoundError(f"{name!r} has no vocabulary, such as a vocab.txt.")
    with errors_naming(name):
        return Tokenizer(vocab, **options)


def load_task(
    kind: type[TaskModel],
    path: PathLike,
    *,
    verify: bool = True,
    verbose: bool = True,
    **options: Option,
) -> Pretrained:
    """Load a checkpoint as a model of a task; see `TaskModel.from_pretrained`."""
    if "labels" in options:  # an array, too
        options["labels"] = list(check_labels(cast(Sequence[str], options["labels"]), 1))
    checkpoint = open_checkpoint(path, verify=verify, asked=kind.__name__)
    heads = heads_of(kind, options.get("pooling"))
    checkpoint = _with_names(checkpoint, options.get("labels"))
    model, tokenizer, config = _load(checkpoint, heads, tokenizer=True, verbose=verbose)
    stored = task_fields(model) or {}
    labels, old = options.get("labels"), stored.get("labels")
    if isinstance(model, kind) and labels and old and set(labels) != set(old):
        print(f"{os.fspath(path)}: the head for {shown_names(old)} is discarded: `labels` differ")
        options = {**{name: stored[name] for name in kind.fields}, **options}
        model = without_head(model)
    if not isinstance(model, TaskModel):
        if checkpoint.sparse is not None and not kind.has_head and "pooling" not in options:
            advice = 'Use `embed_sparse`, or pass pooling="mean" to `from_pretrained`.'
            raise wrong("path", f"that of a {kind.__name__}", "a model for sparse vectors", advice)
        model = with_new_head(model, kind, os.fspath(path), checkpoint, options)
        return Pretrained(model, tokenizer, config)
    if not isinstance(model, kind):
        raise ValueError(
            f"{os.fspath(path)!r} must be a checkpoint of a {kind.__name__}. Received: the "
            f"different task {describe_task(stored)}. Load it as that task, or start from the BERT "
            "that it was fine-tuned from."
        )
    for name, value in options.items():
        if name not in stored or value != stored[name]:
            raise ValueError(
                f"`{name}` must match the checkpoint {os.fspath(path)!r}, "
                f"{shown(stored.get(name))}, or be omitted. Received: {name}={shown(value)}. To "
                "train a new head, pass other labels, or start from a BERT without a task."
            )
    return Pretrained(model, tokenizer, config)


def with_new_head(
    model: BERTModel, kind: type[TaskModel], path: str, checkpoint: Checkpoint, options: ConfigDict
) -> TaskModel:
    """Return a BERT as a task model; a `TextEmbedder` gets the `embedding` of its checkpoint."""
    embedding, weights = checkpoint.embedding, checkpoint.step_weights
    if embedding is not None and not kind.has_head:
        unsupported = embedding.get("unsupported")
        if unsupported and "pooling" not in options:
            raise ValueError(
                f"{path!r} embeds texts with {unsupported}, which a TextEmbedder does not "
                'support. For other vectors of the same BERT, pass pooling="mean" to '
                "`from_pretrained`."
            )
        weights = {} if unsupported or "steps" in options else weights
        options = {**({} if unsupported else embedding), **options}
    create: Callable[..., TaskModel] = kind
    with errors_naming(path):
        task_model = create(model, **options)
    for name, variable in named_weights(task_model).items() if weights else ():
        if name in weights:
            shape, expected = weights[name].shape, tuple(variable.shape)
            check_that(shape == expected, name, f"of the shape {expected} in {path!r}", shape)
            variable.assign(weights[name])
    if kind.has_head:
        print(f"{path}: {describe_task(task_fields(task_model) or {})}, with a new head")
    return task_model


def load_bert(path: PathLike, **options: Any) -> BERTModel:
    """Load a checkpoint without the head of a task; see `BERTModel.from_pretrained`."""
    model = load_pretrained(path, **options).model
    if isinstance(model, BERTModel):
        return model
    print(f"{os.fspath(path)}: {describe_task(task_fields(model) or {})}; its head is discarded")
    return without_head(model)


def without_head(model: TaskModel) -> BERTModel:
    """Return a BERT with the encoder of a task model, and with its pooler if it has one."""
    bert = BERTModel.from_layers(model.encoder, pooler=model.hidden)
    bert.tokenizer = model.tokenizer
    return bert


def _with_names(checkpoint: Checkpoint, labels: object) -> Checkpoint:
    """Return a checkpoint with names for its labels, if it has as many without a name."""
    task = checkpoint.task or {}
    if not isinstance(labels, list | tuple) or "labels" not in task:
        return checkpoint
    checkpoint = checkpoint._replace(unnamed="")
    if task["labels"] != unnamed_labels(len(labels)):
        return checkpoint
    return checkpoint._replace(task={**task, "labels": list(labels)})


def load_as_defined(path: PathLike, *, heads: Collection[str] | None) -> Pretrained:
    """Load a checkpoint as a `TextEmbedder` if its folder defines how to pool texts.

    Args:
        path: The checkpoint, as for `load_pretrained`.
        heads: As for `load_pretrained`, for a checkpoint without pooling.
    """
    if open_checkpoint(path, verify=False).embedding is not None:
        return load_task(embedder(), path, verbose=False)
    return load_pretrained(path, heads=heads, verbose=False)


def load_kind(kind: type[BERTModel | TaskModel], path: PathLike) -> Pretrained:
    """Load a checkpoint whose head is that of a class, if it can be that of several."""
    checkpoint = open_checkpoint(path, asked=kind.__name__)
    return _load(checkpoint, (), tokenizer=True, verbose=False)


def _load(
    checkpoint: Checkpoint, heads: Collection[str] | None, *, tokenizer: bool, verbose: bool
) -> Pretrained:
    heads = checkpoint.heads if heads is None else heads
    loaded = _tokenizer(checkpoint) if tokenizer else None
    model = load_model(checkpoint)
    model.tokenizer = loaded
    if verbose or not model.missing_heads.isdisjoint(heads):
        with without_bar():
            print(summary(checkpoint, heads))
    return Pretrained(model, loaded, checkpoint.config)


def heads_of(kind: type[TaskModel], pooling: object) -> tuple[str, ...]:
    """Return the names of the BERT heads that a task needs.

    With `pooling=None`, a head reads the mean of the tokens if there is no trained pooler.
    """
    return ("pooler",) if kind.pools and pooling == "cls" else ()


def load_model(checkpoint: Checkpoint) -> BERTModel | TaskModel:
    """Build the model of a checkpoint and load its weights."""
    config, table, arrays = checkpoint.config, checkpoint.table, checkpoint.arrays
    if checkpoint.unnamed:
        raise ValueError(f"{checkpoint.unnamed} Correct it, or pass `labels` to `from_pretrained`.")
    may_lack = HEAD_NAMES if checkpoint.task is None else ()
    check_contents(table, arrays, main_shapes(config), may_lack)
    with stage("Loading the checkpoint"):
        with without_initialization():
            model: BERTModel | TaskModel = BERTModel.from_bert_config(config)
            if checkpoint.task is not None:
                with errors_naming(arrays.source, " has a task that is not valid"):
                    model = make_task(model, checkpoint.task)
        load_weights(model, table, arrays)
    if checkpoint.sparse is not None:
        model.sparse = checkpoint.sparse
    if checkpoint.positions is not None:
        model.encoder.pos_embedding = checkpoint.positions
    return model


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    if checkpoint.unsupported:
        raise ValueError(
            f"The tokenizer of {checkpoint.name!r} has {checkpoint.unsupported}, which is not "
            "supported. In Python, `load_pretrained(path, tokenizer=False)` loads the model alone."
        )
    if checkpoint.vocab is None:
        return None
    with errors_naming(checkpoint.name):
        return Tokenizer(checkpoint.vocab, **checkpoint.tokenizer_options)
