"""What a run records for its report: predictions for some examples, errors and confusions."""

import dataclasses
import textwrap

from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.inference.evaluation.evaluation import Confusion, Evaluation
from keras_bert_d2l.tasks.task import task_named
from keras_bert_d2l.training.report.run import spread

_NUM_SAMPLES, _NUM_CONFUSIONS = 10, 20
_MAX_CHARACTERS = 300  # of a text
_MAX_LABELS = 12  # of a confusion matrix that fits on a page


def record_of(evaluation: Evaluation, examples: TaskExamples) -> dict[str, object]:
    """Return the record of an evaluation on these examples."""
    samples = []
    task = task_named(examples.task)
    for place in spread(examples.in_order_of_labels(), _NUM_SAMPLES):
        one = task.prediction(examples.subset([place]), evaluation.predictions[place])
        samples.append(
            {
                "text": _short(one.text),
                "gold": one.gold,
                "answers": [(one.predicted, one.score)],
                "is_right": one.is_right,
            }
        )
    errors = [dataclasses.asdict(error) for error in evaluation.errors]
    return {
        "samples": samples,
        "errors": [{**error, "text": _short(error["text"])} for error in errors],
        "confusion": _confusion(evaluation.confusion),
    }


def _confusion(confusion: Confusion | None) -> dict[str, object] | None:
    """Return the matrix or, if there are many labels, the most frequent confusions."""
    if confusion is None:
        return None
    if len(confusion.labels) > _MAX_LABELS:
        return {"most_frequent": confusion.most_frequent(_NUM_CONFUSIONS)}
    return {"labels": confusion.labels, "counts": confusion.counts.tolist()}


def _short(text: str) -> str:
    return textwrap.shorten(text, _MAX_CHARACTERS, placeholder=" ...")
