"""Save LoRA adapters without the model that they adapt, and load them onto it.

The folder has the format of PEFT, so that both programs read the same files: the LoRA weights and
everything else that is trained with them, which is the head and the pooler of a task model.

Source: github.com/huggingface/peft, `utils/save_and_load.py`, `tuners/lora` and
`tuners/tuners_utils.py`.
"""

import hashlib
import json
import math
import os
import pathlib
import re
from collections.abc import Sequence
from typing import TypeAlias

import keras
import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays, open_safetensors, write_safetensors
from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checkpoints.formats.checkpoint import task_fields
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import (
    MODEL_TYPES,
    ModelType,
    model_type_of,
)
from keras_bert_d2l.checkpoints.formats.huggingface.weight_names import (
    current_names,
    split_joined,
    table,
)
from keras_bert_d2l.checkpoints.torch_files import open_torch
from keras_bert_d2l.checkpoints.weights import (
    TRANSPOSED,
    Layout,
    Row,
    first_few,
    named_weights,
    their_shape,
)
from keras_bert_d2l.checks import check_integer, check_path, check_positive, check_that, shown
from keras_bert_d2l.files import (
    CHECKSUMS,
    check_replaceable,
    replacing_folder,
    verify_checksums,
    write_json,
)
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.partial_training import lora_variables
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import errors_naming, has_file, read_json_object
from keras_bert_d2l.remote import mirrored
from keras_bert_d2l.types import ConfigDict, PathLike

CONFIG_FILE = "adapter_config.json"
# Entries of PEFT's configuration that are read, that the weights repeat, or that do not change the
# outputs.
_SUPPORTED = frozenset(
    """
    alpha_pattern auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying
    eva_config exclude_modules fan_in_fan_out inference_mode layers_pattern layers_to_transform
    loftq_config lora_alpha lora_dropout lora_ga_config megatron_core modules_to_save peft_type
    peft_version qalora_group_size r rank_pattern revision runtime_config target_modules task_type
    use_rslora velora_config
    """.split()
)
# Ways to initialize the matrices that leave the other weights of the model as they are.
_NEUTRAL = [("init_lora_weights", x) for x in (True, "gaussian", "eva", "orthogonal", "mica")]
# A name in `alpha_pattern`, in which PEFT also allows regular expressions.
_LAYER = re.compile(r"[\w.]+(\[\d\])?")
_REMEDY = "Merge the adapter with PEFT, and load the merged model."
WEIGHTS_FILE = "adapter_model.safetensors"
_TORCH_FILE = "adapter_model.bin"  # of PEFT before version 0.7
Model: TypeAlias = BERTModel | TaskModel

_PREFIX = "base_model.model."
# The matrices `(in, r)` and `(r, out)` of a layer, and its `lora_alpha`.
_Update: TypeAlias = tuple[np.ndarray, np.ndarray, float]
_METADATA = "keras_bert_d2l"  # entry of the safetensors file that describes the base model


def save_adapter(model: Model, path: PathLike) -> None:
    """Save what LoRA trains, without the frozen weights, in PEFT's format.

    The LoRA weights, and the head and pooler of a task model, take a few megabytes. An existing
    adapter in the folder is replaced in one step. PEFT loads it with
    `PeftModel.from_pretrained(base_model, path)`, unless the model has `pooling="mean"`, which
    BERT in transformers lacks, or is a ModernBERT with LoRA of `W_q`, `W_k` or `W_v`, which are one
    weight in transformers.

    Args:
        model: The model, after `enable_lora`.
        path: The folder to write. It must be new or empty, or contain an adapter.

    Raises:
        ValueError: The model has no LoRA.
        FileExistsError: `path` contains anything other than an adapter.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=100))
    kb.save_pretrained(model, "checkpoints/tiny")
    model.enable_lora(4, lora_layers=["W_q", "W_v", "dense1"])
    model.compile(kb.BERTAdamW(1e-3))  # then train it with `fit`
    kb.save_adapter(model, "adapters/mine")
    ```
    """
    check_kind(model, BERTModel, TaskModel)
    layers = {id(lora_variables(layer)[0]): layer for layer in model.lora_layers}
    if not layers:
        raise ValueError("`model` must have LoRA. Received: a model without it; see `enable_lora`.")
    check_replaceable(path, "adapter", {CONFIG_FILE, WEIGHTS_FILE, CHECKSUMS})
    arrays: dict[str, np.ndarray] = {}
    kernels, others, bias = [], [], "none"
    adapted: dict[str, keras.layers.Layer] = {}
    rows = [(row, weight, _name(model, row)) for row, weight in _rows(model)]
    trained = {name for _, weight, name in rows if weight.trainable}
    for row, weight, name in rows:
        layer, module = layers.get(id(weight)), _module(name)
        if layer is not None:
            a, b = map(keras.ops.convert_to_numpy, lora_variables(layer)[1:])
            name_of_a, name_of_b, layout = _matrices(module, row)
            arrays |= {name_of_a: a.T, name_of_b: layout.to_theirs(b)}
            kernels.append(weight)
            adapted[module] = layer
        elif name in trained:
            if not name.endswith(".bias") or f"{module}.weight" in trained:
                others.append(module)
            else:  # only the bias of the layer is trained
                bias = "all"
                name = f"{module}.base_layer.bias" if module in adapted else name
            arrays[name] = row.layout.to_theirs(keras.ops.convert_to_numpy(weight))
    r, alpha = model.lora_layers[0].lora_rank, model.lora_layers[0].lora_alpha
    fields = {
        "peft_type": "LORA",
        "r": r,
        "lora_alpha": alpha,
        "rank_pattern": {k: x.lora_rank for k, x in adapted.items() if x.lora_rank != r},
        "alpha_pattern": {k: x.lora_alpha for k, x in adapted.items() if x.lora_alpha != alpha},
        "target_modules": [*adapted],
        "modules_to_save": sorted(set(others)) or None,
        "bias": bias,
        "inference_mode": True,
    }
    with replacing_folder(path) as folder:
        write_json(folder / CONFIG_FILE, fields)
        stored = {_PREFIX + k: np.ascontiguousarray(x, np.float32) for k, x in arrays.items()}
        metadata = {_METADATA: json.dumps(_origin(model, kernels))}
        write_safetensors(folder / WEIGHTS_FILE, stored, metadata)


def load_adapter(model: Model, path: PathLike) -> None:
    """Load an adapter of `save_adapter` or of PEFT onto the model that it was trained on.

    The model then has LoRA, as after `enable_lora`: train it further, or add the updates to its
    kernels with `model.merge_lora()`. The head and the pooler of a task model are loaded as well,
    if the adapter has them.

    An adapter of PEFT may adapt dense layers and embeddings, in all blocks or in some, with a rank
    and a scale for each, and may train biases. It may be an `adapter_model.bin`, which is read
    without unpickling. DoRA and other options that change the computation are rejected by name.
    The outputs equal PEFT's. LoRA of ModernBERT's `Wqkv` becomes LoRA of three layers, which
    further training changes independently.

    Args:
        model: The model, without LoRA, with the weights that the adapter was trained on.
        path: The folder of the adapter.

    Raises:
        FileNotFoundError: The folder contains no adapter.
        ValueError: A file is damaged, the adapter belongs to a model of other sizes, with other
            weights or for another task, it uses an option of PEFT that is not supported, or the
            model already has LoRA.

    Example:

    ```python
    import keras_bert_d2l as kb

    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=100))
    kb.save_pretrained(model, "checkpoints/tiny")
    model.enable_lora(4)
    kb.save_adapter(model, "adapters/mine")
    base = kb.load_pretrained("checkpoints/tiny").model
    kb.load_adapter(base, "adapters/mine")
    base.merge_lora()
    ```
    """
    check_kind(model, BERTModel, TaskModel)
    check_path("path", path)
    if model.has_lora:
        raise ValueError(
            "`model` must not have LoRA. Received: a model with LoRA; call `merge_lora` first."
        )
    folder = mirrored(path)
    fields = read_config(folder / CONFIG_FILE)
    is_old = has_file(folder / _TORCH_FILE) and not has_file(folder / WEIGHTS_FILE)
    open_file = open_torch if is_old else open_safetensors
    stored = open_file([folder / (_TORCH_FILE if is_old else WEIGHTS_FILE)])
    verify_checksums(folder)
    weights = {row.ours: weight for row, weight in _rows(model)}
    updates, others = _values(model, stored, fields)
    _check_origin(model, stored, [weights[name] for name in updates])
    layers = _layers(model)
    adapted = [(layers[id(weights[name])], *update) for name, update in updates.items()]
    model.add_lora_to({layer: (a.shape[1], alpha) for layer, a, _, alpha in adapted})
    for layer, *matrices, _ in adapted:
        for variable, matrix in zip(lora_variables(layer)[1:], matrices, strict=True):
            variable.assign(matrix)
    for name, value in others.items():
        weights[name].assign(value)
        weights[name].trainable = name not in updates  # `save_adapter` saves it again


def _values(
    model: Model, stored: NamedArrays, fields: ConfigDict
) -> tuple[dict[str, _Update], dict[str, np.ndarray]]:
    """Return the arrays of an adapter in our layout; raise `ValueError` if the model does not fit.

    Returns: the update of each adapted weight, and the other weights, by our names.
    """
    alien = [name for name in stored.shapes if not name.startswith(_PREFIX)]
    arrays, layers = _named(model, stored), _layers(model)
    _check_tied(model, arrays)
    adapted, plain = {}, {}
    expected: dict[str, tuple[int, ...]] = {}
    for row, weight in _rows(model):
        name, shape = row.theirs, tuple(weight.shape)
        a, b, layout = _matrices(_module(name), row)
        if id(weight) in layers and a in arrays.shapes:
            adapted[row] = a, b, layout
            ranks = arrays.shapes[a][:1] if fields.get("rank_pattern") else (fields["r"],)
            expected |= {a: (*ranks, shape[0]), b: (shape[1], *ranks)}
        if name in arrays.shapes:
            plain[row] = name
            expected[name] = their_shape(row, shape)
    wrong = [
        f"{name} has the shape {arrays.shapes.get(name)} instead of {expected.get(name)}"
        for name in sorted(expected.keys() | arrays.shapes.keys())
        if arrays.shapes.get(name) != expected.get(name)
    ]
    wrong += [f"{name} is unknown" for name in alien]
    if wrong or not adapted:
        raise ValueError(
            f"{stored.source!r} is an adapter for a different model: "
            f"{first_few(wrong, 300) or 'it has no LoRA weights'}. Load it onto the model that it "
            "was trained on, with the same task."
        )
    read = arrays.read_finite
    updates = {}
    for row, (a, b, layout) in adapted.items():
        alpha = alpha_of(fields, _module(row.theirs), arrays.shapes[a][0])
        updates[row.ours] = read(a).T, layout.to_ours(read(b)), alpha
    return updates, {row.ours: row.layout.to_ours(read(name)) for row, name in plain.items()}


def _matrices(module: str, row: Row) -> tuple[str, str, Layout]:
    """Return PEFT's names of the two matrices that adapt a weight, and the layout of the second."""
    if row.ours.endswith("/embeddings"):
        return f"{module}.lora_embedding_A", f"{module}.lora_embedding_B", TRANSPOSED
    return f"{module}.lora_A.weight", f"{module}.lora_B.weight", row.layout


def _named(model: Model, stored: NamedArrays) -> NamedArrays:
    """Return the arrays of an adapter with the names that transformers writes today.

    A pooler that the model does not have is omitted: in transformers, the class without a head has
    one. So are copies that PEFT saves with bias="all" of the biases of saved layers.
    """
    kind = _type_of(model)
    names = {
        name.removeprefix(_PREFIX).replace(".base_layer.", "."): name
        for name in stored.shapes
        if not re.search(r"\.(original_module|modules_to_save)\.", name)
    }
    arrays = stored.select(names)
    names = current_names(arrays, kind)
    if names.get(kind.token_embedding) == kind.decoder:
        names[kind.decoder] = names.pop(kind.token_embedding)
    if kind.has_pooler and not any(row.ours.startswith("hidden/") for row, _ in _rows(model)):
        pooler = f"{kind.names['hidden']}."
        names = {new: old for new, old in names.items() if not new.startswith(pooler)}
    return split_joined(arrays.select(names), model.bert_config.num_heads)


def _check_tied(model: Model, arrays: NamedArrays) -> None:
    """Raise `ValueError` if an adapter changes only one use of a tied embedding.

    In PEFT, either the embedding or the MLM head changes. Here, they are one weight.
    """
    if not isinstance(model, BERTModel) or not model.bert_config.tie_embeddings:
        return
    kind = _type_of(model)
    tied = tuple(
        start
        for name in (kind.token_embedding, kind.decoder)
        for start in (name, f"{_module(name)}.lora_")
    )
    if refused := [name for name in arrays.shapes if name.startswith(tied)]:
        raise ValueError(
            f"{arrays.source!r} has weights from `target_modules` or `modules_to_save` that are "
            f"not supported: {first_few(refused)}. {_REMEDY}"
        )


def _layers(model: Model) -> dict[int, keras.layers.Layer]:
    """Return the layers that can have LoRA, by the ids of the weights that it updates."""
    kinds = (keras.layers.Dense, keras.layers.Embedding)
    found = [layer for layer in model._flatten_layers() if isinstance(layer, kinds)]
    return {id(lora_variables(layer)[0]): layer for layer in found}


def _rows(model: Model) -> list[tuple[Row, keras.Variable]]:
    """Return the weights of a model with their names in transformers."""
    weights = named_weights(model)
    task = task_fields(model) if getattr(model, "has_head", False) else None
    of_steps = [name for name in weights if name.startswith("head/step_")]
    check_that(not of_steps, "steps", "empty: PEFT has no names for their weights", of_steps)
    rows = table(model.bert_config, task)
    return [(row, weights[row.ours]) for row in rows if row.ours in weights]


def _name(model: Model, row: Row) -> str:
    # The counterpart of a task model without a head is a bare `BertModel`.
    is_bare = isinstance(model, TaskModel) and not model.has_head
    return row.theirs.removeprefix(f"{_type_of(model).base}.") if is_bare else row.theirs


def _type_of(model: Model) -> ModelType:
    return MODEL_TYPES[model_type_of(model.bert_config)]


def _module(name: str) -> str:
    """Return the layer of a weight, with the number of the part of a joined one: `Wqkv[0]`."""
    return re.sub(r"\.\w+(?=(\[\d\])?$)", "", name)


def _origin(model: Model, kernels: Sequence[keras.Variable]) -> ConfigDict:
    """Describe the task and the weights that the updates of these kernels belong to."""
    digest = hashlib.sha256()
    for kernel in kernels:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(kernel), np.float32).data)
    without = {"dropout", *getattr(model, "calibrated", ())}
    task = {k: v for k, v in (task_fields(model) or {}).items() if k not in without}
    return {"kernels_sha256": digest.hexdigest(), "task": task}


def _check_origin(model: Model, stored: NamedArrays, kernels: Sequence[keras.Variable]) -> None:
    """Raise `ValueError` if an adapter records another task or other weights than the model's."""
    if _METADATA not in stored.metadata:  # written by PEFT, whose BERT reads the pooler
        pools = isinstance(model, TaskModel) and model.pools and not _type_of(model).has_pooling
        if pools and model.pooling == "mean":
            raise ValueError(
                f"{stored.source!r} is an adapter of PEFT, for a head that reads the pooler. "
                'Received: a model with pooling="mean". Use `pooling="cls"`.'
            )
        return
    damage = (KeyError, ValueError, TypeError, RecursionError)
    with errors_naming(stored.source, " is damaged", "Save the adapter again.", damage):
        found = _flat(json.loads(stored.metadata[_METADATA]))
    expected = _flat(_origin(model, kernels))
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"{stored.source!r} is an adapter for a different model: its {name} is "
                f"{shown(found.get(name))} instead of {shown(expected.get(name))}. Load the "
                "checkpoint that it was trained on, and use the same arguments for its task."
            )


def _flat(origin: ConfigDict) -> ConfigDict:
    return {"kernels_sha256": origin["kernels_sha256"], **dict(origin["task"])}


def read_config(file: pathlib.Path) -> ConfigDict:
    """Read PEFT's configuration, with the keys `r` and `lora_alpha`.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file is damaged, or an option is not supported.
    """
    fields = read_json_object(file)
    with errors_naming(file):
        kind = fields.get("peft_type")
        check_that(kind == "LORA", "peft_type", "'LORA'", kind)
        check_integer("r", fields.get("r"), 1)
        check_positive("lora_alpha", fields.get("lora_alpha"))
        alphas = fields.get("alpha_pattern") or {}
        expected = "an object of numbers by names of layers, which are not regular expressions"
        are_names = isinstance(alphas, dict) and all(map(_LAYER.fullmatch, alphas))
        check_that(are_names, "alpha_pattern", expected, alphas, _REMEDY)
        for alpha in alphas.values():
            check_positive("alpha_pattern", alpha)
    further = [
        f"{name}={shown(value)}"
        for name, value in fields.items()
        if value and name not in _SUPPORTED and (name, value) not in _NEUTRAL
    ]
    if further:
        raise ValueError(
            f"{os.fspath(file)!r} uses options of PEFT that are not supported: "
            f"{first_few(further)}. {_REMEDY}"
        )
    return fields


def alpha_of(fields: ConfigDict, layer: str, rank: int) -> float:
    """Return the `lora_alpha` of a layer: its update is scaled by this number divided by `rank`."""
    names = f".{layer}", f".{layer.partition('[')[0]}"
    own = [
        alpha
        for name, alpha in (fields.get("alpha_pattern") or {}).items()
        if any(one.endswith(f".{name}") for one in names)
    ]
    alpha = float([*own, fields["lora_alpha"]][0])
    return alpha * math.sqrt(rank) if fields.get("use_rslora") else alpha
