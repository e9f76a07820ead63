"""Create the output of `predict`: one JSON record per example."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import keras_bert_d2l as kb
from keras_bert_d2l.cli.predict.predict_input import Lines
from keras_bert_d2l.data.tasks.examples import (
    ChoiceExamples,
    QuestionExamples,
    TaskExamples,
    TextExamples,
    WordExamples,
    how_many,
)


def results(
    model: Any, examples: TaskExamples, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the output records of the examples.

    Args:
        model: Task model with its tokenizer.
        examples: The examples.
        options: Options of `classify`, `regress`, `tag`, `choose` or `answer`.
    """
    if isinstance(examples, Lines | WordExamples):
        name = "text" if isinstance(examples, Lines) else "words"
        texts: Any = examples.texts if isinstance(examples, Lines) else examples.words
        found = kb.tag(model, texts, **options)
        kind = "tags" if options["aggregate"] == "none" else "entities"
        for one, text, tags in zip(examples.ids, texts, found, strict=True):
            yield {"id": one, name: text, kind: [_without_none(tag) for tag in tags]}
    elif isinstance(examples, QuestionExamples):
        yield from _answers(model, examples, options)
    elif isinstance(examples, ChoiceExamples):
        chosen = kb.choose(model, examples.texts, examples.choices, **options)
        for one, text, choice in zip(examples.ids, examples.texts, chosen, strict=True):
            yield {"id": one, "text": text, **dataclasses.asdict(choice)}
    elif isinstance(examples, TextExamples):
        sides = {"text": examples.texts}
        if examples.texts_b is not None:
            sides["text_b"] = examples.texts_b
        ask: Any = kb.regress if examples.task == "regress" else kb.classify
        found = ask(model, *sides.values(), **options)
        for one, *texts, said in zip(examples.ids, *sides.values(), found, strict=True):
            yield {"id": one, **dict(zip(sides, texts, strict=True)), **_label(model, said)}


def _answers(
    model: "kb.QuestionAnswerer", examples: QuestionExamples, options: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the answers to questions, or null for questions that are too long for a row."""
    from keras_bert_d2l.inference.tasks.answers import fitting_questions

    fits = fitting_questions(model, examples.questions, options["max_len"])
    if not fits.all():
        too_long = how_many(int((~fits).sum()), "question")
        print(
            f"Too long for a row, so the answer is null: {too_long}, first "
            f"{examples.ids[int(fits.argmin())]!r}.",
            file=sys.stderr,
        )
    read = examples.subset(fits.nonzero()[0])
    found = kb.answer(model, read.questions, read.contexts, **options) if len(read) else []
    answers = iter(found)
    for one, question, is_read in zip(examples.ids, examples.questions, fits, strict=True):
        said: dict[str, Any] = {"answer": None}
        if is_read:
            [best] = next(answers)
            place = {"score": best.score, "start": best.start, "end": best.end}
            said = {"answer": best.text, **place}
        yield {"id": one, "question": question, **said}


def _label(model: Any, found: Any) -> dict[str, Any]:
    """Return the output fields of a classification or a score."""
    if not hasattr(found, "label"):
        return {"score": found.score} if len(found.scores) == 1 else {"scores": found.scores}
    if model.multi_label:
        return {"labels": list(found.labels), "scores": found.scores}
    return {"label": found.label, "score": found.score, "scores": found.scores}


def _without_none(found: Any) -> dict[str, Any]:
    return {name: x for name, x in dataclasses.asdict(found).items() if x is not None}
