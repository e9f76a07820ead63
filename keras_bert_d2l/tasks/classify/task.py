"""The record of the task `classify`, and what it shares with other tasks of texts."""

import abc
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from keras_bert_d2l.contract.task import Found, HuggingFace, Model, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.examples import names_of
from keras_bert_d2l.data.tasks.readers.columns import (
    USUAL_TEXTS,
    Columns,
    ReadingOptions,
    columns_of_texts,
)
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.data.tasks.texts import TextExamples, folder_examples, text_examples

if TYPE_CHECKING:
    from keras_bert_d2l.data.tasks.rows import TaskRows
    from keras_bert_d2l.tasks.classify.model import SequenceClassifier
    from keras_bert_d2l.tasks.classify.predictions import Classification
    from keras_bert_d2l.text.vocab import Vocab


class TextTask(Task[TextExamples, Model, Found]):
    """Base class of the tasks that predict something for each text or pair of texts."""

    examples = (TextExamples,)
    finds_pairs = True
    encode = lazy("keras_bert_d2l.data.tasks.encoding:encoded_texts")

    @abc.abstractmethod
    def are_labels(self, cells: Sequence[str]) -> bool:
        """Return whether a column without a name looks like the labels."""

    @abc.abstractmethod
    def ask(self, model: Model, *texts: Sequence[str], **options: Any) -> Sequence[Found]:
        """Return the predictions for texts or pairs of texts."""

    @abc.abstractmethod
    def fields_of(self, model: Model, found: Found) -> dict[str, object]:
        """Return the fields of a prediction that `keras-bert-d2l predict` writes."""

    def read(self, file: TextFile, options: ReadingOptions) -> TextExamples:
        return text_examples(file, options, TextExamples)

    def read_folder(self, folder: pathlib.Path, options: ReadingOptions) -> TextExamples:
        return folder_examples(folder, options)

    def columns_without_names(
        self, cells: Sequence[Sequence[str]], options: ReadingOptions
    ) -> Columns | None:
        return columns_of_texts(cells, options, self.are_labels)

    def from_lines(self, texts: tuple[str, ...], context: str | None) -> TextExamples:
        return TextExamples(task=self.name, texts=texts)

    def shown(
        self, examples: TextExamples, rows: "TaskRows", number: int, vocab: "Vocab"
    ) -> tuple[str, Sequence[str]]:
        _, tokens = super().shown(examples, rows, number, vocab)
        cut = " (truncated)" if len(tokens) < rows.full_lengths[number] else ""
        return f"{examples.shown_label(number)}{cut}".lstrip(), tokens

    def records(
        self, model: Model, examples: TextExamples, options: Options
    ) -> Iterator[dict[str, object]]:
        sides = {"text": examples.texts}
        if examples.texts_b is not None:
            sides["text_b"] = examples.texts_b
        found = self.ask(model, *sides.values(), **options)
        for one, *texts, said in zip(examples.ids, *sides.values(), found, strict=True):
            record = {"id": one, **dict(zip(sides, texts, strict=True))}
            yield {**record, **self.fields_of(model, said)}


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
    has_label_names = True
    options = frozenset({"multi_label", "long_texts", "pooling", "pairs", "truncate"})
    monitors = ("val_micro_f1", "val_accuracy")  # multi-label models report the first
    library = "sklearn.metrics"
    huggingface = HuggingFace(
        *("BertForSequenceClassification", "classifier", "text-classification"),
        ("single_label_classification", "multi_label_classification"),
    )
    model = lazy("keras_bert_d2l.tasks.classify.model:SequenceClassifier")
    ask = lazy("keras_bert_d2l.tasks.classify.predictions:classify")
    evaluate = lazy("keras_bert_d2l.tasks.classify.predictions:evaluate_labels")
    signatures = lazy("keras_bert_d2l.tasks.classify.predictions:LabeledSignatures")

    def are_labels(self, cells: Sequence[str]) -> bool:
        return 2 * len(set(cells)) <= len(cells)  # labels are repeated, example ids are not

    def model_fields(
        self, train: TextExamples, dev: TextExamples, multi_label: bool, say: Callable[[str], None]
    ) -> dict[str, object]:
        return {"labels": train.label_names, "multi_label": multi_label}

    def check_fit(self, model: "SequenceClassifier", examples: TextExamples, where: str) -> None:
        from keras_bert_d2l.data.tasks.encoding import check_label_names

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

    def prediction(self, example: TextExamples, found: "Classification") -> Sample:
        [text], [label] = example.shown_texts, example.labels or ()
        names = names_of(cast(str, label))
        is_right = set(names) == set(found.labels)
        return Sample(text, ", ".join(names), ", ".join(found.labels), found.score, is_right)

    def metric_name(self, metric: str, labels: Sequence[str] | None) -> str:
        return f"f1 of {labels[1]}" if metric == "f1" and labels is not None else metric


TASK = ClassifyTask()
