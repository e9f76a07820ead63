"""`keras-bert-d2l fill-mask`."""

from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import BatchSize, File, Json, Model, PositiveInt, Texts
from keras_bert_d2l.cli.input_output import print_answers, read_texts
from keras_bert_d2l.cli.loading import load


def fill_mask(
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    top_k: Annotated[
        PositiveInt | None,
        Parameter(alias="-k", help="Number of results per mask. [default: 5, or all targets]"),
    ] = None,
    targets: Annotated[list[str] | None, Parameter(name="--target", negative="")] = None,
    batch_size: BatchSize = 32,
    json: Json = False,
) -> None:
    """Predict the token for each [MASK] in a text.

    For example:

    - `keras-bert-d2l fill-mask "paris is the [MASK] of france" --model runs/mine`
    - `keras-bert-d2l fill-mask "it was [MASK] ." --target good --target bad --model runs/mine`

    Args:
        targets: Score only this word. Repeat the option for further words.
    """
    found = read_texts(texts, file)
    bert = load(model).model
    print_answers(
        {"text": found},
        lambda part: kb.fill_mask(
            bert, found[part], top_k=top_k, targets=targets, batch_size=batch_size
        ),
        lambda text, masks: "\n    ".join([text, *map(_line, masks)]),
        "masks",
        json=json,
    )


def _line(predictions: list["kb.Prediction"]) -> str:
    return ", ".join(f"{one.token} {one.score:.3f}" for one in predictions)
