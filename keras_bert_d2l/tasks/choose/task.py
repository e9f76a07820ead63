"""The record of the task `choose`; see `tasks/task.py`."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from keras_bert_d2l.data.tasks.examples import share
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.tasks.choose.examples import ChoiceExamples, choice_examples
from keras_bert_d2l.tasks.task import EvaluationOptions, Sample, Task

if TYPE_CHECKING:
    import numpy as np

    from keras_bert_d2l.data.tasks.encoding import Fields
    from keras_bert_d2l.data.tasks.rows import TaskRows
    from keras_bert_d2l.inference.evaluation.evaluation import Evaluation
    from keras_bert_d2l.serving.signatures.texts import TextSignatures
    from keras_bert_d2l.tasks.choose.model import MultipleChoice
    from keras_bert_d2l.tasks.choose.predictions import Choice
    from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
    from keras_bert_d2l.text.vocab import Vocab


class ChooseTask(Task[ChoiceExamples, "MultipleChoice"]):
    """Which of several choices fits a text."""

    name = "choose"
    columns: ClassVar = {
        "text": "sent1 article context ctx premise passage text question question_stem goal "
        "sentence prompt",
        "text_b": "sent2 question",
        "choices": "choices options endings candidates answers",
        "label": "label answer answer_key gold correct target",
    }
    options = frozenset({"pooling"})
    monitors = ("val_accuracy",)

    def read(self, file: TextFile, options: ReadingOptions) -> ChoiceExamples:
        return choice_examples(file, options)

    def encode(
        self,
        examples: ChoiceExamples,
        tokenizer: "Tokenizer",
        labels: Sequence[str] | None,
        max_len: int,
        overlap: int | None,
    ) -> "Fields":
        from keras_bert_d2l.tasks.choose.examples import encoded_choices

        return encoded_choices(examples, tokenizer, max_len)

    def label_lines(self, examples: ChoiceExamples) -> list[tuple[Any, str]]:
        positions = sorted(Counter(examples.labels or ()).items())
        return [(f"position {n}", share(count, len(examples))) for n, count in positions]

    def shown(
        self,
        examples: ChoiceExamples,
        rows: "TaskRows",
        number: int,
        own: "np.ndarray",
        vocab: "Vocab",
    ) -> tuple[str, Sequence[str]]:
        _, tokens = super().shown(examples, rows, number, own, vocab)
        labels = examples.labels
        return "" if labels is None else examples.choices[number][labels[number]], tokens

    @property
    def model(self) -> type["MultipleChoice"]:
        from keras_bert_d2l.tasks.choose.model import MultipleChoice

        return MultipleChoice

    def records(
        self, model: "MultipleChoice", examples: ChoiceExamples, options: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        from keras_bert_d2l.tasks.choose.predictions import choose

        found = choose(model, examples.texts, examples.choices, **options)
        for one, text, choice in zip(examples.ids, examples.texts, found, strict=True):
            yield {"id": one, "text": text, **dataclasses.asdict(choice)}

    def evaluate(
        self, model: "MultipleChoice", examples: ChoiceExamples, options: EvaluationOptions
    ) -> "Evaluation":
        from keras_bert_d2l.tasks.choose.evaluation import evaluate_choices

        return evaluate_choices(model, examples, options)

    def prediction(self, example: ChoiceExamples, found: "Choice") -> Sample:
        [text], [choices], [place] = example.texts, example.choices, example.labels or ()
        return Sample(text, choices[place], found.choice, found.score, found.index == place)

    @property
    def signatures(self) -> type["TextSignatures"]:
        from keras_bert_d2l.tasks.choose.signature import ChoiceSignatures

        return ChoiceSignatures


TASK = ChooseTask()
