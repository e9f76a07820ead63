"""The record of the task `regress`; see `tasks/task.py`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from keras_bert_d2l.data.tasks.examples import TextExamples, score_lines
from keras_bert_d2l.data.tasks.readers.columns import NUMBER, USUAL_TEXTS
from keras_bert_d2l.tasks.task import EvaluationOptions, Sample
from keras_bert_d2l.tasks.texts import TextTask

if TYPE_CHECKING:
    from keras_bert_d2l.inference.evaluation.evaluation import Evaluation
    from keras_bert_d2l.serving.signatures.texts import TextSignatures
    from keras_bert_d2l.tasks.regress.model import SequenceRegressor
    from keras_bert_d2l.tasks.regress.predictions import Regression


class RegressTask(TextTask["SequenceRegressor"]):
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
    reads_folders = "unlabeled"
    options = frozenset({"long_texts", "pooling", "pairs"})
    monitors = ("val_pearson",)
    library = "scipy.stats"

    def are_labels(self, cells: Sequence[str]) -> bool:
        return all(map(NUMBER.fullmatch, cells))

    def label_lines(self, examples: TextExamples) -> list[tuple[Any, str]]:
        return score_lines(examples)

    @property
    def model(self) -> type["SequenceRegressor"]:
        from keras_bert_d2l.tasks.regress.model import SequenceRegressor

        return SequenceRegressor

    def check_fit(self, model: "SequenceRegressor", examples: TextExamples, where: str) -> None:
        if len(model.labels) != 1:
            raise ValueError(
                f"{where}: examples have one score each. Received: a model with the scores "
                f"{', '.join(model.labels)}."
            )

    def ask(
        self, model: "SequenceRegressor", *texts: Sequence[str], **options: Any
    ) -> Sequence["Regression"]:
        from keras_bert_d2l.tasks.regress.predictions import regress

        return regress(model, *map(list, texts), **options)

    def fields_of(self, model: "SequenceRegressor", found: "Regression") -> dict[str, Any]:
        return {"score": found.score} if len(found.scores) == 1 else {"scores": found.scores}

    def evaluate(
        self, model: "SequenceRegressor", examples: TextExamples, options: EvaluationOptions
    ) -> "Evaluation":
        from keras_bert_d2l.tasks.regress.evaluation import evaluate_scores

        return evaluate_scores(model, examples, options)

    def prediction(self, example: TextExamples, found: "Regression") -> Sample:
        [text], [score] = example.shown_texts, example.labels or ()
        return Sample(text, f"{score:g}", f"{found.score:.3f}")

    @property
    def signatures(self) -> type["TextSignatures"]:
        from keras_bert_d2l.tasks.regress.signature import RegressorSignatures

        return RegressorSignatures


TASK = RegressTask()
