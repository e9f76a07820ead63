"""The record of the task `classify`; see `tasks/task.py`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from keras_bert_d2l.data.tasks.examples import TextExamples, names_of
from keras_bert_d2l.data.tasks.readers.columns import USUAL_TEXTS
from keras_bert_d2l.tasks.task import EvaluationOptions, Sample
from keras_bert_d2l.tasks.texts import TextTask

if TYPE_CHECKING:
    from keras_bert_d2l.inference.evaluation.evaluation import Evaluation
    from keras_bert_d2l.serving.signatures.texts import TextSignatures
    from keras_bert_d2l.tasks.classify.model import SequenceClassifier
    from keras_bert_d2l.tasks.classify.predictions import Classification


class ClassifyTask(TextTask["SequenceClassifier"]):
    """The label, or any number of labels, of a text or a pair of texts."""

    name = "classify"
    columns: ClassVar = {
        "text": USUAL_TEXTS,
        "text_b": "",
        "label": "label gold_label labels class class_index category sentiment emotion emotions "
        "quality is_duplicate entailment_judgment entailment_label polarity intent topic target "
        "coarse_label label_coarse answer stars star_rating rating overall score",
    }
    has_label_names = True
    reads_folders = "labeled"
    options = frozenset({"multi_label", "long_texts", "pooling", "pairs"})
    monitors = ("val_micro_f1", "val_accuracy")  # multi-label models report the first
    library = "sklearn.metrics"

    def are_labels(self, cells: Sequence[str]) -> bool:
        return 2 * len(set(cells)) <= len(cells)  # labels are repeated, example ids are not

    @property
    def model(self) -> type["SequenceClassifier"]:
        from keras_bert_d2l.tasks.classify.model import SequenceClassifier

        return SequenceClassifier

    def model_fields(
        self,
        train: TextExamples,
        dev: TextExamples,
        multi_label: bool,
        say: Callable[[str], None],
    ) -> dict[str, object]:
        return {"labels": train.label_names, "multi_label": multi_label}

    def check_fit(self, model: "SequenceClassifier", examples: TextExamples, where: str) -> None:
        from keras_bert_d2l.data.tasks.labels import check_label_names

        if model.multi_label != examples.multi_label:
            kinds = ("one label per text", "any number of labels per text")
            raise ValueError(
                f"{where}: the model predicts {kinds[model.multi_label]}. Received: examples with "
                f"{kinds[examples.multi_label]}; create both with the same `multi_label`."
            )
        check_label_names(examples, model.labels, at_least=1)

    def ask(
        self, model: "SequenceClassifier", *texts: Sequence[str], **options: Any
    ) -> Sequence["Classification"]:
        from keras_bert_d2l.tasks.classify.predictions import classify

        return classify(model, *map(list, texts), **options)

    def fields_of(self, model: "SequenceClassifier", found: "Classification") -> dict[str, Any]:
        if model.multi_label:
            return {"labels": list(found.labels), "scores": found.scores}
        return {"label": found.label, "score": found.score, "scores": found.scores}

    def evaluate(
        self, model: "SequenceClassifier", examples: TextExamples, options: EvaluationOptions
    ) -> "Evaluation":
        from keras_bert_d2l.tasks.classify.evaluation import evaluate_labels

        return evaluate_labels(model, examples, options)

    def prediction(self, example: TextExamples, found: "Classification") -> Sample:
        [text], [label] = example.shown_texts, example.labels or ()
        names = names_of(cast(str, label))
        is_right = set(names) == set(found.labels)
        return Sample(text, ", ".join(names), ", ".join(found.labels), found.score, is_right)

    def metric_name(self, metric: str, labels: Sequence[str] | None) -> str:
        return f"f1 of {labels[1]}" if metric == "f1" and labels is not None else metric

    @property
    def signatures(self) -> type["TextSignatures"]:
        from keras_bert_d2l.tasks.classify.signature import ClassifierSignatures

        return ClassifierSignatures


TASK = ClassifyTask()
