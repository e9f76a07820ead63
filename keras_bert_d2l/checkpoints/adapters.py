"""Save LoRA adapters without the model that they adapt, and load them onto it.

The folder has the format of PEFT, so that both programs read the same files: the LoRA weights and
everything else that is trained with them, which is the head and the pooler of a task model.

Source: github.com/huggingface/peft, `utils/save_and_load.py` and `tuners/lora`.
"""

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import keras
import numpy as np

from keras_bert_d2l.checkpoints.array_files import (
    NamedArrays,
    open_safetensors,
    write_safetensors,
)
from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checkpoints.formats.checkpoint import task_fields
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import (
    MODEL_TYPES,
    ModelType,
    model_type_of,
)
from keras_bert_d2l.checkpoints.formats.huggingface.weight_names import current_names, table
from keras_bert_d2l.checkpoints.weights import (
    Row,
    first_few,
    named_weights,
    their_shape,
)
from keras_bert_d2l.checks import check_integer, check_path, check_positive, check_that, shown
from keras_bert_d2l.files import CHECKSUMS, verify_checksums, write_json
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import errors_naming, read_json_object
from keras_bert_d2l.remote import check_replaceable, mirrored, writing_folder
from keras_bert_d2l.types import ConfigDict, PathLike

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
Model: TypeAlias = BERTModel | TaskModel

_PREFIX, _A, _B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
_METADATA = "keras_bert_d2l"  # entry of the safetensors file that describes the base model
# Entries of PEFT's configuration that do not change the outputs, or that the weights repeat.
_DESCRIPTIVE = frozenset(
    """
    auto_mapping base_model_name_or_path ensure_weight_tying exclude_modules inference_mode
    layers_pattern layers_to_transform lora_alpha lora_dropout megatron_core modules_to_save
    peft_type peft_version qalora_group_size r revision target_modules task_type
    """.split()
)
_NEUTRAL = [("bias", "none"), ("init_lora_weights", True), ("init_lora_weights", "gaussian")]


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
    check_kind(model, BERTModel, TaskModel, remedy="load a checkpoint of BERT")
    layers = {id(layer._kernel): layer for layer in model.lora_layers}
    if not layers:
        raise ValueError("`model` must have LoRA. Received: a model without it; see `enable_lora`.")
    check_replaceable(path, "adapter", {CONFIG_FILE, WEIGHTS_FILE, CHECKSUMS})
    arrays: dict[str, np.ndarray] = {}
    kernels, modules, others = [], [], []
    for row, weight in _rows(model):
        name, layer = _name(model, row), layers.get(id(weight))
        module = _module(name)
        if layer is not None:
            a, b = map(keras.ops.convert_to_numpy, (layer.lora_kernel_a, layer.lora_kernel_b))
            arrays |= {module + _A: a.T, module + _B: row.layout.to_theirs(b)}
            kernels.append(weight)
            modules.append(module)
        elif weight.trainable:
            arrays[name] = row.layout.to_theirs(keras.ops.convert_to_numpy(weight))
            others.append(module)
    layer = model.lora_layers[0]
    fields = {
        "peft_type": "LORA",
        "r": layer.lora_rank,
        "lora_alpha": layer.lora_alpha,
        "target_modules": modules,
        "modules_to_save": sorted(set(others)) or None,
        "inference_mode": True,
    }
    with writing_folder(path) as folder:
        write_json(folder / CONFIG_FILE, fields)
        stored = {_PREFIX + k: np.ascontiguousarray(x, np.float32) for k, x in arrays.items()}
        metadata = {_METADATA: json.dumps(_origin(model, kernels))}
        write_safetensors(folder / WEIGHTS_FILE, stored, metadata)


def load_adapter(model: Model, path: PathLike) -> None:
    """Load an adapter of `save_adapter` or of PEFT onto the model that it was trained on.

    The model then has LoRA, as after `enable_lora`: train it further, or add the updates to its
    kernels with `model.merge_lora()`. The head and the pooler of a task model are loaded as well,
    if the adapter has them.

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
    check_kind(model, BERTModel, TaskModel, remedy="load a checkpoint of BERT")
    check_path("path", path)
    if model.has_lora:
        raise ValueError(
            "`model` must not have LoRA. Received: a model with LoRA; call `merge_lora` first."
        )
    folder = mirrored(path)
    fields, stored = _read_config(folder / CONFIG_FILE), open_safetensors([folder / WEIGHTS_FILE])
    verify_checksums(folder)
    weights = {row.ours: weight for row, weight in _rows(model)}
    updates, others = _values(model, stored, fields["r"])
    _check_origin(model, stored, [weights[name] for name in updates])
    model.enable_lora(
        fields["r"], fields["lora_alpha"], [name.rpartition("/")[0] for name in updates]
    )
    layers = {id(layer._kernel): layer for layer in model.lora_layers}
    for name, (a, b) in updates.items():
        layers[id(weights[name])].lora_kernel_a.assign(a)
        layers[id(weights[name])].lora_kernel_b.assign(b)
    for name, value in others.items():
        weights[name].assign(value)


def _values(
    model: Model, stored: NamedArrays, rank: int
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, np.ndarray]]:
    """Return the arrays of an adapter in our layout; raise `ValueError` if the model does not fit.

    Returns: the two LoRA matrices of each kernel, and the other weights, by our names.
    """
    alien = [name for name in stored.shapes if not name.startswith(_PREFIX)]
    arrays = stored.select({name.removeprefix(_PREFIX): name for name in stored.shapes})
    arrays = arrays.select(current_names(arrays, _type_of(model)))
    adapted, plain = {}, {}
    expected: dict[str, tuple[int, ...]] = {}
    for row, weight in _rows(model):
        name, shape = row.theirs, tuple(weight.shape)
        module = _module(name)
        if row.ours.endswith("/kernel") and module + _A in arrays.shapes:
            adapted[row] = module
            expected |= {module + _A: (rank, shape[0]), module + _B: (shape[1], rank)}
        elif name in arrays.shapes:
            plain[row] = name
            expected[name] = their_shape(row, shape)
    wrong = [
        f"{name} has the shape {arrays.shapes.get(name)} instead of {expected.get(name)}"
        for name in sorted(expected.keys() | arrays.shapes.keys())
        if arrays.shapes.get(name) != expected.get(name)
    ]
    wrong += [f"{name} is unknown" for name in alien]
    wrong += [f"{row.theirs} has no LoRA weights" for row in _without_update(model, adapted)]
    if wrong or not adapted:
        raise ValueError(
            f"{stored.source!r} is an adapter for a different model: "
            f"{first_few(wrong, 300) or 'it has no LoRA weights'}. Load it onto the model that it "
            "was trained on, with the same task."
        )
    read = arrays.read_finite
    updates = {
        row.ours: (read(name + _A).T, row.layout.to_ours(read(name + _B)))
        for row, name in adapted.items()
    }
    return updates, {row.ours: row.layout.to_ours(read(name)) for row, name in plain.items()}


def _without_update(model: Model, adapted: Iterable[Row]) -> list[Row]:
    """Return the kernels that lack an update although the same kernel of another block has one."""

    def kind(row: Row) -> str:
        return re.sub(r"blk_\d+", "blk", row.ours)

    names, kinds = {row.ours for row in adapted}, set(map(kind, adapted))
    return [row for row, _ in _rows(model) if row.ours not in names and kind(row) in kinds]


def _rows(model: Model) -> list[tuple[Row, keras.Variable]]:
    """Return the weights of a model with their names in transformers."""
    weights = named_weights(model)
    task = task_fields(model) if getattr(model, "has_head", False) else None
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


def _read_config(file: pathlib.Path) -> ConfigDict:
    """Read PEFT's configuration, with the keys `r` and `lora_alpha`."""
    fields = read_json_object(file)
    with errors_naming(file):
        kind = fields.get("peft_type")
        check_that(kind == "LORA", "peft_type", "'LORA'", kind)
        check_integer("r", fields.get("r"), 1)
        check_positive("lora_alpha", fields.get("lora_alpha"))
    further = [
        f"{name}={shown(value)}"
        for name, value in fields.items()
        if name not in _DESCRIPTIVE and value and (name, value) not in _NEUTRAL
    ]
    if further:
        raise ValueError(
            f"{os.fspath(file)!r} uses options of PEFT that are not supported: "
            f"{first_few(further)}. Merge the adapter with PEFT, and load the merged model."
        )
    return fields


def _origin(model: Model, kernels: Sequence[keras.Variable]) -> ConfigDict:
    """Describe the task and the weights that the updates of these kernels belong to."""
    digest = hashlib.sha256()
    for kernel in kernels:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(kernel), np.float32).data)
    task = {k: v for k, v in (task_fields(model) or {}).items() if k != "dropout"}
    return {"kernels_sha256": digest.hexdigest(), "task": task}


def _check_origin(model: Model, stored: NamedArrays, kernels: Sequence[keras.Variable]) -> None:
    """Raise `ValueError` if an adapter records another task or other weights than the model's."""
    if _METADATA not in stored.metadata:  # written by PEFT, whose BERT reads the pooler
        if isinstance(model, TaskModel) and model.pools and model.pooling == "mean":
            raise ValueError(
                f"{stored.source!r} is an adapter of PEFT, for a head that reads the pooler. "
                'Received: a model with pooling="mean". Use `pooling="cls"`.'
            )
        return
    try:
        found = _flat(dict(json.loads(stored.metadata[_METADATA])))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{stored.source!r} is damaged: it does not describe the model that it was trained on. "
            "Save the adapter again."
        ) from error
    expected = _flat(_origin(model, kernels))
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise ValueError(
                f"{stored.source!r} is an adapter for a different model: its {name} is "
                f"{shown(found.get(name))} instead of {shown(expected.get(name))}. Load the "
                "checkpoint that it was trained on, and use the same arguments for its task."
            )


def _flat(origin: ConfigDict) -> ConfigDict:
    """Return an origin with the fields of its task in place of the dictionary `task`."""
    return {"kernels_sha256": origin["kernels_sha256"], **dict(origin["task"])}
