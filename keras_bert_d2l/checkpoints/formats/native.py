"""This package's own format: a folder with the model, its configuration and its vocabulary.

The folder contains

- `config.json`: the fields of `BERTConfig`; `format` and `format_version`; the options of the
  tokenizer (`lowercase` and the other arguments of `Tokenizer`); and for a task model `task`, an
  object with its `kind` (for example `SequenceClassifier`) and its arguments (`labels`, `dropout`
  and so on), or for a BERT that was converted from sentence-transformers `embedding`, the arguments
  of its `TextEmbedder`; and `sparse`, the fields of a `SparsePooling` that is not the default;
- `vocab.txt`: one token per line, or `tokenizer.json`, if there is a tokenizer;
- `model.safetensors`: the weights in float32 or bfloat16 under their Keras paths without the
  model's name, for example `encoder/blk_0/attention/W_q/kernel`.

The files contain JSON with a closed schema, plain text and numbers, so reading them never runs code
from the files. The format is the same for every Keras backend and dtype policy.
"""

import dataclasses
import itertools
import os
import pathlib
from typing import Any

from keras_bert_d2l.block_config import OF_RELATIVES
from keras_bert_d2l.checkpoints.array_files import open_safetensors, write_safetensors
from keras_bert_d2l.checkpoints.formats.checkpoint import (
    Checkpoint,
    check_task_fields,
    parts_of,
    step_weights,
    task_fields,
)
from keras_bert_d2l.checkpoints.location import CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE
from keras_bert_d2l.checkpoints.weights import Row, check_extent, stored_weights, weight_names
from keras_bert_d2l.checks import check_that, check_type
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.layers.sparse import SparsePooling
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import errors_naming, has_file, read_json_object, readable_fields
from keras_bert_d2l.text.normalization import TokenizerOptions, normalization_of
from keras_bert_d2l.text.vocab import Vocab, vocab_file_in
from keras_bert_d2l.types import ConfigDict

FORMAT, FORMAT_VERSION = "keras_bert_d2l", 1
# Older files lack them.
_LATER = OF_RELATIVES.union(
    "initializer_range zero_padding num_tokens mlm_activation mlm_layer_norm_epsilon".split()
)


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder has a `config.json` of this format."""
    return readable_fields(path / CONFIG_FILE).get("format") == FORMAT


def describe(path: pathlib.Path, *, tokenizer: bool = True) -> Checkpoint:
    """Read everything except the weights.

    Args:
        path: The folder.
        tokenizer: Whether to read the files of the tokenizer.

    Raises:
        FileNotFoundError: The weights are missing.
        ValueError: A file is damaged or has a different format version.
    """
    arrays = open_safetensors([path / WEIGHTS_FILE])
    config, options, task, embedding, sparse = read_config(path / CONFIG_FILE)
    check_extent(config, arrays)
    vocab_file = vocab_file_in(path)
    has_vocab = tokenizer and has_file(vocab_file)
    if has_vocab and "compat" not in options and vocab_file.name == VOCAB_FILE:
        raise ValueError(
            f"{os.fspath(path / CONFIG_FILE)!r} lacks the options of the tokenizer that uses "
            f"{VOCAB_FILE!r}: {[*TokenizerOptions.__annotations__]}."
        )
    return Checkpoint(
        description="keras_bert_d2l checkpoint",
        config=config,
        table=table(config, task),
        arrays=arrays,
        vocab=Vocab.from_file(vocab_file) if has_vocab else None,
        tokenizer_options=options,
        task=task,
        embedding=embedding,
        sparse=sparse,
    )


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
    dtype: str = "float32",
    embedding: ConfigDict | None = None,
) -> None:
    """Write the files of a checkpoint to an empty folder, with the weights in a dtype.

    `embedding` is `Checkpoint.embedding`.
    """
    config, task = model.bert_config, task_fields(model)
    options = tokenizer_options
    if vocab is not None and vocab.kind == "wordpiece":
        options = {**normalization_of(options).options(), **options}
    has_sparse = isinstance(model, BERTModel) and model.sparse != SparsePooling()
    fields = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **options,
        **({} if task is None else {"task": task}),
        **({} if embedding is None else {"embedding": embedding}),
        **({"sparse": dataclasses.asdict(model.sparse)} if has_sparse else {}),
        **config.to_dict(),
    }
    write_json(folder / CONFIG_FILE, fields)
    if vocab is not None:
        vocab.to_file(folder / vocab.file_name)
    weights = stored_weights(model, table(config, task))
    stored = {name: weight.astype(dtype) for name, weight in weights.items()}
    write_safetensors(folder / WEIGHTS_FILE, stored, {"format": "keras"})


def table(config: BERTConfig, task: ConfigDict | None = None) -> list[Row]:
    """Return a row for every weight of an architecture. Files use the same names as models."""
    names = [weight_names(config, parts_of(task, config)), *step_weights(task)]
    return [Row(name, name) for name in itertools.chain.from_iterable(names)]


def read_config(
    file: pathlib.Path,
) -> tuple[BERTConfig, TokenizerOptions, ConfigDict | None, ConfigDict | None, Any]:
    """Read the `config.json` of a checkpoint.

    Returns: the architecture, the options of the tokenizer, the task, the embedding, and the
        pooling of sparse vectors.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is damaged or has a different format version.
    """
    fields = read_json_object(file)
    with errors_naming(file, " is not a valid configuration"):
        del fields["format"]
        version, expected = fields.pop("format_version", None), f"{FORMAT_VERSION}"
        advice = "A newer version of keras_bert_d2l may read it."
        check_that(version == FORMAT_VERSION, "format_version", expected, version, advice)
        task = fields.pop("task", None)
        if task is not None:
            task = check_task_fields(task)
        embedding = fields.pop("embedding", None)
        if embedding is not None:
            check_type("embedding", embedding, dict)
            check_task_fields({**embedding, "kind": "TextEmbedder"})
        sparse = fields.pop("sparse", None)
        sparse = sparse and SparsePooling(**check_type("sparse", sparse, dict))
        names = TokenizerOptions.__annotations__
        options: Any = {name: fields.pop(name) for name in names if name in fields}
        missing = {x.name for x in dataclasses.fields(BERTConfig)} - _LATER - fields.keys()
        if options.keys() - {"truncation_side"}:  # of WordPiece
            optional = {"special_tokens", "normalized_tokens", "truncation_side"}
            missing |= names.keys() - options.keys() - optional
        if missing:
            raise ValueError(f"the field {min(missing)!r} is missing.")
        normalization_of(options)  # checks the options
        return BERTConfig.from_dict(fields), options, task, embedding, sparse
