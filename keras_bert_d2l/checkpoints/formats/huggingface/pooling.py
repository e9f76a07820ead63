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
        ValueError: A file is damaged.
    """
    modules_file, pooling_file = path / MODULES_FILE, path / POOLING_FILE
    if not (modules_file.is_file() and pooling_file.is_file()):
        return None
    modules, fields = read_json(modules_file), read_json_object(pooling_file)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ValueError(
            f"{os.fspath(modules_file)!r} must contain a list of objects. Received: "
            f"{shown(modules)}. Copy it again."
        )
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    ours = {theirs: name for name, theirs in POOLINGS.items()}
    modes = [name for name, is_on in fields.items() if name.startswith(_PREFIX) and is_on is True]
    steps = [ours.get(mode.removeprefix(_PREFIX), mode) for mode in modes]
    if "pooling_mode" in fields:  # another form of the same field
        steps = [str(fields["pooling_mode"])]
    steps += [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    return {"pooling": " and ".join(steps), "normalize": "Normalize" in kinds}


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
