"""Read and write the files that describe a model of sentence-transformers.

`modules.json` lists the steps from a text to its vector, each with the folder of its own
configuration. The first one is a BERT, in the folder itself or, in old models, in
`0_Transformer/`.

Source: github.com/huggingface/sentence-transformers, `base/model.py`, `base/modules/` and
`sentence_transformer/modules/pooling.py`.
"""

import os
import pathlib
import warnings

from keras_bert_d2l.checks import check_bool, check_integer, check_that, is_integer, shown
from keras_bert_d2l.files import write_json
from keras_bert_d2l.reading import errors_naming, has_file, read_json, read_json_object
from keras_bert_d2l.types import ConfigDict

OPTIONS_FILE = "tokenizer_config.json"
MODULES_FILE, POOLING_FILE = "modules.json", "1_Pooling/config.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}  # ours and theirs

_MODEL_FILE = "config_sentence_transformers.json"
_PREFIX, _VECTOR = "pooling_mode_", "sentence_embedding"
# Of `config_sentence_transformers.json`: fields that change results, with the usual value.
_OF_MODEL = {"model_type": "SentenceTransformer", "truncate_dim": None}
_OF_MODEL["similarity_fn_name"] = "cosine"
_MODULES = "sentence_transformers.models"
_NO_EFFECT = ("Dropout",)  # when a text is embedded
# Fields of the BERT's own configuration that are read or have no effect, and values of others.
_READ = ("do_lower_case", "max_seq_length", "unpad_inputs")
_OF_CROSS_ENCODER = (*_READ, "modality_config", "transformer_task", "module_output_name")
_SUPPORTED = {
    "modality_config": {"method": "forward", "method_output_name": "last_hidden_state"},
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
}


def transformer_folder(path: pathlib.Path) -> pathlib.Path:
    """Return the folder of the BERT in the folder of a checkpoint; usually the same."""
    kinds = {str(module.get("type")).rpartition(".")[2]: module for module in _modules(path)}
    return path / kinds.get("Transformer", {"path": ""})["path"]


def check_modules(path: pathlib.Path) -> None:
    """Raise a `ValueError` if a folder of sentence-transformers has no BERT.

    Examples are a `StaticEmbedding`, a table of vectors, and a `Router` with several models.
    """
    types = [str(module.get("type")) for module in _modules(path)]
    is_right = not types or any(name.endswith(".Transformer") for name in types)
    with errors_naming(path / MODULES_FILE):
        check_that(is_right, "type", "that of a Transformer in the first module", types[:1])


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
    file, name = transformer_folder(path) / TRANSFORMER_FILE, "max_seq_length"
    fields = {"do_lower_case": False, name: None, **fields_of(file)}
    with errors_naming(file):
        check_bool("do_lower_case", fields["do_lower_case"])
    longest = fields[name]
    if longest is None:
        file, name = file.with_name(OPTIONS_FILE), "model_max_length"
        longest = fields_of(file).get(name)
    if longest is not None:
        with errors_naming(file):
            check_integer(name, longest, 3)
    kinds = fields.get("modality_config")
    texts = {"modality_config": kinds.get("text")} if isinstance(kinds, dict) else {}
    return {**fields, **texts, "max_seq_length": longest}


def read_pooling(path: pathlib.Path, most: int, options: ConfigDict) -> ConfigDict | None:
    """Return the arguments of the `TextEmbedder` that computes the same embedding.

    If a `TextEmbedder` cannot compute it, `pooling` describes the computation and is not one of
    `POOLINGS`.

    Args:
        path: The folder of the checkpoint.
        most: Maximum number of tokens of the model.
        options: The fields of the model's `config.json`.

    Returns:
        `pooling`, `normalize`, `max_len` and `long_texts`, or `None` if the folder does not define
        an embedding.

    Raises:
        ValueError: A file is damaged or missing.
    """
    modules = _modules(path)
    steps = [step for number, module in enumerate(modules) for step in _steps(path, module, number)]
    if not steps:
        return None
    fields = fields_of(path / _MODEL_FILE)
    found = {name: fields.get(name) or usual for name, usual in _OF_MODEL.items()}
    if steps[1:] == ["Normalize"] and found["similarity_fn_name"] == "dot":
        found["similarity_fn_name"] = "cosine"  # of vectors of length 1
    steps += [f"{name}={shown(value)}" for name, value in found.items() if value != _OF_MODEL[name]]
    normalize = steps[1:] == ["Normalize"]
    prompt = _prompts(path)[1]
    if prompt and "include_prompt=False" not in steps:
        warnings.warn(
            f"The model in {os.fspath(path)!r} puts {shown(prompt)} before each text by default. "
            "This package does not: put it there yourself to get the same vectors.",
            stacklevel=5,
        )
    max_len = transformer_fields(path)["max_seq_length"]
    return {
        "pooling": steps[0] if normalize else " and ".join(steps),
        "normalize": normalize,
        "max_len": max_len if max_len and max_len < most else None,
        "long_texts": options.get("long_texts", "cut"),
    }


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
    own, modules = fields_of(path / _MODEL_FILE), _modules(path)
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
    fields = fields_of(path / _MODEL_FILE)
    prompts, name = fields.get("prompts") or {}, fields.get("default_prompt_name")
    with errors_naming(path / _MODEL_FILE):
        check_that(isinstance(prompts, dict), "prompts", "an object of texts by names", prompts)
        check_that(name is None or isinstance(name, str), "default_prompt_name", "a name", name)
    return prompts, prompts.get(name, "")


def fields_of(file: pathlib.Path, *most_bytes: int) -> ConfigDict:
    """Return the fields of a JSON file, or none if there is no such file."""
    return read_json_object(file, *most_bytes) if has_file(file) else {}


def _modules(path: pathlib.Path) -> list[ConfigDict]:
    """Return the modules of a folder, or none if it is not one of sentence-transformers."""
    file = path / MODULES_FILE
    modules = read_json(file) if has_file(file) else []
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ValueError(
            f"{os.fspath(file)!r} must contain a list of objects. Received: {shown(modules)}. "
            "Copy it again."
        )
    for module in modules:
        name = module.get("path")
        if not isinstance(name, str) or os.path.isabs(name) or ".." in pathlib.PurePath(name).parts:
            raise ValueError(
                f"Each module in {os.fspath(file)!r} must have the `path` of a folder beside this "
                f"file. Received: path={shown(name)}. Copy it again."
            )
    return modules


def _steps(path: pathlib.Path, module: ConfigDict, number: int) -> list[str]:
    """Return the steps of one module from the encoded tokens to the vector of a text."""
    package, _, kind = str(module.get("type")).rpartition(".")
    if package.partition(".")[0] != "sentence_transformers":  # code in the folder
        return [shown(module.get("type"))]
    folder = path / module["path"]
    if kind == "Transformer" and number == 0:
        return [
            f"{kind} with {name}={shown(value)}"
            for name, value in transformer_fields(path).items()
            if value and name not in _READ and value != _SUPPORTED.get(name)
        ]
    if kind == "Pooling":
        if not has_file(file := folder / "config.json"):
            raise ValueError(f"There is no file {os.fspath(file)!r}, which {MODULES_FILE} names.")
        fields = read_json_object(file)
        modes = _modes(fields)
        if fields.get("include_prompt") is False and any(_prompts(path)[0].values()):
            modes.append("include_prompt=False")
        return modes
    if kind == "Normalize":
        names = fields_of(folder / "config.json")
        name = names.get("module_input_name", _VECTOR)
        result = names.get("module_output_name") or name
        return [
            kind if name == result == _VECTOR else f"{kind} of {shown(name)} as {shown(result)}"
        ]
    return [] if kind in _NO_EFFECT else [kind]


def _modes(fields: ConfigDict) -> list[str]:
    """Return the poolings that a configuration turns on."""
    if "pooling_mode" in fields:  # since version 6
        modes = fields["pooling_mode"]
        return [str(mode) for mode in (modes if isinstance(modes, list) else [modes])]
    ours = {theirs: name for name, theirs in POOLINGS.items()}
    modes = [name for name, is_on in fields.items() if name.startswith(_PREFIX) and is_on is True]
    return [ours.get(mode.removeprefix(_PREFIX), mode) for mode in modes] or ["mean"]


def write_pooling(folder: pathlib.Path, width: int, max_len: int, arguments: ConfigDict) -> None:
    """Write the files that define the embedding of a text.

    Args:
        folder: The folder of the checkpoint.
        width: The width of the model, D.
        max_len: Maximum number of tokens of the model.
        arguments: `pooling`, `normalize` and `max_len` of the `TextEmbedder`.
    """
    max_len = arguments.get("max_len") or max_len
    # The options of the tokenizer contain whether it lowercases.
    write_json(folder / TRANSFORMER_FILE, {"max_seq_length": max_len, "do_lower_case": False})
    modes = {_PREFIX + name: key == arguments["pooling"] for key, name in POOLINGS.items()}
    write_json(folder / POOLING_FILE, {"word_embedding_dimension": width, **modes})
    steps = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_MODULES}.{kind}"}
        for index, (path, kind) in enumerate(steps.items())
    ]
    write_json(folder / MODULES_FILE, modules if arguments["normalize"] else modules[:-1])
