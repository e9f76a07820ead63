"""Hugging Face's BERTs with the head of a task: what `config.json` says of it, in and out.

Source: github.com/huggingface/transformers, `models/bert/modeling_bert.py` and
`configuration_utils.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from keras_bert_d2l.checkpoints.formats.state_dicts import dense
from keras_bert_d2l.checkpoints.weights.transfer import Row, first

_HEADS = {  # by the architecture, and what its head is called
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


def task_of(fields: Mapping[str, Any], names: Iterable[str], source: str) -> dict[str, Any] | None:
    """Returns the task of a folder, as `task_fields` has it, or `None` for a BERT without one.

    Args:
        fields: What `config.json` holds.
        names: The names of the weights.
        source: The file of the weights, for people.

    Raises:
        ValueError: The head is of a task that is not read, or a field is damaged.
    """
    heads = [name for name in names if name.partition(".")[0] in _HEADS.values()]
    if not heads:
        return None
    architecture = next(iter(fields.get("architectures") or []), "")
    if {name.partition(".")[0] for name in heads} != {_HEADS.get(architecture)}:
        raise ValueError(
            f"{source!r} is a BERT with the head of a task, {first(heads)}, which is not read for "
            f"architectures={fields.get('architectures')!r}; those of {tuple(_HEADS)} are. Its "
            "encoder is, when transformers has saved it alone: "
            "`BertModel.from_pretrained(folder).save_pretrained(other_folder)`."
        )
    if architecture == "BertForQuestionAnswering":
        return {"kind": "QuestionAnswerer"}
    dropout = fields.get("classifier_dropout")
    if dropout is None:
        dropout = fields.get("hidden_dropout_prob", 0.1)
    task = {"labels": _labels(fields), "dropout": dropout}
    if architecture == "BertForTokenClassification":
        return {"kind": "TokenClassifier", **task}
    problem = fields.get("problem_type")
    if (
        problem is None
    ):  # as transformers decides at the first batch, but for labels that are floats
        problem = _REGRESSION if len(task["labels"]) == 1 else _SINGLE
    if problem not in (_SINGLE, _MULTI, _REGRESSION):
        raise ValueError(
            f"`problem_type` must be one of {(_SINGLE, _MULTI, _REGRESSION)}. Received: "
            f"{problem!r:.80}."
        )
    if problem == _REGRESSION:
        return {"kind": "SequenceRegressor", **task}
    return {"kind": "SequenceClassifier", **task, "multi_label": problem == _MULTI}


def config_fields(task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `config.json` that say what a model is for.

    Raises:
        ValueError: Hugging Face's BERT has no such task.
    """
    kind = task["kind"]
    if kind not in _ARCHITECTURES:
        raise ValueError(
            f"Hugging Face's BERT has no model that is a {kind}, but {tuple(_ARCHITECTURES)}. Save "
            'it with format="native", or the BERT that it was made of.'
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


def head_rows(task: Mapping[str, Any]) -> list[Row]:
    """Returns the rows of a task's head."""
    return dense("head", _HEADS[_ARCHITECTURES[task["kind"]]])


def _labels(fields: Mapping[str, Any]) -> list[str]:
    """Returns the names of the labels in the order of their ids."""
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
