"""Read and write Hugging Face checkpoint folders (`config.json`, safetensors, `vocab.txt`).

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

from keras_bert_d2l.checkpoints.formats.checkpoint import Checkpoint
from keras_bert_d2l.checkpoints.formats.huggingface.config import (
    ARCHITECTURES,
    CONFIG_FILE,
    config_fields,
    config_from_json,
    config_to_dict,
    task_of,
)
from keras_bert_d2l.checkpoints.formats.huggingface.model_card import write_card
from keras_bert_d2l.checkpoints.formats.huggingface.pooling import read_pooling, write_pooling
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.checkpoints.formats.huggingface.weights import (
    DECODER_BIAS,
    INDEX_FILE,
    MLM_BIAS,
    WEIGHTS_FILE,
    Weights,
    open_weights,
    table,
)
from keras_bert_d2l.checkpoints.formats.task_fields import (
    TaskArguments,
    TaskFields,
    parts_of,
    task_fields,
)
from keras_bert_d2l.checkpoints.weights.contents import check_extent
from keras_bert_d2l.checkpoints.weights.safetensors_files import write_safetensors
from keras_bert_d2l.checkpoints.weights.transfer import stored_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.vocab.vocab import Vocab

_TORCH_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def recognizes(path: pathlib.Path) -> bool:
    """Return whether a folder looks like a Hugging Face checkpoint of BERT or any other model."""
    has_safetensors = (path / WEIGHTS_FILE).is_file() or (path / INDEX_FILE).is_file()
    if not has_safetensors and any(path.glob("*.ckpt.index")):
        return False  # a TF1 checkpoint next to pickles: only the checkpoint can be read
    if any((path / name).is_file() for name in (INDEX_FILE, *_TORCH_FILES)):
        return True
    try:
        fields = read_json_object(path / CONFIG_FILE)
    except (OSError, ValueError):
        return False
    return "format" not in fields and not {"model_type", "hidden_size"}.isdisjoint(fields)


def describe(path: pathlib.Path, num_heads: int | None = None) -> Checkpoint:
    """Read everything in a folder except its weights.

    A file with an MLM head but neither a pooler nor a next-sentence head (`BertForMaskedLM`) yields
    a model without these two. All other heads that a file lacks are initialized at random.

    Args:
        path: The folder. Weights are read from `model.safetensors`, or from the files that
            `model.safetensors.index.json` names. PyTorch's pickles next to them are ignored.
        num_heads: Not used. The configuration records it.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, all weights are pickled, the model is not a BERT, or its
            task head is unknown.
    """
    weights = Weights(open_weights(path))
    file = path / CONFIG_FILE
    config = config_from_json(file)
    check_extent(config, weights.arrays)
    task = _task(file, weights)
    has_mlm, has_nsp = weights.has("cls.predictions."), weights.has("cls.seq_relationship.")
    is_masked_lm = has_mlm and not has_nsp and not weights.has("bert.pooler.")
    has_no_pooler = task is not None and "hidden" not in parts_of(task)
    if has_no_pooler:  # transformers 3 stored an unused one
        weights.discard("bert.pooler.")
    if is_masked_lm or has_no_pooler:
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    if config.tie_embeddings and not weights.discard_tied_copy():
        config = _untied(config, file)
    architecture = ARCHITECTURES[has_mlm, has_nsp]
    if task is not None:
        (architecture,) = config_fields(task)["architectures"]
    embedding = None if task else read_pooling(path)
    if embedding is not None:
        embedding["long_texts"] = read_json_object(file).get("long_texts", "cut")
    vocab, tokenizer_options, unsupported = read_tokenizer(path)
    return Checkpoint(
        description=f"Hugging Face {architecture}",
        config=config,
        table=[row._replace(theirs=weights.spelled(row.theirs)) for row in table(config, task)],
        arrays=weights.arrays,
        vocab=vocab,
        tokenizer_options=tokenizer_options,
        task=task,
        unsupported=unsupported,
        embedding=embedding,
    )


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: TokenizerOptions,
    embedding: TaskArguments | None = None,
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
        config = dataclasses.replace(
            config, pooler=True, next_sentence=True, mlm_head="mlp", tie_embeddings=True
        )
        fields = config_to_dict(config) | config_fields(task)
    weights = stored_weights(model, table(config, task))
    if DECODER_BIAS in weights:  # transformers expects the bias of an untied head twice
        weights[MLM_BIAS] = weights[DECODER_BIAS]
    if vocab is not None:
        fields["pad_token_id"] = vocab.pad_id
        write_tokenizer(folder, vocab, tokenizer_options, config.max_len)
    if task is not None and task["kind"] == "TextEmbedder":
        embedding = task
    if embedding is not None:
        write_pooling(folder, config.num_hiddens, embedding)
        if embedding.get("long_texts", "cut") != "cut":
            fields["long_texts"] = embedding["long_texts"]
    write_card(folder, fields)
    write_json(folder / CONFIG_FILE, fields)
    write_safetensors(folder / WEIGHTS_FILE, weights, {"format": "pt"})


def _task(file: pathlib.Path, weights: Weights) -> TaskFields | None:
    try:
        return task_of(read_json_object(file), weights.arrays.shapes, weights.arrays.source)
    except ValueError as error:
        raise ValueError(f"{os.fspath(file)!r}: {error}") from error


def _check_expressible(task: TaskFields) -> None:
    if task["kind"] != "TextEmbedder" and task.get("pooling") == "mean":
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
