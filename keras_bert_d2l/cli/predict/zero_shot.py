"""`keras-bert-d2l zero-shot`."""

from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import BatchSize, File, Flag, Json, TaskModel, Texts
from keras_bert_d2l.cli.input_output import load, print_answers, read_texts


def zero_shot(
    *texts: Texts,
    labels: Annotated[list[str], Parameter(name="--label", negative="")],
    model: TaskModel,
    file: File = None,
    template: str = "This example is {}.",
    multi_label: Flag = False,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Classify texts into any labels, with a model for natural language inference (NLI).

    Prints the probability of each label, highest first.

    For example:
    `keras-bert-d2l zero-shot "the match ended 3 : 1" --label sports --label politics -m runs/nli`

    Args:
        labels: A label to choose from. Repeat the option for each label.
        template: Hypothesis about the text, with {} in place of the label.
        multi_label: Judge each label alone, because a text can have any number of them.
    """
    found = read_texts(texts, file)
    task = load(model, heads=False).model

    def ask(part: slice) -> "list[kb.Classification]":
        return kb.zero_shot(
            task,
            found[part],
            labels,
            template=template,
            multi_label=multi_label,
            batch_size=batch_size,
        )

    print_answers(
        {"text": found},
        ask,
        lambda text, one: f"{_line(one)}  {text}",
        json=json,
    )


def _line(one: "kb.Classification") -> str:
    ranked = sorted(one.scores.items(), key=lambda item: -item[1])
    return ", ".join(f"{label} {score:.3f}" for label, score in ranked)
