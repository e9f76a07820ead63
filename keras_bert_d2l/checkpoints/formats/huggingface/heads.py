"""The task of a checkpoint: its class in transformers, its head and its labels.

Source: github.com/huggingface/transformers, `models/`;
github.com/huggingface/sentence-transformers, `cross_encoder/`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from keras_bert_d2l.checkpoints.formats.checkpoint import unnamed_labels
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import ModelType
from keras_bert_d2l.checkpoints.weights import first_few
from keras_bert_d2l.checks import check_choice, check_type, shown, wrong
from keras_bert_d2l.contract.task import AnyTask, HuggingFace, task_of_kind, tasks
from keras_bert_d2l.types import ConfigDict

_POOLING = "classifier_pooling"
_CALIBRATION = "calibration"  # our own object, which transformers ignores
# The activation that sentence-transformers before version 4 records for a `CrossEncoder`.
_CROSS_ENCODER = "sentence_transformers"  # an object of `config.json`, since version 4
SCORE_FIELD = "sbert_ce_default_activation_function"
LINEAR = "torch.nn.modules.linear.Identity"
_SIGMOID = "torch.nn.modules.activation.Sigmoid"
_OF_CRF = ("crf", "valid_tags")


class Layers(NamedTuple):
    """Where transformers has the layers of a task model.

    Attributes:
        architecture: The class.
        hidden: The layer between `[CLS]` and the head.
        head: The head.
        dropout: The field for the dropout before the head, and its default; see `ModelType`.
    """

    architecture: str
    hidden: str
    head: str
    dropout: tuple[str, float | None]


def layers_of(task: ConfigDict, kind: ModelType) -> Layers:
    """Return where transformers has the layers of a task model.

    Raises:
        ValueError: It has no model for the task.
    """
    return _layers_of(task_of_kind(task["kind"]), kind)


def task_of(
    fields: ConfigDict,
    kind: ModelType,
    shapes: Mapping[str, tuple[int, ...]],
    source: str,
    stored_class: str | None = None,
    asked: str = "",
) -> tuple[ConfigDict | None, str]:
    """Return the task of a checkpoint, or `None` for a BERT without a task.

    The second result is empty, or the reason why the file does not name the labels. They then have
    the names of `unnamed_labels`.

    Args:
        fields: The fields of `config.json`.
        kind: The model type.
        shapes: The shapes of the weights by name.
        source: The file of the weights, for messages.
        stored_class: The class that the file of the weights names. `fields` may have that of the
            model that it was fine-tuned from.
        asked: The class of the task that the caller names. It is that of a head whose class the
            files do not name.

    Raises:
        ValueError: The task of the head is not supported, or a field is damaged.
    """
    known = [task for task in tasks().values() if task.huggingface and task.huggingface.head]
    layers = {one.architecture: one for one in (_layers_of(task, kind) for task in known)}
    if stored_class in layers or (stored_class and fields.get("architectures") is None):
        fields = {**fields, "architectures": [stored_class]}
    if not fields.get("architectures"):
        names = [
            _layers_of(task, kind).architecture for task in known if asked == task.model.__name__
        ]
        fields = {**fields, "architectures": names}
    own = _layers_in(fields, kind, layers, shapes, source)
    if own is None:
        return None, ""
    shape = shapes.get(f"{own.head}.bias", ())
    fitting = [task for task in known if _layers_of(task, kind) == own]
    labels = _labels(fields, shape)
    problem = fields.get("problem_type")
    if len(fitting) > 1:  # such as classification and regression
        problems = tuple(one for task in fitting for one in _names(task).problems)
        if problem is None:  # same rule as transformers for a first batch of integer labels
            is_score = len(labels[0]) == 1
            problem = "regression" if is_score else "single_label_classification"
        check_choice("problem_type", problem, problems)
        fitting = [task for task in fitting if problem in _names(task).problems]
    is_encoder = len(labels[0]) == 1 and bool(fields.get(_CROSS_ENCODER))
    best = [task for task in fitting if task.model.__name__ == asked]
    best += [task for task in fitting if task.model.ranks == is_encoder]
    fitting = best or fitting
    model = fitting[0].model
    values = {
        "multi_label": problem in _names(fitting[0]).problems[1:],
        "long_texts": fields.get("long_texts", "cut"),
        "dropout": _dropout(fields, kind, own),
        "pooling": fields.get(_POOLING, "cls") if kind.has_pooling else "cls",
        "activation": _activation(fields, fitting[0]),
        "max_len": fields.get("max_len"),
        **{name: fields.get(name, False) for name in _OF_CRF},
    }
    check_choice(_POOLING, values["pooling"], ("cls", "mean"))
    values["labels"], unnamed = labels if "labels" in model.fields else ([], "")
    named = {name: values[name] for name in model.fields}
    calibration = check_type(_CALIBRATION, fields.get(_CALIBRATION, {}), dict)
    named |= {name: calibration[name] for name in model.calibrated if name in calibration}
    return {"kind": model.__name__, **named}, unnamed


def _layers_in(
    fields: ConfigDict,
    kind: ModelType,
    layers: Mapping[str, Layers],
    shapes: Mapping[str, tuple[int, ...]],
    source: str,
) -> Layers | None:
    """Return the layers of a checkpoint's class, of those by class, or `None` without a head.

    Raises:
        ValueError: The class is unknown, or the weights have another head.
    """
    parts = {name: one.head.partition(".")[0] for name, one in layers.items()}
    heads = [name for name in shapes if name.partition(".")[0] in parts.values()]
    found = {name.partition(".")[0] for name in heads}
    if not found:
        return None
    architectures = fields.get("architectures")
    match architectures:
        case [str(name), *_] if found == {parts.get(name)}:
            return layers[name]
    classes = [name for name, part in parts.items() if found == {part}]
    raise ValueError(
        f"{source!r} has a task head, {first_few(heads)}. In config.json, `architectures` must "
        f"name its class, one of {classes or [*layers]}. Received: {shown(architectures)}. To load "
        f"the encoder alone, save it with transformers: `{kind.title}Model` (in TensorFlow, "
        f"`TF{kind.title}Model`)`.from_pretrained(folder).save_pretrained(other_folder)`."
    )


def fields_of_task(task: ConfigDict, kind: ModelType) -> ConfigDict:
    """Return the fields of `config.json` that describe a task.

    Raises:
        ValueError: transformers has no model for the task.
    """
    names = _names(task_of_kind(task["kind"]))
    layers = layers_of(task, kind)
    if layers.architecture.removeprefix(kind.title) in kind.lacks:
        raise ValueError(
            f"transformers has no class {layers.architecture!r}. Save the {task['kind']} in the "
            "native format, export it, or start from a DeBERTa-v3."
        )
    fields: ConfigDict = {"architectures": [layers.architecture]}
    if "labels" in task:
        fields["id2label"] = {str(number): name for number, name in enumerate(task["labels"])}
        fields["label2id"] = {name: number for number, name in enumerate(task["labels"])}
    if "dropout" in task:
        fields[layers.dropout[0]] = task["dropout"]
    if names.head and "pooling" in task and kind.has_pooling:
        fields[_POOLING] = task["pooling"]
    if task.get("long_texts", "cut") != "cut":
        fields["long_texts"] = task["long_texts"]  # transformers ignores it and truncates
    fields |= {name: True for name in _OF_CRF if task.get(name)}  # ignored by transformers, too
    calibrated = task_of_kind(task["kind"]).model.calibrated.keys() & task.keys()
    if calibrated:
        fields[_CALIBRATION] = {name: task[name] for name in sorted(calibrated)}
    if "activation" in task:
        activation = LINEAR if task["activation"] == "linear" else _SIGMOID
        found = {_CROSS_ENCODER: {"activation_fn": activation}}
        fields |= found if task_of_kind(task["kind"]).model.ranks else {SCORE_FIELD: activation}
    if names.problems:
        fields["problem_type"] = names.problems[task.get("multi_label", False)]
    return fields


def check_pooling(task: ConfigDict, kind: ModelType) -> None:
    """Raise a `ValueError` if the input of the head differs from that in transformers."""
    has_head = bool(_names(task_of_kind(task["kind"])).head)
    if has_head and task.get("pooling") == "mean" and not kind.has_pooling:
        raise ValueError(
            f"In Hugging Face's format, the head of a {task['kind']} reads the pooler. Received: "
            'pooling="mean". Save it in the native format, export it as ONNX, or train a model '
            'with pooling="cls".'
        )


def _names(task: AnyTask) -> HuggingFace:
    """Return what transformers calls a model for a task.

    Raises:
        ValueError: It has no such model.
    """
    if task.huggingface is None:
        raise ValueError(
            f"Hugging Face's format has no model for the task {task.name!r}. Choose another format."
        )
    return task.huggingface


def _layers_of(task: AnyTask, kind: ModelType) -> Layers:
    names = _names(task)
    ending = names.architecture.removeprefix("Bert")
    usual = (str(kind.names["hidden"]), names.head)
    dropout = kind.dropouts.get(ending, kind.dropout)
    return Layers(kind.title + ending, *kind.heads.get(ending, usual), dropout)


def _dropout(fields: ConfigDict, kind: ModelType, layers: Layers) -> object:
    """Return the rate of the dropout before a head: that of the encoder unless it has its own."""
    rate = fields.get(*layers.dropout)
    if rate is None:
        of_encoder = {ours: (name, default) for name, (ours, default) in kind.fields.items()}
        rate = fields.get(*of_encoder.get("dropout", ("dropout", 0.0)))  # ModernBERT has none
    return rate


def _activation(fields: ConfigDict, task: AnyTask) -> str:
    """Return the activation of a regressor's scores, as a `CrossEncoder` applies it.

    Raises:
        ValueError: The task does not support it.
    """
    encoder, is_applied = fields.get(_CROSS_ENCODER), "activation" in task.model.fields
    found = encoder.get("activation_fn") if isinstance(encoder, dict) else None
    found = found or fields.get(SCORE_FIELD)
    is_encoder = task.model.ranks or (encoder and is_applied)
    if not found and is_encoder:  # as in a `CrossEncoder` with one label
        found = _SIGMOID
    names = {None: "linear", LINEAR: "linear", _SIGMOID: "sigmoid"}
    if not is_applied:  # the scores are probabilities, whatever it is
        names = {None: "linear", LINEAR: "linear", "torch.nn.modules.activation.Softmax": "linear"}
    if not isinstance(found, str | None) or found not in names:
        raise wrong(SCORE_FIELD, f"one of {tuple(names)}", found)
    return names[found]


def _labels(fields: ConfigDict, shape: tuple[int, ...]) -> tuple[list[str], str]:
    """Return the label names in the order of their ids, and why they are missing, if they are.

    `shape` is that of the head's bias.
    """
    id2label, number = fields.get("id2label"), sum(shape[:1])
    if id2label is None:
        found = fields.get("num_labels", 2)
        problem = wrong("num_labels", f"{number}, the number of outputs of the head", found)
        return unnamed_labels(number), "" if found == number else str(problem)
    names = id2label if isinstance(id2label, dict) else {}
    values = [names.get(str(id), "") for id in range(number)]
    labels = [str(name) for name in values if isinstance(name, str | int | float) and name != ""]
    expected = f"an object with different names for the ids 0 to {number - 1} of the head's outputs"
    if len(set(labels)) == len(names) == number:
        return labels, ""
    return unnamed_labels(number), str(wrong("id2label", expected, id2label))
