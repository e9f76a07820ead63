"""Read and write Hugging Face checkpoint folders (`config.json`, safetensors, `vocab.txt`).

`pytorch_model.bin` and `tf_model.h5` can also be read.

Readable architectures are `BertModel`, `BertForMaskedLM`, `BertForNextSentencePrediction`,
`BertForPreTraining`, the architectures with a task head, and those of BERT's relatives in
`model_types.py`, such as `ElectraForPreTraining`. A task model is written as the corresponding
architecture. A `BERTModel` is written as the architecture with the same heads, without those that
its checkpoint lacked.

Source: github.com/huggingface/transformers, `models/`.
"""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Collection, Sequence

import numpy as np

from keras_bert_d2l.checkpoints.array_files import (
    NamedArrays,
    open_safetensors,
    shard_files,
    write_safetensors,
)
from keras_bert_d2l.checkpoints.formats import google
from keras_bert_d2l.checkpoints.formats.checkpoint import (
    Checkpoint,
    embedding_fields,
    parts_of,
    step_weights,
    task_fields,
)
from keras_bert_d2l.checkpoints.formats.huggingface import static
from keras_bert_d2l.checkpoints.formats.huggingface.config import (
    CONFIG_FILE,
    class_without_task,
    config_from_json,
    config_to_dict,
)
from keras_bert_d2l.checkpoints.formats.huggingface.heads import layers_of, task_of
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import MODEL_TYPES, ModelType
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    MODULES_FILE,
    TORCH_FILE,
    WEIGHTS_FILE,
    is_static,
    read_cross_encoder,
    read_embedding,
    read_sparse,
    transformer_folder,
)
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer_definition import lacks_segments
from keras_bert_d2l.checkpoints.formats.huggingface.weight_names import (
    CLASS,
    NOT_READ,
    current_names,
    join_parts,
    signature,
    split_joined,
    table,
    with_torch_names,
)
from keras_bert_d2l.checkpoints.formats.huggingface.written_modules import write_embedding
from keras_bert_d2l.checkpoints.hdf5_files import open_hdf5
from keras_bert_d2l.checkpoints.torch_files import open_torch
from keras_bert_d2l.checkpoints.weights import (
    HEAD_NAMES,
    Layout,
    Row,
    check_extent,
    first_few,
    part_of,
    stored_weights,
    without_prefix,
    wrapper_prefix,
)
from keras_bert_d2l.checks import check_that
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import errors_naming, has_file, read_json_object, readable_fields
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

INDEX_FILE, _TORCH_INDEX = f"{WEIGHTS_FILE}.index.json", f"{TORCH_FILE}.index.json"
_TF_FILE, _TF_INDEX = "tf_model.h5", "tf_model.h5.index.json"


def open_weights(path: pathlib.Path, kind: ModelType) -> NamedArrays:
    """Open the weights of a folder: one file, or several with an index.

    The first of safetensors, PyTorch and TensorFlow that the folder has is opened.

    Raises:
        FileNotFoundError: The folder has none of these files, or one of several is missing.
        ValueError: A file is damaged.
    """
    for file, index, open_files in (
        (WEIGHTS_FILE, INDEX_FILE, open_safetensors),
        (TORCH_FILE, _TORCH_INDEX, open_torch),
        (_TF_FILE, _TF_INDEX, open_hdf5),
    ):
        if has_file(path / file) or has_file(path / index):
            is_one = has_file(path / file)
            stored = open_files([path / file] if is_one else shard_files(path / index))
            is_tensorflow = file == _TF_FILE or any(x.endswith(":0") for x in stored.shapes)
            return with_torch_names(stored, kind) if is_tensorflow else stored
    others = [name for name in os.listdir(path) if not name.endswith((".json", ".md", ".txt"))]
    raise FileNotFoundError(
        f"{os.fspath(path)!r} has no weights: neither {WEIGHTS_FILE} nor {TORCH_FILE} nor "
        f"{_TF_FILE}. Other files: {first_few(others) or 'none'}. Rename weights of PyTorch or "
        "HDF5 to one of these names, and convert those of other programs with the program that "
        f"wrote them. {google.RENAME_CONFIG} {google.SAVE_AS_HDF5}"
    )


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder looks like a Hugging Face checkpoint of BERT or any other model."""
    has_safetensors = any(os.path.lexists(path / name) for name in (WEIGHTS_FILE, INDEX_FILE))
    has_config = has_file(path / CONFIG_FILE) and not has_file(path / google.CONFIG_FILE)
    if not has_safetensors and not has_config and any(path.glob("*.ckpt.index")):
        return False  # a TF1 checkpoint has checksums, unlike the old format of PyTorch
    files = (INDEX_FILE, MODULES_FILE, TORCH_FILE, _TORCH_INDEX, _TF_FILE, _TF_INDEX)
    if any(os.path.lexists(path / name) for name in files):
        return True
    fields = readable_fields(path / CONFIG_FILE)
    return "format" not in fields and not {"model_type", "hidden_size"}.isdisjoint(fields)


def describe(path: pathlib.Path, *, tokenizer: bool = True, asked: str = "") -> Checkpoint:
    """Read everything in a folder except its weights.

    A file with an MLM head but neither a pooler nor a next-sentence head (`BertForMaskedLM`) yields
    a model without these two. All other heads that a file lacks are initialized at random.

    Args:
        path: The folder. Weights are read from `model.safetensors`, or from the files that
            `model.safetensors.index.json` names; without these, from `pytorch_model.bin`, or from
            the files that `pytorch_model.bin.index.json` names; without these, from `tf_model.h5`,
            or from the files that `tf_model.h5.index.json` names.
        tokenizer: Whether to read the files of the tokenizer.
        asked: As for `task_of`.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, the model is not a BERT, or its task head is unknown.
    """
    folder = transformer_folder(path)
    if is_static(path):
        return static.describe(path, folder, tokenizer=tokenizer)
    file = folder / CONFIG_FILE
    config, kind = config_from_json(file)
    stored = split_joined(open_weights(folder, kind), config.num_heads)
    prefix = wrapper_prefix(stored, signature(kind))
    names = current_names(stored, kind, prefix)
    unread = [name for name in names if name.partition(".")[0] == kind.unread]
    if config.positions == "none":  # Microsoft's files contain the table nevertheless
        names.pop(f"{kind.base}.embeddings.position_embeddings.weight", None)
    names = {name: old for name, old in names.items() if name not in unread}
    arrays = stored.select(names)
    check_extent(config, arrays)
    with errors_naming(file):
        fields = read_cross_encoder(path, config.max_len, read_json_object(file))
        stored_class = stored.metadata.get(CLASS)
        task, unnamed = task_of(fields, kind, arrays.shapes, arrays.source, stored_class, asked)
    config, heads = _with_stored_heads(config, kind, names, task)
    pooler = _unused_pooler(config, kind, task)
    names = {name: old for name, old in names.items() if name not in pooler}
    config = _as_tied_as_stored(config, kind, arrays, file)
    if config.tie_embeddings:
        names.pop(kind.decoder, None)
    architecture = class_without_task(kind, heads)
    architecture = layers_of(task, kind).architecture if task else architecture
    vocab, options, unsupported = read_tokenizer(path) if tokenizer else (None, {}, "")
    others = first_few(unread or stored.metadata.get(NOT_READ, ()))
    rows: Sequence[Row] = table(config, task, kind)
    if config.num_segments > 1 and lacks_segments(folder, vocab):
        config, rows = _without_segments(config, rows)
    sparse = read_sparse(path, config.max_len)
    embedding, weights_of_steps = (
        (None, {}) if task or sparse else read_embedding(path, config.max_len, fields)
    )
    return Checkpoint(
        description=f"Hugging Face {architecture}{without_prefix(prefix)}"
        + (f" (without the weights of other layers: {others})" if others else ""),
        config=config,
        table=rows,
        arrays=stored.select(names),
        vocab=vocab,
        tokenizer_options=options,
        task=task,
        unsupported=unsupported,
        unnamed=unnamed and f"{os.fspath(file)!r}: {unnamed}",
        embedding=embedding,
        step_weights=weights_of_steps,
        sparse=sparse,
    )


def _without_segments(config: BERTConfig, rows: Sequence[Row]) -> tuple[BERTConfig, Sequence[Row]]:
    """Read only row 0 of the segment embedding, because the tokenizer has no segments.

    These are BERTs with the tokenizer of XLM-R, such as the multilingual MiniLM.
    """
    number = config.num_segments
    first = Layout(lambda x: x[:1], np.asarray, lambda shape: (number, *shape[1:]))
    name = "encoder/segment_embedding/embeddings"
    changed = [row._replace(layout=first) if row.ours == name else row for row in rows]
    return dataclasses.replace(config, num_segments=1), changed


def _unused_pooler(config: BERTConfig, kind: ModelType, task: ConfigDict | None) -> set[str]:
    """Return the names of a pooler that old versions stored with a task that does not use it."""
    if task is None:
        return set()
    full = table(dataclasses.replace(config, pooler=True), None, kind)
    pooler = {row.theirs for row in full if part_of(row.ours) == "hidden"}
    return pooler - {row.theirs for row in table(config, task, kind)}


def _with_stored_heads(
    config: BERTConfig, kind: ModelType, names: Collection[str], task: ConfigDict | None
) -> tuple[BERTConfig, set[str]]:
    """Return the architecture with the heads that a file has, and the parts of a BERT in it."""
    full = dataclasses.replace(config, replaced_tokens=True)
    parts = {part_of(row.ours) for row in table(full, None, kind) if row.theirs in names}
    config = dataclasses.replace(config, replaced_tokens="rtd" in parts)
    without = dataclasses.replace(config, pooler=False, next_sentence=False)
    if task is not None:
        return (config if "hidden" in parts_of(task, config) else without), parts
    if kind.base == "bert":
        return (without if parts & HEAD_NAMES.keys() == {"mlm"} else config), parts
    has_nsp = config.next_sentence and "nsp" in parts
    return dataclasses.replace(config, next_sentence=has_nsp), parts


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
    embedding: ConfigDict | None = None,
) -> None:
    """Write a folder that transformers loads without missing or unexpected weights.

    It can be uploaded to the Hugging Face Hub. That of a `TextEmbedder` is for
    sentence-transformers and lacks the pooler, which it does not use.

    KerasHub's `BertBackbone.from_preset` can also load it, but uses only the sizes in the
    configuration: its outputs are the same for `activation="gelu_tanh"`,
    `layer_norm_epsilon=1e-12` and two segments, and it requires a pooler.

    The tokenizer's option `compat` is stored for this package. Other programs tokenize like
    Hugging Face, which differs from google on rare characters (see `Tokenizer`).

    Args:
        model: The model.
        folder: A new folder, not yet visible to readers.
        vocab: The vocabulary, or `None`.
        tokenizer_options: The options of the tokenizer.
        embedding: For a `BERTModel`, `Checkpoint.embedding`.

    Raises:
        ValueError: Hugging Face's BERT cannot express the model. The message names the field.
    """
    config, task = model.bert_config, task_fields(model)
    if static.is_table(model):
        static.write(model, folder, vocab, tokenizer_options)
        return
    fields = config_to_dict(config, task, vocab)
    kind = MODEL_TYPES[fields["model_type"]]
    rows: Sequence[Row] = table(config, task, kind)
    of_steps = [Row(name, name) for names in step_weights(task) for name in names]
    weights = join_parts(stored_weights(model, [*rows, *of_steps]), config.num_heads)
    steps = {row.ours: weights.pop(row.ours) for row in of_steps}
    if task is None:
        heads = model.usable_heads
        expected = "one with the head 'mlm' or 'rtd', as transformers has no class with both"
        advice = "Save the layers of one head: `BERTModel.from_layers(encoder, rtd=model.rtd)`."
        is_right = not {"mlm", "rtd"} <= heads.keys()
        check_that(is_right, "model", expected, sorted(heads), advice)
        fields["architectures"] = [class_without_task(kind, heads)]
        pooler = [row.theirs for row in rows if part_of(row.ours) == "hidden"]
        if not kind.has_pooler:  # only its task models have this layer
            weights = {name: value for name, value in weights.items() if name not in pooler}
    else:
        embedding = embedding_fields(model)
    if kind.decoder in weights:  # transformers expects the bias of an untied head twice
        weights[kind.decoder_bias] = weights[kind.mlm_bias]
    if vocab is not None:
        longest = (task or {}).get("max_len") or config.max_len
        of_rows = dataclasses.replace(config, max_len=longest)
        write_tokenizer(folder, vocab, tokenizer_options, of_rows)
    if embedding is not None:
        width, max_len = config.num_hiddens, config.max_len
        write_embedding(folder, width, max_len, embedding, steps)
        if embedding.get("long_texts", "cut") != "cut":
            fields["long_texts"] = embedding["long_texts"]
    write_json(folder / CONFIG_FILE, fields)
    write_safetensors(folder / WEIGHTS_FILE, weights, {"format": "pt"})


def _as_tied_as_stored(
    config: BERTConfig, kind: ModelType, arrays: NamedArrays, file: pathlib.Path
) -> BERTConfig:
    """Return the architecture without a tie if the MLM head has a kernel of its own."""
    decoder, embedding = kind.decoder, kind.token_embedding
    if not config.tie_embeddings or decoder not in arrays.shapes:
        return config
    have_one_shape = arrays.shapes[decoder] == arrays.shapes.get(embedding)
    if have_one_shape and np.array_equal(arrays.read(decoder), arrays.read(embedding)):
        return config
    warnings.warn(
        f"{os.fspath(file)!r} ties the MLM head to the token embedding, but the weights contain a "
        f"different {decoder!r}. The latter is used, as in transformers 5. "
        "Version 4 used the token embedding.",
        stacklevel=3,
    )
    return dataclasses.replace(config, tie_embeddings=False)
