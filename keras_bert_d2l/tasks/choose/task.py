"""The record of the task `choose`; see `contract/task.py`."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.tasks.choose.examples import ChoiceExamples, choice_examples

if TYPE_CHECKING:
    from keras_bert_d2l.tasks.choose.model import MultipleChoice
    from keras_bert_d2l.tasks.choose.predictions import Choice


class ChooseTask(Task[ChoiceExamples, "MultipleChoice", "Choice"]):
    """Which of several choices fits a text."""

    name = "choose"
    examples = (ChoiceExamples,)
    columns: ClassVar = {
        "text": "sent1 article context ctx premise passage text question question_stem goal "
        "sentence prompt",
        "text_b": "sent2 question",
        "choices": "choices options endings candidates answers",
        "label": "label answer answer_key gold correct target",
    }
    options = frozenset({"pooling", "truncate", "min_confidence"})
    monitors = ("val_accuracy",)
    huggingface = HuggingFace("BertForMultipleChoice", "classifier", "multiple-choice")
    encode = lazy("keras_bert_d2l.tasks.choose.examples:encoded_choices")
    model = lazy("keras_bert_d2l.tasks.choose.model:MultipleChoice")
    evaluate = lazy("keras_bert_d2l.tasks.choose.predictions:evaluate_choices")
    signatures = lazy("keras_bert_d2l.tasks.choose.predictions:ChoiceSignatures")

    def read(self, file: TextFile, options: ReadingOptions) -> ChoiceExamples:
        return choice_examples(file, options)

    def from_arguments(self, texts: tuple[str, ...], context: str | None) -> ChoiceExamples:
        """Return one example: the first text, and the others as its choices."""
        if len(texts) < 3:
            raise ValueError(
                f"A text must be followed by at least two choices. Received: {len(texts) - 1}."
            )
        return ChoiceExamples(texts=texts[:1], choices=(texts[1:],))

    def records(
        self, model: "MultipleChoice", examples: ChoiceExamples, options: Options
    ) -> Iterator[dict[str, object]]:
        from keras_bert_d2l.tasks.choose.predictions import choose

        found = choose(model, examples.texts, examples.choices, **options)
        for one, text, choice in zip(examples.ids, examples.texts, found, strict=True):
            yield {"id": one, "text": text, **dataclasses.asdict(choice)}

    def samples(self, examples: ChoiceExamples, found: "Iterable[Choice]") -> Iterator[Sample]:
        rows = zip(examples.texts, examples.choices, examples.labels or (), found, strict=True)
        for text, choices, place, one in rows:
            yield Sample(text, choices[place], one.choice, one.score, one.index == place)


TASK = ChooseTask()
