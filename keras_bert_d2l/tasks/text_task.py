"""`TextTask`: what the tasks share that predict something for each text or pair of texts."""

import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from keras_bert_d2l.contract.task import Found, Model, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.data.tasks.texts import TextExamples, folder_examples, text_examples
from keras_bert_d2l.types import Say

if TYPE_CHECKING:
    from keras_bert_d2l.inference.evaluation import Evaluation


class TextTask(Task[TextExamples, Model, Found]):
    """A task that predicts something for each text or pair of texts.

    A subclass needs a `name`, the common names of `columns`, and a `model`. By default, a text has
    one of the labels of the training data, and the model is a `LabeledTask`.

    Example:

    ```python
    import keras
    import keras_bert_d2l as kb

    @keras.saving.register_keras_serializable("my_tasks")
    class SentenceOrderer(kb.LabeledTask):
        task, pools, fields = "order", True, ("labels", "dropout", "pooling")

    class OrderTask(kb.TextTask):
        "The order of two sentences."

        name, model, needs_text_b = "order", SentenceOrderer, True
        columns = {"text": "first", "text_b": "second", "label": "order"}

    kb.register_task(OrderTask())
    ```
    """

    examples = (TextExamples,)
    finds_pairs = True
    options = frozenset({"pooling", "truncate", "min_confidence", "explain"})
    monitors: ClassVar[tuple[str, ...]] = ("val_accuracy",)
    encode = lazy("keras_bert_d2l.data.tasks.rows:encoded_texts")
    signatures = lazy("keras_bert_d2l.signatures.signature:AnswerSignatures")

    def ask(self, model: Any, *texts: Any, **options: Any) -> Any:
        """Return the predictions for texts or pairs of texts: the rows of the model's `answer`."""
        from keras_bert_d2l.inference.prediction import text_answers

        sides = (*texts, None)[:2]
        of_rows = (options["batch_size"], options["max_len"], options.get("truncate", True))
        rows = text_answers(model, model.tokenizer, *sides, *of_rows)
        return [{**row, "label": model.labels[row["id"]]} if "id" in row else row for row in rows]

    def fields_of(self, model: Model, found: Any) -> dict[str, object]:
        """Return the fields of a prediction that `keras-bert-d2l predict` writes."""
        return {name: value for name, value in found.items() if name != "id"}  # of the label

    def model_fields(self, train: TextExamples, dev: TextExamples, say: Say) -> Options:
        return {"labels": train.label_names}

    def check_fit(self, model: Any, examples: TextExamples, where: str) -> None:
        from keras_bert_d2l.data.tasks.rows import check_label_names

        check_label_names(examples, model.labels, at_least=1)

    def evaluate(self, model: Any, examples: TextExamples, options: Options) -> "Evaluation":
        """Return the share of texts whose most likely label is right."""
        from keras_bert_d2l.inference.evaluation import evaluation_of, row_options

        found = self.ask(model, examples.texts, examples.texts_b, **row_options(options))
        pairs = zip(found, examples.labels or (), strict=True)
        decisions = [(one["score"], one["label"] == label) for one, label in pairs]
        accuracy = sum(is_right for _, is_right in decisions) / len(found)
        return evaluation_of(examples, {"accuracy": accuracy}, found, decisions=decisions)

    def samples(self, examples: TextExamples, found: Iterable[Any]) -> Iterator[Sample]:
        rows = zip(examples.shown_texts, examples.labels or (), found, strict=True)
        for text, label, one in rows:
            yield Sample(text, str(label), one["label"], one["score"], one["label"] == label)

    def read(self, file: TextFile, options: ReadingOptions) -> TextExamples:
        return text_examples(file, options, TextExamples)

    def read_folder(self, folder: pathlib.Path, options: ReadingOptions) -> TextExamples:
        return folder_examples(folder, options)

    def from_lines(self, texts: tuple[str, ...], context: str | None) -> TextExamples:
        return TextExamples(task=self.name, texts=texts)

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
