"""Read the files that describe a model of sentence-transformers.

`modules.json` lists the steps from a text to its vector, each with the folder of its own
configuration. The first one is a BERT, in the folder itself or, in old models, in
`0_Transformer/`.

Source: github.com/huggingface/sentence-transformers, `base/model.py`, `base/modules/` and
`sentence_transformer/modules/`.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any, cast, get_args

import numpy as np

from keras_bert_d2l.checkpoints.array_files import NamedArrays, open_safetensors
from keras_bert_d2l.checkpoints.formats.checkpoint import step_weights
from keras_bert_d2l.checkpoints.torch_files import open_torch
from keras_bert_d2l.checks import check_bool, check_integer, check_that, is_integer, shown
from keras_bert_d2l.layers.pooling import Similarity
from keras_bert_d2l.layers.sparse import SparsePooling
from keras_bert_d2l.reading import errors_naming, has_file, read_json, read_json_object
from keras_bert_d2l.types import ConfigDict

OPTIONS_FILE = "tokenizer_config.json"
MODULES_FILE, POOLING_FILE = "modules.json", "1_Pooling/config.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
# Their names of our poolings, in the order in which older versions concatenate the vectors.
POOLINGS = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
    "last": "lasttoken",
}
WEIGHTS_FILE, TORCH_FILE = "model.safetensors", "pytorch_model.bin"
STATIC = "StaticEmbedding"

MODEL_FILE = "config_sentence_transformers.json"
_PREFIX, _VECTOR = "pooling_mode_", "sentence_embedding"
# The names of their activation functions, classes of PyTorch, by ours.
ACTIVATIONS = {
    "linear": "torch.nn.modules.linear.Identity",
    **{
        name.lower(): f"torch.nn.modules.activation.{name}"
        for name in ("Tanh", "GELU", "ReLU", "SiLU", "Sigmoid")
    },
}
OF_DENSE = ("linear.weight", "linear.bias")  # in the order of ours
# Fields of the BERT's own configuration that are read or have no effect, and values of others.
_READ = ("do_lower_case", "max_seq_length", "unpad_inputs")
_OF_CROSS_ENCODER = (*_READ, "modality_config", "transformer_task", "module_output_name")
_SUPPORTED = {
    "modality_config": {"method": "forward", "method_output_name": "last_hidden_state"},
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
}
_OF_LOGITS = {  # what differs for a `SparseEncoder`
    "modality_config": {"method": "forward", "method_output_name": "logits"},
    "transformer_task": "fill-mask",
}


def transformer_folder(path: pathlib.Path) -> pathlib.Path:
    """Return the folder of the BERT in the folder of a checkpoint; usually the same."""
    kinds = {_kind(module): module for module in _modules(path)[::-1]}  # the first of a kind
    return path / kinds.get("Transformer", kinds.get(STATIC, {"path": ""}))["path"]


def is_static(path: pathlib.Path) -> bool:
    """Return whether the first module of a folder is a `StaticEmbedding`, a table of vectors.

    Raises:
        ValueError: It is neither that nor a BERT, but for example a `Router` of several models.
    """
    kinds = [_kind(module) for module in _modules(path)]
    is_table = kinds[:1] == [STATIC]
    with errors_naming(path / MODULES_FILE):
        is_right = is_table or not kinds or "Transformer" in kinds
        check_that(is_right, "type", "that of a Transformer in the first module", kinds[:1])
    return is_table


def transformer_fields(path: pathlib.Path) -> ConfigDict:
    """Return how texts become rows: whether they are lowercased first, and the longest row.

    Args:
        path: The folder of the checkpoint.

    Returns:
        `do_lower_case`, and `max_seq_length`, which may be `None`; nothing if the folder is not one
        of sentence-transformers.

    Raises:
        ValueError: A file is damaged.
    """
    if not _modules(path):
        return {}
    file = transformer_folder(path) / TRANSFORMER_FILE
    fields = {"do_lower_case": False, "max_seq_length": None, **fields_of(file)}
    longest = fields["max_seq_length"]
    if longest is None:
        longest = fields_of(file.with_name(OPTIONS_FILE)).get("model_max_length")
    with errors_naming(file):
        check_bool("do_lower_case", fields["do_lower_case"])
        if longest is not None:
            check_integer("max_seq_length", longest, 3)
    kinds = fields.get("modality_config")
    texts = {"modality_config": kinds.get("text")} if isinstance(kinds, dict) else {}
    return {**fields, **texts, "max_seq_length": longest}


def read_embedding(
    path: pathlib.Path, most: int, options: ConfigDict
) -> tuple[ConfigDict | None, Mapping[str, np.ndarray]]:
    """Return the arguments of the `TextEmbedder` that computes the same embedding.

    Args:
        path: The folder of the checkpoint.
        most: Maximum number of tokens of the model.
        options: The fields of the model's `config.json`.

    Returns:
        The arguments, or `None` if the folder does not define an embedding; and the weights of its
        steps, by our names. If a `TextEmbedder` cannot compute the embedding, `unsupported` is one
        of the arguments, and names the reasons.

    Raises:
        ValueError: A file is damaged or missing.
    """
    modules = _modules(path)
    steps: list[Any] = []
    found: ConfigDict = {"steps": steps}
    arrays: dict[str, np.ndarray] = {}
    problems = [
        problem
        for number, module in enumerate(modules)
        for problem in _read_module(path, module, number, found, arrays)
    ]
    if "pooling" not in found and not problems:
        return None, {}
    found["normalize"] = steps[-1:] == ["normalize"]
    if found["normalize"]:
        steps.pop()
    problems += _read_model(path, found)
    max_len = transformer_fields(path)["max_seq_length"]
    found["max_len"] = max_len if max_len and max_len < most else None
    found["long_texts"] = options.get("long_texts", "cut")
    return found | ({"unsupported": " and ".join(problems)} if problems else {}), arrays


def read_sparse(path: pathlib.Path, most: int) -> SparsePooling | None:
    """Return how a `SparseEncoder` pools the logits, or `None` if the folder is not one.

    Args:
        path: The folder of the checkpoint.
        most: Maximum number of tokens of the model.

    Raises:
        ValueError: A file is damaged, or the folder has other modules than those of SPLADE, such
            as `SparseAutoEncoder` (CSR).
    """
    modules, fields = _modules(path), fields_of(path / MODEL_FILE)
    kinds = [_kind(module) for module in modules]
    if fields.get("model_type") != "SparseEncoder" and "SpladePooling" not in kinds:
        return None
    with errors_naming(path / MODULES_FILE):
        usual = ["Transformer", "SpladePooling"]
        check_that(kinds == usual, "type", f"{usual} for a SparseEncoder", kinds)
    with errors_naming(transformer_folder(path) / TRANSFORMER_FILE):
        found = transformer_fields(path)
        for name, expected in {**_SUPPORTED, **_OF_LOGITS}.items():
            value = found.get(name, expected)
            check_that(value == expected, name, shown(expected), value)
    prompts = _prompts(path)[0]
    with errors_naming(path / MODEL_FILE):
        check_that(not any(prompts.values()), "prompts", "empty for a SparseEncoder", prompts)
    file = path / modules[1]["path"] / "config.json"
    pooling = read_json_object(file)
    with errors_naming(file):
        return SparsePooling(
            *(pooling.get("pooling_strategy", "max"), pooling.get("activation_function", "relu")),
            max_len=min(found["max_seq_length"] or most, most),
            top_k=fields.get("max_active_dims"),
        )


def read_cross_encoder(path: pathlib.Path, most: int, fields: ConfigDict) -> ConfigDict:
    """Return the fields of `config.json` with which a `CrossEncoder` reads a folder.

    Args:
        path: The folder of the checkpoint.
        most: Maximum number of tokens of the model.
        fields: The fields of its `config.json`.

    Returns: also `max_len`, or `None` if it is that of the model; and in `sentence_transformers`
        the fields of a file of version 6.

    Raises:
        ValueError: A `CrossEncoder` of version 6 does more than score pairs.
    """
    of_bert = transformer_fields(path)
    limit = of_bert or fields_of(path / OPTIONS_FILE)
    max_len = limit.get("max_seq_length", limit.get("model_max_length"))
    fields = {**fields, "max_len": max_len if is_integer(max_len) and max_len < most else None}
    own, modules = fields_of(path / MODEL_FILE), _modules(path)
    if not modules or own.get("model_type") != "CrossEncoder":
        return fields
    others = [str(module.get("type")) for module in modules[1:]]
    others += [name for name, x in of_bert.items() if x and name not in _OF_CROSS_ENCODER]
    check_that(not others, "modules", "one Transformer in a CrossEncoder, as usual", others)
    prompt = _prompts(path)[1]
    check_that(not prompt, "default_prompt_name", "null for a CrossEncoder", prompt)
    old = fields.get("sentence_transformers")
    return {**fields, "sentence_transformers": {**(old if isinstance(old, dict) else {}), **own}}


def _prompts(path: pathlib.Path) -> tuple[ConfigDict, str]:
    """Return the prompts of a folder by their names, and the default one."""
    fields = fields_of(path / MODEL_FILE)
    prompts, name = fields.get("prompts") or {}, fields.get("default_prompt_name")
    with errors_naming(path / MODEL_FILE):
        is_object = isinstance(prompts, dict)
        is_object = is_object and all(isinstance(x or "", str) for x in prompts.values())
        check_that(is_object, "prompts", "an object of texts by names", prompts)
        prompts = {key: text or "" for key, text in prompts.items()}
        known = [None, "query", "document", *prompts]  # the two are empty if they are not defined
        expected = f"null or one of {shown(known[1:])}"
        check_that(name in known, "default_prompt_name", expected, name)
    return prompts, prompts.get(name, "")


def fields_of(file: pathlib.Path, *most_bytes: int) -> ConfigDict:
    """Return the fields of a JSON file, or none if there is no such file."""
    return read_json_object(file, *most_bytes) if has_file(file) else {}


def _modules(path: pathlib.Path) -> list[ConfigDict]:
    """Return the modules of a folder, or none if it is not one of sentence-transformers."""
    file = path / MODULES_FILE
    modules = read_json(file) if has_file(file) else []
    with errors_naming(file):
        are_modules = isinstance(modules, list) and all(map(_has_place, modules))
        expected = "a list of objects, each with the `path` of a folder beside this file"
        check_that(are_modules, "modules", expected, modules)
    return cast(list[ConfigDict], modules)


def _has_place(module: object) -> bool:
    name = module.get("path") if isinstance(module, dict) else None
    is_inside = isinstance(name, str) and ".." not in pathlib.PurePath(name).parts
    return is_inside and not os.path.isabs(str(name))


def _kind(module: ConfigDict) -> str:
    return str(module.get("type")).rpartition(".")[2].removeprefix("MLM")  # of old SPLADE folders


def _read_module(
    path: pathlib.Path,
    module: ConfigDict,
    number: int,
    found: ConfigDict,
    arrays: dict[str, np.ndarray],
) -> list[str]:
    """Add what one module does to the arguments `found`, and its weights to `arrays`.

    Returns: what a `TextEmbedder` cannot compute.
    """
    kind, folder = _kind(module), path / module["path"]
    file = folder / "config.json"
    if not str(module.get("type")).startswith("sentence_transformers."):  # code in the folder
        return [shown(module.get("type"))]
    if number == 0 and kind == "Transformer":
        return [
            f"{kind} with {name}={shown(value)}"
            for name, value in transformer_fields(path).items()
            if value and name not in _READ and value != _SUPPORTED.get(name)
        ]
    if number == 0 and kind == STATIC:
        found |= {"pooling": "mean", "include_special": False}
        return []
    if kind == "Pooling" and number == 1:
        fields, ours = read_json_object(file), {theirs: name for name, theirs in POOLINGS.items()}
        modes = _modes(fields)
        found["include_prompt"] = fields.get("include_prompt", True)
        kinds = [ours.get(mode, mode) for mode in modes]
        found["pooling"] = kinds if kinds[1:] else kinds[0]
        return [f"pooling_mode={shown(mode)}" for mode in modes if mode not in ours]
    if kind == "Dropout":  # it has no effect when a text is embedded
        return []
    if "pooling" not in found or kind not in ("Dense", "Normalize"):
        return [kind if number else f"{kind} in the first module"]
    fields = fields_of(file)
    name = fields.get("module_input_name", _VECTOR)
    result = fields.get("module_output_name") or name
    problems = [] if name == result == _VECTOR else [f"{kind} of {shown(name)} as {shown(result)}"]
    if kind == "Normalize":
        found["steps"].append("normalize")
        return problems
    activation = str(fields.get("activation_function", ACTIVATIONS["tanh"]))
    names = {theirs.rpartition(".")[2]: ours for ours, theirs in ACTIVATIONS.items()}
    function = names.get(activation.rpartition(".")[2] * activation.startswith("torch."))
    if function is None:
        problems.append(f"Dense with activation_function={shown(activation)}")
    if fields.get("use_residual"):
        problems.append("Dense with use_residual=True")
    units, use_bias = fields.get("out_features"), fields.get("bias", True)
    found["steps"].append(
        {"units": units, "activation": function or "linear", "use_bias": use_bias}
    )
    if not problems:
        with errors_naming(file):
            ours_of_step = step_weights(found)[-1]
        for name, theirs in zip(ours_of_step, OF_DENSE, strict=False):
            arrays[name] = read_array(open_module(folder), theirs).T
    return problems


def open_module(folder: pathlib.Path) -> NamedArrays:
    """Open the weights of a module, in safetensors or of PyTorch."""
    if has_file(folder / TORCH_FILE) and not has_file(folder / WEIGHTS_FILE):
        return open_torch([folder / TORCH_FILE])
    return open_safetensors([folder / WEIGHTS_FILE])


def read_array(stored: NamedArrays, name: str) -> np.ndarray:
    """Return an array of a module; raise `ValueError` if it is missing or not finite."""
    if name not in stored.shapes:
        raise ValueError(f"{stored.source!r} has no weight {name!r}. Copy it again.")
    return stored.read_finite(name)


def _read_model(path: pathlib.Path, found: ConfigDict) -> list[str]:
    """Add what the file of the whole model says; return what a `TextEmbedder` cannot compute."""
    fields = fields_of(path / MODEL_FILE)
    found["prompts"], default = _prompts(path)
    found["default_prompt_name"] = fields.get("default_prompt_name") if default else None
    found["similarity"] = fields.get("similarity_fn_name") or "cosine"
    found["truncate_dim"] = fields.get("truncate_dim")
    kind = fields.get("model_type") or "SentenceTransformer"
    problems = [] if kind == "SentenceTransformer" else [f"model_type={shown(kind)}"]
    if found["similarity"] not in get_args(Similarity):
        problems.append(f"similarity_fn_name={shown(found['similarity'])}")
    return problems


def _modes(fields: ConfigDict) -> list[str]:
    """Return the poolings that a configuration turns on, by their names."""
    if "pooling_mode" in fields:  # since version 6
        modes = fields["pooling_mode"]
        return [str(mode) for mode in (modes if isinstance(modes, list) else [modes])]
    known = {old_name(theirs): theirs for theirs in POOLINGS.values()}
    on = [name for name, is_on in fields.items() if name.startswith(_PREFIX) and is_on is True]
    modes = [theirs for name, theirs in known.items() if name in on]
    return [*modes, *(name for name in on if name not in known)] or ["mean"]


def old_name(mode: str) -> str:
    """Return the field that turns on a pooling before version 6."""
    ending = {"cls": "cls_token", "lasttoken": "lasttoken", "mean_sqrt_len_tokens": mode}
    return _PREFIX + ending.get(mode, f"{mode}_tokens")
