"""`TextTask`: what the tasks share that label or score texts and pairs of texts."""

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_bert_d2l.data.tasks.examples import TextExamples
from keras_bert_d2l.data.tasks.readers.columns import Columns, ReadingOptions, columns_of_texts
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.data.tasks.readers.texts import text_examples
from keras_bert_d2l.tasks.task import Model, Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy as np

    from keras_bert_d2l.data.tasks.encoding import Fields
    from keras_bert_d2l.data.tasks.rows import TaskRows
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
    from keras_bert_d2l.text.vocab import Vocab


class TextTask(Task[TextExamples, Model]):
    """Base class of the tasks that predict something for each text or pair of texts."""

    finds_pairs = True

    @abc.abstractmethod
    def are_labels(self, cells: Sequence[str]) -> bool:
        """Return whether a column without a name looks like the labels."""

    @abc.abstractmethod
    def ask(self, model: Model, *texts: Sequence[str], **options: Any) -> Sequence[Any]:
        """Return the predictions for texts or pairs of texts."""

    @abc.abstractmethod
    def fields_of(self, model: Model, found: Any) -> dict[str, Any]:
        """Return the fields of a prediction that `keras-bert-d2l predict` writes."""

    def read(self, file: TextFile, options: ReadingOptions) -> TextExamples:
        return text_examples(file, options, TextExamples)

    def columns_without_names(
        self, cells: Sequence[Sequence[str]], options: ReadingOptions, *, may_be_header: bool
    ) -> Columns | None:
        if may_be_header:
            return None
        return columns_of_texts(cells, options, self.are_labels)

    def from_lines(
        self, texts: tuple[str, ...], context: str | None, **fields: Any
    ) -> TextExamples:
        return TextExamples(task=self.name, texts=texts, **fields)

    def encode(
        self,
        examples: TextExamples,
        tokenizer: "Tokenizer",
        labels: Sequence[str] | None,
        max_len: int,
        overlap: int | None,
    ) -> "Fields":
        from keras_bert_d2l.data.tasks.encoding import encoded_texts

        return encoded_texts(examples, tokenizer, labels, max_len)

    def shown(
        self,
        examples: TextExamples,
        rows: "TaskRows",
        number: int,
        own: "np.ndarray",
        vocab: "Vocab",
    ) -> tuple[str, Sequence[str]]:
        _, tokens = super().shown(examples, rows, number, own, vocab)
        cut = " (truncated)" if len(tokens) < rows.full_lengths[number] else ""
        return f"{examples.shown_label(number)}{cut}".lstrip(), tokens

    def records(
        self, model: Model, examples: TextExamples, options: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        sides = {"text": examples.texts}
        if examples.texts_b is not None:
            sides["text_b"] = examples.texts_b
        found: Iterable[Any] = self.ask(model, *sides.values(), **options)
        for one, *texts, said in zip(examples.ids, *sides.values(), found, strict=True):
            yield {
                "id": one,
                **dict(zip(sides, texts, strict=True)),
                **self.fields_of(model, said),
            }
