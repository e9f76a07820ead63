"""Hugging Face's folders: `config.json`, safetensors and `vocab.txt`, in and out.

Source: github.com/huggingface/transformers, `models/bert`. The weights of `BertModel`,
`BertForMaskedLM`, `BertForNextSentencePrediction` and `BertForPreTraining` are read, and those of
the tasks in `huggingface_tasks`; what is written is a task's model as that, else a
`BertForPreTraining`, or a `BertForMaskedLM` where the model has neither pooler nor next-sentence
head. There column 0 of the next-sentence logits is "is next", dense kernels are
`(out, in)`, and `"gelu"` is the exact one, with erf.
"""

import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert_d2l.checkpoints.formats.huggingface_config import (
    ARCHITECTURES,
    CONFIG_FILE,
    config_from_json,
    config_to_dict,
)
from keras_bert_d2l.checkpoints.formats.huggingface_tasks import config_fields, head_rows, task_of
from keras_bert_d2l.checkpoints.formats.state_dicts import dense, layer_norm
from keras_bert_d2l.checkpoints.formats.task_fields import parts_of, task_fields
from keras_bert_d2l.checkpoints.weights.safetensors_files import SafetensorsFiles, write_safetensors
from keras_bert_d2l.checkpoints.weights.transfer import (
    POSITIONS,
    SWAPPED,
    SWAPPED_TRANSPOSED,
    Checkpoint,
    Row,
    Tensors,
    first,
    part_of,
    stored_weights,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import read_json_object
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.vocab.vocab import Vocab

VOCAB_FILE, TOKENIZER_FILE = "vocab.txt", "tokenizer_config.json"
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
_TOKENIZER_JSON = "tokenizer.json"
_TORCH_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")

_TOKEN_EMBEDDING = "bert.embeddings.word_embeddings.weight"
_DECODER, _DECODER_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_MLM_BIAS = "cls.predictions.bias"
# Counting from 0 on, which old versions stored as if it had been learned.
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
# In the order of `Vocab.special_tokens`.
_SPECIAL_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


def recognises(path: pathlib.Path) -> bool:
    """Tells whether a folder looks like one of Hugging Face's, of whatever model."""
    has_safetensors = (path / WEIGHTS_FILE).is_file() or (path / INDEX_FILE).is_file()
    if not has_safetensors and any(path.glob("*.ckpt.index")):
        return False  # of a TF1 checkpoint and the pickles made of it, the former can be read
    if any((path / name).is_file() for name in (INDEX_FILE, *_TORCH_FILES)):
        return True
    try:
        fields = read_json_object(path / CONFIG_FILE)
    except (OSError, ValueError):
        return False
    return "format" not in fields and not {"model_type", "hidden_size"}.isdisjoint(fields)


def describe(path: pathlib.Path) -> Checkpoint:
    """Reads all of a folder but its weights.

    A file with an MLM head but neither a pooler nor a next-sentence head (`BertForMaskedLM`) gives
    a model without these; what else a file lacks starts afresh.

    Args:
        path: The folder. Weights are taken from `model.safetensors`, or from the files that
            `model.safetensors.index.json` names; PyTorch's pickles beside them are left alone.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged, the folder holds no BERT, holds a BERT with the head of an
            unknown task, or holds pickled weights alone.
    """
    stored = _open_weights(path)
    file = path / CONFIG_FILE
    config = config_from_json(file)
    weights = _Weights(stored)
    task = _task(file, weights)
    has_mlm, has_nsp = weights.has("cls.predictions."), weights.has("cls.seq_relationship.")
    if task is not None and "hidden" not in parts_of(task):
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    if has_mlm and not has_nsp and not weights.has("bert.pooler."):
        config = dataclasses.replace(config, pooler=False, next_sentence=False)
    if config.tie_embeddings and not weights.leave_out_tied_copy():
        warnings.warn(
            f"{os.fspath(file)!r} says that the MLM head shares the token embedding, but "
            f"{stored.source!r} holds different numbers in {_DECODER!r}. These are taken, as "
            "transformers 5 does; version 4 took the token embedding.",
            stacklevel=2,
        )
        config = dataclasses.replace(config, tie_embeddings=False)
    vocab, tokenizer_options = _read_vocab(path)
    only_json = vocab is None and (path / _TOKENIZER_JSON).is_file()
    note = f" ({_TOKENIZER_JSON} is not read, a {VOCAB_FILE} would be)" if only_json else ""
    return Checkpoint(
        description=f"Hugging Face {_architecture(task, has_mlm, has_nsp)}{note}",
        config=config,
        table=[row._replace(theirs=weights.spelled(row.theirs)) for row in _table(config, task)],
        tensors=weights,
        vocab=vocab,
        tokenizer_options=tokenizer_options,
        task=task,
    )


def write(
    model: BERTModel | TaskModel,
    folder: pathlib.Path,
    vocab: Vocab | None,
    tokenizer_options: dict[str, Any],
) -> None:
    """Writes a folder that transformers loads, without a missing or an unexpected weight.

    KerasHub's `BertBackbone.from_preset` reads it too, but takes from the configuration no more
    than the sizes: its outputs are equal for `activation="gelu_tanh"`, `layer_norm_epsilon=1e-12`
    and two segments, and it needs a pooler.

    Of the tokenizer's options `compat` is not kept: who reads the folder tokenizes as Hugging Face
    does, which differs from google's way on rare characters (see `Tokenizer`).

    Args:
        model: The model.
        folder: A folder that nobody reads yet.
        vocab: The vocabulary, or `None`.
        tokenizer_options: Keyword arguments of the `Tokenizer`.

    Raises:
        ValueError: Hugging Face's BERT cannot express the model; the message names the field.
    """
    config, task = model.bert_config, task_fields(model)
    if task is not None:  # it has none of these heads, so that they must not be in the way
        config = dataclasses.replace(
            config, pooler=True, next_sentence=True, mlm_head="mlp", tie_embeddings=True
        )
    fields = config_to_dict(config) | ({} if task is None else config_fields(task))
    weights = stored_weights(model, _table(config, task))
    if not config.tie_embeddings:  # there the bias exists twice
        weights[_MLM_BIAS] = weights[_DECODER_BIAS]
    if vocab is not None:
        fields["pad_token_id"] = vocab.pad_id
        vocab.to_file(folder / VOCAB_FILE)
        options = _tokenizer_fields(vocab, tokenizer_options, config.max_len)
        _write_json(folder / TOKENIZER_FILE, options)
    _write_json(folder / CONFIG_FILE, fields)
    write_safetensors(folder / WEIGHTS_FILE, weights, "pt")


def _table(config: BERTConfig, task: dict[str, Any] | None) -> list[Row]:
    """Returns a row for every weight, in the spelling that transformers writes."""
    rows = [
        Row("encoder/token_embedding/embeddings", _TOKEN_EMBEDDING),
        Row("encoder/segment_embedding/embeddings", "bert.embeddings.token_type_embeddings.weight"),
        Row("encoder/pos_embedding", "bert.embeddings.position_embeddings.weight", POSITIONS),
        *layer_norm("encoder/embedding_ln", "bert.embeddings.LayerNorm"),
    ]
    for index in range(config.num_blks):
        ours, theirs = f"encoder/blk_{index}", f"bert.encoder.layer.{index}"
        rows += [
            *dense(f"{ours}/attention/W_q", f"{theirs}.attention.self.query"),
            *dense(f"{ours}/attention/W_k", f"{theirs}.attention.self.key"),
            *dense(f"{ours}/attention/W_v", f"{theirs}.attention.self.value"),
            *dense(f"{ours}/attention/W_o", f"{theirs}.attention.output.dense"),
            *layer_norm(f"{ours}/addnorm1/ln", f"{theirs}.attention.output.LayerNorm"),
            *dense(f"{ours}/ffn/dense1", f"{theirs}.intermediate.dense"),
            *dense(f"{ours}/ffn/dense2", f"{theirs}.output.dense"),
            *layer_norm(f"{ours}/addnorm2/ln", f"{theirs}.output.LayerNorm"),
        ]
    rows += dense("mlm/mlp/dense", "cls.predictions.transform.dense")
    rows += layer_norm("mlm/mlp/ln", "cls.predictions.transform.LayerNorm")
    if config.tie_embeddings:
        rows.append(Row("mlm/bias", _MLM_BIAS))
    else:
        rows += dense("mlm/mlp/logits", "cls.predictions.decoder")
    if config.pooler:
        rows += dense("hidden", "bert.pooler.dense")
    if config.next_sentence:
        rows.append(Row("nsp/dense/kernel", "cls.seq_relationship.weight", SWAPPED_TRANSPOSED))
        rows.append(Row("nsp/dense/bias", "cls.seq_relationship.bias", SWAPPED))
    if task is not None:
        rows += head_rows(task)
    parts = parts_of(task)
    return [row for row in rows if part_of(row.ours) in parts]


class _Weights:
    """The `Tensors` of a folder without buffers and copies, whose names it spells in its own way.

    Old files write gamma and beta for a normalisation's weight and bias; those of a bare
    `BertModel` leave out the `bert.` in front; some hold what the MLM head shares once more.
    """

    def __init__(self, stored: Tensors) -> None:
        self.source = stored.source
        self._stored = stored
        self._names = stored.shapes()
        self._prefix = "bert." if any(n.startswith("bert.") for n in self._names) else ""
        # Both are the same in transformers, but for a head that is not tied: there the
        # decoder's bias is the one that acts.
        self._bias = _DECODER_BIAS if _DECODER_BIAS in self._names else _MLM_BIAS
        self._left_out = {self.spelled(name) for name in _BUFFERS}
        self._left_out |= {_MLM_BIAS, _DECODER_BIAS} - {self._bias}

    def spelled(self, name: str) -> str:
        """Returns the name under which the folder has, or would have, a weight."""
        if name in (_MLM_BIAS, _DECODER_BIAS):
            return self._bias
        if name.startswith("bert."):
            name = self._prefix + name.removeprefix("bert.")
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old = old.replace("LayerNorm.bias", "LayerNorm.beta")
        return old if old in self._names else name

    def has(self, part: str) -> bool:
        """Tells whether there is a weight of which the name begins so."""
        return any(name.startswith(self.spelled(part)) for name in self._names)

    def leave_out_tied_copy(self) -> bool:
        """Leaves the MLM head's kernel out where it is the token embedding once more.

        Returns: whether it is, or there is none.
        """
        if _DECODER not in self._names:
            return True
        token_embedding = self.spelled(_TOKEN_EMBEDDING)
        if self._names[_DECODER] != self._names.get(token_embedding) or not np.array_equal(
            self._stored.read(_DECODER), self._stored.read(token_embedding)
        ):
            return False
        self._left_out.add(_DECODER)
        return True

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: s for name, s in self._names.items() if name not in self._left_out}

    def dtypes(self) -> Mapping[str, str]:
        dtypes = self._stored.dtypes()
        return {name: dtypes[name] for name in self.shapes()}

    def read(self, name: str) -> np.ndarray:
        return self._stored.read(name)


def _task(file: pathlib.Path, weights: _Weights) -> dict[str, Any] | None:
    try:
        return task_of(read_json_object(file), weights.shapes(), weights.source)
    except ValueError as error:
        raise ValueError(f"{os.fspath(file)!r}: {error}") from error


def _architecture(task: dict[str, Any] | None, has_mlm: bool, has_nsp: bool) -> str:
    if task is None:
        return ARCHITECTURES[has_mlm, has_nsp]
    (name,) = config_fields(task)["architectures"]
    return str(name)


def _open_weights(path: pathlib.Path) -> Tensors:
    if (path / WEIGHTS_FILE).is_file():
        return SafetensorsFiles([path / WEIGHTS_FILE])
    if (path / INDEX_FILE).is_file():
        return _open_shards(path / INDEX_FILE)
    pickles = [file.name for ending in ("bin", "pt", "pth") for file in path.glob(f"*.{ending}")]
    if pickles:
        raise ValueError(
            f"{os.fspath(path)!r} has its weights in {first(pickles)}: Python pickles, which can "
            "run any code while they are read, and so are not read here. If you trust their "
            "source, make safetensors of them where PyTorch and transformers are installed, with "
            "the class that has their heads: "
            "`BertForPreTraining.from_pretrained(folder).save_pretrained(other_folder)`."
        )
    raise FileNotFoundError(
        f"{os.fspath(path)!r} has no weights: neither {WEIGHTS_FILE} nor {INDEX_FILE}."
    )


def _open_shards(index: pathlib.Path) -> Tensors:
    """Opens the files among which a model is divided."""
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(
            f'{os.fspath(index)!r} must have an object "weight_map" of weights and their files. '
            f"Received: {weight_map!r:.80}."
        )
    names: set[Any] = set(map(str, weight_map.values()))
    for name in sorted(names):
        if pathlib.PurePath(name).name != name:  # a path could lead out of the folder
            raise ValueError(
                f"{os.fspath(index)!r} must name files beside it. Received: {name!r:.80}."
            )
    stored = SafetensorsFiles([index.parent / name for name in sorted(names)])
    absent = weight_map.keys() - stored.shapes().keys()
    if absent:
        raise ValueError(
            f"{os.fspath(index)!r} names weights that its files do not hold: {first(absent)}. The "
            "files are of another model: copy all of them again."
        )
    return stored


def _read_vocab(path: pathlib.Path) -> tuple[Vocab | None, dict[str, Any]]:
    """Returns the vocabulary and the options of the tokenizer that goes with it."""
    file = path / VOCAB_FILE
    if not file.is_file():
        return None, {}
    vocab = Vocab.from_file(file)
    options_file = path / TOKENIZER_FILE
    options = read_json_object(options_file) if options_file.is_file() else {}
    lowercase = options.get("do_lower_case", True)
    split_special_tokens = options.get("split_special_tokens", False)
    unlike = list(_unlike_ours(options, vocab, lowercase))
    if unlike:
        warnings.warn(
            f"The tokenizer of {os.fspath(options_file)!r} has {', '.join(unlike)}, which is not "
            "supported; the checkpoint is loaded without a tokenizer.",
            stacklevel=3,
        )
        return None, {}
    return vocab, {
        "lowercase": lowercase,
        "compat": "huggingface",
        "split_special_tokens": split_special_tokens,
    }


def _unlike_ours(options: Mapping[str, Any], vocab: Vocab, lowercase: Any) -> Iterable[str]:
    """Yields what would make ids that are not those of our tokenizer."""
    expected: dict[str, Sequence[Any]] = {
        "do_lower_case": (True, False),
        "split_special_tokens": (True, False),
        "do_basic_tokenize": (True, None),
        "tokenize_chinese_chars": (True, None),
        "strip_accents": (lowercase, None),
    }
    for name, fine in expected.items():
        if name in options and options[name] not in fine:
            yield f"{name}={options[name]!r}"
    for name, token in zip(_SPECIAL_TOKENS, vocab.special_tokens, strict=True):
        value = options.get(name, token)
        if isinstance(value, dict):  # with the settings of a token that was added
            value = value.get("content")
        if value != token:
            yield f"{name}={value!r}"


def _tokenizer_fields(vocab: Vocab, options: Mapping[str, Any], max_len: int) -> dict[str, Any]:
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": options.get("lowercase", True),
        "split_special_tokens": options.get("split_special_tokens", False),
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": max_len,
        **dict(zip(_SPECIAL_TOKENS, vocab.special_tokens, strict=True)),
    }


def _write_json(path: pathlib.Path, fields: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
