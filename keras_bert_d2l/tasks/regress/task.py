"""The record of the task `regress`; see `contract/task.py`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, lazy
from keras_bert_d2l.data.tasks.readers.columns import USUAL_TEXTS
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.tasks.text_task import TextTask
from keras_bert_d2l.types import Say

if TYPE_CHECKING:
    from keras_bert_d2l.tasks.regress.model import SequenceRegressor
    from keras_bert_d2l.tasks.regress.predictions import Regression


class RegressTask(TextTask["SequenceRegressor", "Regression"]):
    """A number for a text or a pair of texts."""

    name = "regress"
    columns: ClassVar = {
        "text": USUAL_TEXTS,
        "text_b": "",
        "label": "score similarity similarity_score relatedness_score label rating stars "
        "star_rating overall target gold value labels",
    }
    labels = "scores"
    has_scores = True
    options = frozenset({"long_texts", "pooling", "pairs", "truncate", "explain"})
    monitors = ("val_pearson",)
    library = "scipy.stats"
    huggingface = HuggingFace(
        *("BertForSequenceClassification", "classifier", "text-classification"), ("regression",)
    )
    model = lazy("keras_bert_d2l.tasks.regress.model:SequenceRegressor")
    ask = lazy("keras_bert_d2l.tasks.regress.predictions:regress")
    evaluate = lazy("keras_bert_d2l.tasks.regress.predictions:evaluate_scores")

    def model_fields(self, train: TextExamples, dev: TextExamples, say: Say) -> Options:
        return {}

    def check_fit(self, model: "SequenceRegressor", examples: TextExamples, where: str) -> None:
        if len(model.labels) != 1:
            raise ValueError(
                f"{where}: examples have one score each. Received: a model with the scores "
                f"{', '.join(model.labels):.200}."
            )

    def fields_of(self, model: "SequenceRegressor", found: "Regression") -> dict[str, object]:
        return {"score": found.score} if len(found.scores) == 1 else {"scores": found.scores}

    def samples(self, examples: TextExamples, found: "Iterable[Regression]") -> Iterator[Sample]:
        for text, score, one in zip(
            examples.shown_texts, examples.labels or (), found, strict=True
        ):
            yield Sample(text, f"{score:g}", f"{one.score:.3f}")


TASK = RegressTask()
