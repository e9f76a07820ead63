"""Read and write Hugging Face checkpoint folders (`config.json`, safetensors, `vocab.txt`).

`pytorch_model.bin` and `tf_model.h5` can also be read.

Readable architectures are `BertModel`, `BertForMaskedLM`, `BertForNextSentencePrediction`,
`BertForPreTraining`, and the architectures with a task head. A task model is written as the
corresponding architecture. A `BERTModel` is written as the architecture with the same
heads, without those that its checkpoint lacked.

Source: github.com/huggingface/transformers, `models/bert`.
"""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Callable

import numpy as np

from keras_bert_d2l.checkpoints.array_files import (
    NamedArrays,
    open_safetensors,
    shard_files,
    write_safetensors,
)
from keras_bert_d2l.checkpoints.formats import foreign_config
from keras_bert_d2l.checkpoints.formats.checkpoint import (
    Checkpoint,
    embedding_fields,
    parts_of,
    task_fields,
)
from keras_bert_d2l.checkpoints.formats.huggingface.config import (
    ARCHITECTURES,
    CONFIG_FILE,
    config_fields,
    config_from_json,
    config_to_dict,
    head_name,
    task_of,
)
from keras_bert_d2l.checkpoints.formats.huggingface.model_card import write_card
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    MODULES_FILE,
    read_cross_encoder,
    read_pooling,
    transformer_folder,
    write_pooling,
)
from keras_bert_d2l.checkpoints.formats.huggingface.tensorflow_names import (
    CLASS,
    NOT_READ,
    has_tensorflow_names,
    with_torch_names,
)
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.checkpoints.formats.tensorflow_folder import CONFIG_FILE as BERT_CONFIG_FILE
from keras_bert_d2l.checkpoints.formats.tensorflow_folder import RENAME_CONFIG, SAVE_AS_HDF5
from keras_bert_d2l.checkpoints.hdf5_files import open_hdf5
from keras_bert_d2l.checkpoints.torch_files import open_torch
from keras_bert_d2l.checkpoints.weights import (
    POSITIONS,
    SWAPPED,
    SWAPPED_TRANSPOSED,
    TORCH_ENDINGS,
    TRANSPOSED,
    Names,
    Row,
    check_extent,
    expand,
    first_few,
    stored_weights,
    without_prefix,
    wrapper_prefix,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import errors_naming, has_file, read_json_object
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
_TORCH_FILE, _TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_TF_FILE, _TF_INDEX = "tf_model.h5", "tf_model.h5.index.json"
_OTHER_NAMES = {  # files of other names, by their endings
    _TORCH_FILE: (".bin", ".pt", ".pth", ".ckpt"),
    _TF_FILE: (".h5", ".hdf5"),
}
_REMEDIES = {  # for the weights of other programs, by the ending of their files
    **dict.fromkeys((".crdownload", ".part", ".incomplete"), "Download the file again completely."),
    **dict.fromkeys(("saved_model.pb", ".keras"), SAVE_AS_HDF5),
    ".index": f"{RENAME_CONFIG} {SAVE_AS_HDF5}",
    ".msgpack": (
        "Convert them with transformers 4, with the class that has the same heads: "
        '`BertForPreTraining.from_pretrained("{}", from_flax=True).save_pretrained(folder)`.'
    ),
    ".onnx": "Load the checkpoint that it was exported from, or run it with onnxruntime.",
    **dict.fromkeys((".gguf", ".tflite"), "Load the checkpoint that it was converted from."),
}
_MLM_BIAS, _DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
_DECODER = "cls.predictions.decoder.weight"
_TOKEN_EMBEDDING = "bert.embeddings.word_embeddings.weight"
_NAMES: Names = {
    "encoder/token_embedding": "bert.embeddings.word_embeddings",
    "encoder/segment_embedding": "bert.embeddings.token_type_embeddings",
    "encoder/pos_embedding": ("bert.embeddings.position_embeddings.weight", POSITIONS),
    "encoder/embedding_ln": "bert.embeddings.LayerNorm",
    "encoder/blk_{}/attention/W_q": "bert.encoder.layer.{}.attention.self.query",
    "encoder/blk_{}/attention/W_k": "bert.encoder.layer.{}.attention.self.key",
    "encoder/blk_{}/attention/W_v": "bert.encoder.layer.{}.attention.self.value",
    "encoder/blk_{}/attention/W_o": "bert.encoder.layer.{}.attention.output.dense",
    "encoder/blk_{}/addnorm1/ln": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "encoder/blk_{}/ffn/dense1": "bert.encoder.layer.{}.intermediate.dense",
    "encoder/blk_{}/ffn/dense2": "bert.encoder.layer.{}.output.dense",
    "encoder/blk_{}/addnorm2/ln": "bert.encoder.layer.{}.output.LayerNorm",
    "hidden": "bert.pooler.dense",
    "mlm/mlp/dense": "cls.predictions.transform.dense",
    "mlm/mlp/ln": "cls.predictions.transform.LayerNorm",
    "mlm/mlp/logits/kernel": (_DECODER, TRANSPOSED),
    "mlm/mlp/logits/bias": _MLM_BIAS,
    "mlm/bias": _MLM_BIAS,
    "nsp/dense/kernel": ("cls.seq_relationship.weight", SWAPPED_TRANSPOSED),
    "nsp/dense/bias": ("cls.seq_relationship.bias", SWAPPED),
}
# Constant buffers that old versions stored like weights.
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
_SIGNATURE = r"(?:bert\.)?embeddings\.word_embeddings\.weight"
_IN_BERT = ("embeddings.", "encoder.", "pooler.")


def table(config: BERTConfig, task: ConfigDict | None) -> list[Row]:
    """Return a row for every weight, with the name that transformers writes."""
    head = head_name(task) if task else None
    names = {**_NAMES, "head": head} if head else _NAMES
    return expand(config, names, TORCH_ENDINGS, parts_of(task))


def current_names(stored: NamedArrays, prefix: str = "") -> dict[str, str]:
    """Map the name that transformers writes today to the name in a file, for each weight.

    Old files use `gamma` and `beta` for the weight and bias of a normalization, and may contain
    constant buffers. Files of a bare `BertModel` omit the prefix `bert.`, and a wrapper may have
    added one of its own.
    """
    names = {}
    for stored_name in stored.shapes:
        name = stored_name.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            name = f"bert.{name}" if name.startswith(_IN_BERT) else name
        if name in stored.shapes:  # a second array of the same name is not a weight of the model
            name = stored_name
        if name not in _BUFFERS:
            names[name] = stored_name
    # In files with both biases of the MLM head, they are equal, or only that of the decoder takes
    # effect.
    if _DECODER_BIAS in names:
        names[_MLM_BIAS] = names.pop(_DECODER_BIAS)
    if _DECODER in names and _TOKEN_EMBEDDING not in names:  # tied weights may be stored once
        names[_TOKEN_EMBEDDING] = names.pop(_DECODER)
    return names


def open_weights(path: pathlib.Path) -> NamedArrays:
    """Open the weights of a folder: one file, or several with an index.

    The first of safetensors, PyTorch and TensorFlow that the folder has is opened.

    Raises:
        FileNotFoundError: The folder contains no weights, or a file is missing.
        ValueError: A file is damaged, or the weights are in files of other names or programs.
    """
    for file, index, open_files in (
        (WEIGHTS_FILE, INDEX_FILE, open_safetensors),
        (_TORCH_FILE, _TORCH_INDEX, open_torch),
        (_TF_FILE, _TF_INDEX, open_hdf5),
    ):
        if has_file(path / file) or has_file(path / index):
            is_one = has_file(path / file)
            stored = open_files([path / file]) if is_one else _open_shards(path / index, open_files)
            is_tensorflow = file == _TF_FILE or has_tensorflow_names(stored)
            return with_torch_names(stored) if is_tensorflow else stored
    for file, endings in _OTHER_NAMES.items():
        found = [other.name for other in path.iterdir() if other.suffix in endings]
        if found:
            raise ValueError(
                f"{os.fspath(path)!r} has its weights only in {first_few(found)}. Rename the "
                f"weights of the model to {file}; for several files, add their {file}.index.json."
            )
    others = {file.name for ending in _REMEDIES for file in path.rglob(f"*{ending}")}
    for ending, remedy in _REMEDIES.items():
        found = sorted(name for name in others if name.endswith(ending))
        if found:
            raise ValueError(
                f"{os.fspath(path)!r} has its weights only in {first_few(found)}, which this "
                f"package does not read. {remedy.format(os.fspath(path))}"
            )
    raise FileNotFoundError(
        f"{os.fspath(path)!r} has no weights: neither {WEIGHTS_FILE} nor {_TORCH_FILE} nor "
        f"{_TF_FILE}. Copy one of them to the folder, which contains: "
        f"{first_few(os.listdir(path))}."
    )


def _open_shards(
    index: pathlib.Path, open_files: Callable[[list[pathlib.Path]], NamedArrays]
) -> NamedArrays:
    weight_map, files = shard_files(index)
    stored = open_files(files)
    absent = [  # in the index of TensorFlow, the name of the model is before that of the weight
        name
        for name in weight_map
        if stored.shapes.keys().isdisjoint((name, name.partition("/")[2]))
    ]
    if absent:
        raise ValueError(
            f"{os.fspath(index)!r} lists weights that its files do not contain: "
            f"{first_few(absent)}. The files belong to a different model: copy all of them again."
        )
    return stored


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder looks like a Hugging Face checkpoint of BERT or any other model."""
    has_safetensors = any(os.path.lexists(path / name) for name in (WEIGHTS_FILE, INDEX_FILE))
    has_config = has_file(path / CONFIG_FILE) and not has_file(path / BERT_CONFIG_FILE)
    if not has_safetensors and not has_config and any(path.glob("*.ckpt.index")):
        return False  # a TF1 checkpoint has checksums, unlike the old format of PyTorch
    files = (INDEX_FILE, MODULES_FILE, _TORCH_FILE, _TORCH_INDEX, _TF_FILE, _TF_INDEX)
    if any(os.path.lexists(path / name) for name in files):
        return True
    try:
        fields = read_json_object(path / CONFIG_FILE)
    except (OSError, ValueError):
        return False
    return "format" not in fields and not {"model_type", "hidden_size"}.isdisjoint(fields)


def describe(
    path: pathlib.Path, num_heads: int | None = None, *, tokenizer: bool = True
) -> Checkpoint:
    """Read everything in a folder except its weights.

    A file with an MLM head but neither a pooler nor a next-sentence head (`BertForMaskedLM`) yields
    a model without these two. All other heads that a file lacks are initialized at random.

    Args:
        path: The folder. Weights are read from `model.safetensors`, or from the files that
            `model.safetensors.index.json` names; without these, from `pytorch_model.bin`, or from
            the files that `pytorch_model.bin.index.json` names; without these, from `tf_model.h5`,
            or from the files that `tf_model.h5.index.json` names.
        num_heads: Not used. The configuration records it.
        tokenizer: Whether to read the files of the tokenizer.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, the model is not a BERT, or its task head is unknown.
    """
    folder = transformer_folder(path)
    if not has_file(file := folder / CONFIG_FILE):
        remedy = "Copy it, or write it with transformers: `bert.config.save_pretrained(folder)`."
        raise FileNotFoundError(f"There is no file {os.fspath(file)!r}. {remedy}")
    config = config_from_json(file)
    stored = open_weights(folder)
    prefix, others = wrapper_prefix(stored, _SIGNATURE), stored.metadata.get(NOT_READ)
    names = current_names(stored, prefix)
    arrays = stored.select(names)
    check_extent(config, arrays)
    with errors_naming(file):
        fields = read_json_object(file) | read_cross_encoder(path)
        task = task_of(fields, arrays.shapes, arrays.source, stored.metadata.get(CLASS))
    has_mlm, has_nsp, has_pooler = (
        any(name.startswith(beginning) for name in names)
        for beginning in ("cls.predictions.", "cls.seq_relationship.", "bert.pooler.")
    )
    has_no_pooler = task is not None and "hidden" not in parts_of(task)
    if has_no_pooler:  # transformers 3 stored an unused one
        names = {name: old for name, old in names.items() if not name.startswith("bert.pooler.")}
    if has_no_pooler or (has_mlm and not has_nsp and not has_pooler):
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    if config.tie_embeddings and _DECODER in names:
        if _is_copy_of_embedding(arrays):
            del names[_DECODER]
        else:
            config = _untied(config, file)
    architecture = ARCHITECTURES[has_mlm, has_nsp]
    if task is not None:
        (architecture,) = config_fields(task)["architectures"]
    embedding = None if task else read_pooling(path)
    if embedding is not None:
        embedding["long_texts"] = fields.get("long_texts", "cut")
        if (embedding["max_len"] or config.max_len) >= config.max_len:
            embedding["max_len"] = None
    vocab, options, unsupported = read_tokenizer(path) if tokenizer else (None, {}, "")
    return Checkpoint(
        description=f"Hugging Face {architecture}{without_prefix(prefix)}"
        + (f" (without the weights of other layers: {others})" if others else ""),
        config=config,
        table=table(config, task),
        arrays=stored.select(names),
        vocab=vocab,
        tokenizer_options=options,
        task=task,
        unsupported=unsupported,
        embedding=embedding,
    )


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
    embedding: ConfigDict | None = None,
) -> None:
    """Write a folder that transformers loads without missing or unexpected weights.

    It can be uploaded to the Hugging Face Hub as it is. That of a `TextEmbedder` is for
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
    if task is None:
        fields = config_to_dict(config)
        has_mlm, has_nsp = "mlm" in model.usable_heads, "nsp" in model.usable_heads
        fields["architectures"] = [ARCHITECTURES[has_mlm, has_nsp]]
    else:  # a task model has no pretraining heads, so their options do not matter
        _check_expressible(task)
        config, embedding = foreign_config.without_heads(config), embedding_fields(model)
        fields = config_to_dict(config) | config_fields(task)
    weights = stored_weights(model, table(config, task))
    if _DECODER in weights:  # transformers expects the bias of an untied head twice
        weights[_DECODER_BIAS] = weights[_MLM_BIAS]
    if vocab is not None:
        fields["pad_token_id"] = vocab.pad_id
        write_tokenizer(folder, vocab, tokenizer_options, config.max_len)
    if embedding is not None:
        write_pooling(folder, config.num_hiddens, config.max_len, embedding)
        if embedding.get("long_texts", "cut") != "cut":
            fields["long_texts"] = embedding["long_texts"]
    write_card(folder, fields)
    write_json(folder / CONFIG_FILE, fields)
    write_safetensors(folder / WEIGHTS_FILE, weights, {"format": "pt"})


def _is_copy_of_embedding(arrays: NamedArrays) -> bool:
    have_one_shape = arrays.shapes[_DECODER] == arrays.shapes.get(_TOKEN_EMBEDDING)
    return have_one_shape and np.array_equal(arrays.read(_DECODER), arrays.read(_TOKEN_EMBEDDING))


def _check_expressible(task: ConfigDict) -> None:
    if head_name(task) and task.get("pooling") == "mean":
        raise ValueError(
            f"In Hugging Face's format, the head of a {task['kind']} reads the pooler. Received: "
            'pooling="mean". Save it in the native format, or export it as ONNX.'
        )


def _untied(config: BERTConfig, file: pathlib.Path) -> BERTConfig:
    warnings.warn(
        f"{os.fspath(file)!r} ties the MLM head to the token embedding, but the weights contain a "
        "different 'cls.predictions.decoder.weight'. The latter is used, as in transformers 5. "
        "Version 4 used the token embedding.",
        stacklevel=3,
    )
    return dataclasses.replace(config, tie_embeddings=False)
