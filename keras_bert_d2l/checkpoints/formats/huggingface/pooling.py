"""Read and write how sentence-transformers computes the embedding of a text.

Source: github.com/UKPLab/sentence-transformers, `modules.json` and the configuration of `Pooling`.
"""

import os
import pathlib

from keras_bert_d2l.checkpoints.formats.task_fields import TaskArguments
from keras_bert_d2l.checks import shown
from keras_bert_d2l.files import write_json
from keras_bert_d2l.reading import read_json, read_json_object

MODULES_FILE, POOLING_FILE = "modules.json", "1_Pooling/config.json"

POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}  # ours and theirs

_PREFIX = "pooling_mode_"
_MODULES = "sentence_transformers.models"


def read_pooling(path: pathlib.Path) -> TaskArguments | None:
    """Return the arguments of the `TextEmbedder` that computes the same embedding.

    A computation that a `TextEmbedder` does not have is returned under its own name, which
    `TextEmbedder` rejects.

    Args:
        path: The folder of the checkpoint.

    Returns:
        `pooling` and `normalize`, or `None` if the folder does not define an embedding.

    Raises:
        ValueError: A file is damaged or missing.
    """
    modules_file = path / MODULES_FILE
    if not modules_file.is_file():
        return None
    modules = read_json(modules_file)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ValueError(
            f"{os.fspath(modules_file)!r} must contain a list of objects. Received: "
            f"{shown(modules)}. Copy it again."
        )
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    steps = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if "Pooling" in kinds:
        steps = _modes(path, modules[kinds.index("Pooling")].get("path")) + steps
    elif not steps:
        return None
    return {"pooling": " and ".join(steps), "normalize": "Normalize" in kinds}


def _modes(path: pathlib.Path, name: object) -> list[str]:
    """Return the poolings that the configuration in the folder `name` of a checkpoint turns on."""
    modules_file = os.fspath(path / MODULES_FILE)
    if not isinstance(name, str) or os.path.isabs(name) or ".." in pathlib.PurePath(name).parts:
        raise ValueError(
            f"The module `Pooling` in {modules_file!r} must have the `path` of a folder beside "
            f"this file. Received: path={shown(name)}. Copy it again."
        )
    file = path / name / "config.json"
    if not file.is_file():
        raise ValueError(
            f"There is no file {os.fspath(file)!r}, which {modules_file!r} names. Copy it from the "
            "same source, or delete modules.json to choose the pooling yourself."
        )
    fields = read_json_object(file)
    if "pooling_mode" in fields:  # another form of the same field
        return [str(fields["pooling_mode"])]
    ours = {theirs: name for name, theirs in POOLINGS.items()}
    modes = [name for name, is_on in fields.items() if name.startswith(_PREFIX) and is_on is True]
    return [ours.get(mode.removeprefix(_PREFIX), mode) for mode in modes]


def write_pooling(folder: pathlib.Path, width: int, arguments: TaskArguments) -> None:
    """Write the files that define the embedding of a text.

    Args:
        folder: The folder of the checkpoint.
        width: The width of the model, D.
        arguments: `pooling` and `normalize` of the `TextEmbedder`.
    """
    modes = {_PREFIX + name: key == arguments["pooling"] for key, name in POOLINGS.items()}
    write_json(folder / POOLING_FILE, {"word_embedding_dimension": width, **modes})
    steps = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{_MODULES}.{kind}"}
        for index, (path, kind) in enumerate(steps.items())
    ]
    write_json(folder / MODULES_FILE, modules if arguments["normalize"] else modules[:-1])
