"""Commands that ask a model."""

from typing import Annotated

import typer

from keras_bert_d2l.cli.options import Model, load
from keras_bert_d2l.inference.fill_mask import fill_mask


def answer_masks(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Texts with [MASK] in them.")],
    model: Model = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Answers for each mask.")] = 5,
) -> None:
    """Says which tokens a model expects behind the masks of a text.

    Example: `keras-bert-d2l fill-mask "paris is the [MASK] of france" --model runs/mine`
    """
    pretrained = load(model)
    if pretrained.tokenizer is None:
        raise ValueError("The checkpoint has no vocabulary, without which no text can be read.")
    answers = fill_mask(pretrained.model, pretrained.tokenizer, texts, top_k)
    for text, masks in zip(texts, answers, strict=True):
        typer.echo(text)
        for predictions in masks:
            line = ", ".join(f"{one.token} {one.score:.3f}" for one in predictions)
            typer.echo(f"    {line}")
