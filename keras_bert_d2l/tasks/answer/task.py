"""The record of the task `answer`; see `contract/task.py`."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.examples import how_many
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.tasks.answer import WINDOW_LEN
from keras_bert_d2l.tasks.answer.examples import QuestionExamples, question_examples

if TYPE_CHECKING:
    from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
    from keras_bert_d2l.tasks.answer.predictions import FoundAnswer


class AnswerTask(Task[QuestionExamples, "QuestionAnswerer", "FoundAnswer"]):
    """The part of a text that answers a question."""

    name = "answer"
    examples = (QuestionExamples,)
    columns: ClassVar = {
        "text": "question",
        "text_b": "context passage paragraph text document",
        "label": "answers answer answer_text answers.text text",
    }
    labels = "answers"
    needs_text_b = True
    most_tokens = WINDOW_LEN
    options = frozenset({"context", "null_threshold", "top_k", "explain"})
    monitors = ("val_f1",)
    huggingface = HuggingFace("BertForQuestionAnswering", "qa_outputs", "question-answering")
    encode = lazy("keras_bert_d2l.tasks.answer.rows:encoded_questions")
    model = lazy("keras_bert_d2l.tasks.answer.model:QuestionAnswerer")
    evaluate = lazy("keras_bert_d2l.tasks.answer.evaluation:evaluate_answers")
    signatures = lazy("keras_bert_d2l.tasks.answer.predictions:AnswererSignatures")

    def read(self, file: TextFile, options: ReadingOptions) -> QuestionExamples:
        return question_examples(file, options)

    def from_lines(self, texts: tuple[str, ...], context: str | None) -> QuestionExamples:
        if context is None:
            raise ValueError(
                "Questions need a text that contains the answers. Specify its file with "
                "--context, or provide questions with contexts as JSONL, TSV or SQuAD JSON."
            )
        return QuestionExamples(questions=texts, contexts=(context,) * len(texts))

    def from_arguments(self, texts: tuple[str, ...], context: str | None) -> QuestionExamples:
        """Return the questions, each followed by its text unless `context` is about them all."""
        if context is not None:
            return self.from_lines(texts, context)
        if len(texts) % 2:
            raise ValueError(
                "Each question must be followed by the text that contains the answer, or specify "
                f"the file of the text with --context. Received: {how_many(len(texts), 'text')}."
            )
        return QuestionExamples(questions=texts[::2], contexts=texts[1::2])

    def records(
        self, model: "QuestionAnswerer", examples: QuestionExamples, options: Options
    ) -> Iterator[dict[str, object]]:
        """Yield the answers to questions, or null for questions that are too long for a row."""
        from keras_bert_d2l.tasks.answer.predictions import answer, fitting_questions

        fits = fitting_questions(model, examples.questions, options["max_len"])
        if not fits.all():
            too_long = how_many(int((~fits).sum()), "question")
            print(
                f"Too long for a row, so the answer is null: {too_long}, first "
                f"{examples.ids[int(fits.argmin())]!r}.",
                file=sys.stderr,
            )
        read = examples.subset(fits.nonzero()[0])
        found = answer(model, read.questions, read.contexts, **options) if len(read) else []
        answers = iter(found)
        for one, question, is_read in zip(examples.ids, examples.questions, fits, strict=True):
            said: dict[str, object] = {"answer": None}
            if is_read:
                best, *others = several = next(answers)
                place = {"score": best.score, "start": best.start, "end": best.end}
                said = {"answer": best.text, **place}
                if others:
                    said["answers"] = [dataclasses.asdict(one) for one in several]
            yield {"id": one, "question": question, **said}

    def samples(
        self, examples: QuestionExamples, found: "Iterable[FoundAnswer]"
    ) -> Iterator[Sample]:
        from keras_bert_d2l.tasks.answer.evaluation import exact_match

        rows = zip(examples.questions, examples.answers or (), found, strict=True)
        for text, answers, one in rows:
            gold = [answer.text for answer in answers]
            is_right = bool(exact_match(gold, one.text))
            yield Sample(text, " | ".join(dict.fromkeys(gold)), one.text, one.score, is_right)


TASK = AnswerTask()
