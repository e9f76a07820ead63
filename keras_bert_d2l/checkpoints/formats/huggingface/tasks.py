"""The fields of Hugging Face's `config.json` that describe the head of a task.

Source: github.com/huggingface/transformers, `models/bert/modeling_bert.py` and
`configuration_utils.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from keras_bert_d2l.checkpoints.formats.task_fields import TaskFields
from keras_bert_d2l.checkpoints.weights.tables import first_few

_HEADS = {  # the name of the head in each architecture
    "BertForSequenceClassification": "classifier",
    "BertForTokenClassification": "classifier",
    "BertForQuestionAnswering": "qa_outputs",
}
_ARCHITECTURES = {
    "SequenceClassifier": "BertForSequenceClassification",
    "SequenceRegressor": "BertForSequenceClassification",
    "TokenClassifier": "BertForTokenClassification",
    "QuestionAnswerer": "BertForQuestionAnswering",
}
_SINGLE, _MULTI = "single_label_classification", "multi_label_classification"
_REGRESSION = "regression"
_DEFAULT_NUM_LABELS = 2


def task_of(fields: Mapping[str, Any], names: Iterable[str], source: str) -> TaskFields | None:
    """Return the task of a folder, or `None` for a BERT without one.

    Args:
        fields: The fields of `config.json`.
        names: The names of the weights.
        source: The file of the weights, as messages name it.

    Raises:
        ValueError: The task of the head is not supported, or a field is damaged.
    """
    heads = [name for name in names if name.partition(".")[0] in _HEADS.values()]
    if not heads:
        return None
    architecture = next(iter(fields.get("architectures") or []), "")
    if {name.partition(".")[0] for name in heads} != {_HEADS.get(architecture)}:
        raise ValueError(
            f"{source!r} is a BERT with the head of a task, {first_few(heads)}, which cannot be "
            f"read for architectures={fields.get('architectures')!r}. Supported: {tuple(_HEADS)}. "
            "To load the encoder alone, save it with transformers: "
            "`BertModel.from_pretrained(folder).save_pretrained(other_folder)`."
        )
    if architecture == "BertForQuestionAnswering":
        return {"kind": "QuestionAnswerer"}
    dropout = fields.get("classifier_dropout")
    if dropout is None:
        dropout = fields.get("hidden_dropout_prob", 0.1)
    labels = _labels(fields)
    if architecture == "BertForTokenClassification":
        return {"kind": "TokenClassifier", "labels": labels, "dropout": dropout}
    problem = _problem_type(fields, len(labels))
    if problem == _REGRESSION:
        return {"kind": "SequenceRegressor", "labels": labels, "dropout": dropout}
    return {
        "kind": "SequenceClassifier",
        "labels": labels,
        "dropout": dropout,
        "multi_label": problem == _MULTI,
    }


def config_fields(task: TaskFields) -> dict[str, Any]:
    """Return the fields of `config.json` that describe a task.

    Raises:
        ValueError: Hugging Face's BERT has no such task.
    """
    kind = task["kind"]
    if kind not in _ARCHITECTURES:
        raise ValueError(
            f"Hugging Face's BERT has no model that is a {kind}, only {tuple(_ARCHITECTURES)}. "
            'Save it with format="native", or save the BERT that it was fine-tuned from.'
        )
    fields: dict[str, Any] = {"architectures": [_ARCHITECTURES[kind]]}
    if "labels" in task:
        fields["id2label"] = {str(number): name for number, name in enumerate(task["labels"])}
        fields["label2id"] = {name: number for number, name in enumerate(task["labels"])}
        fields["classifier_dropout"] = task["dropout"]
    if kind == "SequenceRegressor":
        fields["problem_type"] = _REGRESSION
    if kind == "SequenceClassifier":
        fields["problem_type"] = _MULTI if task["multi_label"] else _SINGLE
    return fields


def head_name(task: TaskFields) -> str:
    """Return Hugging Face's name of the head of a task."""
    return _HEADS[_ARCHITECTURES[task["kind"]]]


def _problem_type(fields: Mapping[str, Any], num_labels: int) -> str:
    problem = fields.get("problem_type")
    if problem is None:  # decided as transformers does at the first batch of integer labels
        return _REGRESSION if num_labels == 1 else _SINGLE
    if problem not in (_SINGLE, _MULTI, _REGRESSION):
        raise ValueError(
            f"`problem_type` must be one of {(_SINGLE, _MULTI, _REGRESSION)}. Received: "
            f"{problem!r:.80}."
        )
    return str(problem)


def _labels(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the labels in the order of their ids."""
    id2label = fields.get("id2label")
    if id2label is None:
        number = fields.get("num_labels", _DEFAULT_NUM_LABELS)
        return [f"LABEL_{index}" for index in range(number)]
    try:
        labels = [id2label[str(index)] for index in range(len(id2label))]
    except (KeyError, TypeError) as error:
        raise ValueError(
            "`id2label` must be an object with a name for each of the ids 0, 1, 2 and so on. "
            f"Received: {id2label!r:.120}."
        ) from error
    if not all(isinstance(label, str) for label in labels):
        raise ValueError(f"`id2label` must hold names. Received: {id2label!r:.120}.")
    return labels
