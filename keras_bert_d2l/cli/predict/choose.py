"""`keras-bert-d2l choose`."""

from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import Json, TaskModel
from keras_bert_d2l.cli.input_output import load, print_answers


def choose(
    text: str,
    *choices: Annotated[str, Parameter(name="CHOICE")],
    model: TaskModel,
    json: Json = False,
) -> None:
    """Find the choice that fits a text best. For a file of texts, use `predict`.

    For example: `keras-bert-d2l choose "she opens" "the door" "the sky" --model runs/swag`

    Args:
        text: The text, for example the beginning of a story.
        choices: At least two choices.
    """
    task = load(model, heads=False).model
    print_answers({"text": [text]}, lambda _: kb.choose(task, [text], [choices]), _lines, json=json)


def _lines(text: str, found: "kb.Choice") -> str:
    return f"{found.score:.3f}  {found.index + 1}: {found.choice}"
