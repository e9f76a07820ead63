"""The record of the task `classify`, and what it shares with other tasks of texts."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, cast

from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, lazy
from keras_bert_d2l.data.tasks.examples import names_of
from keras_bert_d2l.data.tasks.readers.columns import USUAL_TEXTS
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.tasks.text_task import TextTask
from keras_bert_d2l.types import Say

if TYPE_CHECKING:
    from keras_bert_d2l.tasks.classify.model import SequenceClassifier
    from keras_bert_d2l.tasks.classify.predictions import Classification


class ClassifyTask(TextTask["SequenceClassifier", "Classification"]):
    """The label, or any number of labels, of a text or a pair of texts."""

    name = "classify"
    columns: ClassVar = {
        "text": USUAL_TEXTS,
        "text_b": "",
        "label": "label gold_label labels class class_index category sentiment emotion emotions "
        "quality is_duplicate entailment_judgment entailment_label polarity intent topic target "
        "coarse_label label_coarse answer stars star_rating rating overall score",
    }
    options = TextTask.options | {"multi_label", "long_texts", "pairs"}
    monitors = ("val_micro_f1", "val_accuracy")  # multi-label models report the first
    library = "sklearn.metrics"
    huggingface = HuggingFace(
        *("BertForSequenceClassification", "classifier", "text-classification"),
        ("single_label_classification", "multi_label_classification"),
    )
    model = lazy("keras_bert_d2l.tasks.classify.model:SequenceClassifier")
    ask = lazy("keras_bert_d2l.tasks.classify.predictions:classify")
    evaluate = lazy("keras_bert_d2l.tasks.classify.predictions:evaluate_labels")

    def model_fields(self, train: TextExamples, dev: TextExamples, say: Say) -> Options:
        return {"labels": train.label_names, "multi_label": train.multi_label}

    def check_fit(self, model: "SequenceClassifier", examples: TextExamples, where: str) -> None:
        from keras_bert_d2l.data.tasks.rows import check_label_names

        if model.multi_label != examples.multi_label:
            kinds = ("one label per text", "any number of labels per text")
            raise ValueError(
                f"{where}: the model predicts {kinds[model.multi_label]}. Received: examples with "
                f"{kinds[examples.multi_label]}; create both with the same `multi_label`."
            )
        check_label_names(examples, model.labels, at_least=1)

    def fields_of(self, model: "SequenceClassifier", found: "Classification") -> dict[str, object]:
        if model.multi_label:
            return {"labels": list(found.labels), "scores": found.scores}
        return {"label": found.label, "score": found.score, "scores": found.scores}

    def samples(
        self, examples: TextExamples, found: "Iterable[Classification]"
    ) -> Iterator[Sample]:
        rows = zip(examples.shown_texts, examples.labels or (), found, strict=True)
        for text, label, one in rows:
            names, score = names_of(cast(str, label)), one.score
            wrong = set(names) ^ set(one.labels)
            if wrong and examples.multi_label:  # the most confident of the wrong decisions
                scores = ((one.scores[name], name in one.labels) for name in wrong)
                score = max(x if is_found else 1 - x for x, is_found in scores)
            yield Sample(text, ", ".join(names), ", ".join(one.labels), score, not wrong)


TASK = ClassifyTask()
