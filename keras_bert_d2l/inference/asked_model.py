"""Find the model that a function asks, and its tokenizer."""

import os
from typing import Any, TypedDict, TypeVar

from keras_bert_d2l.checkpoints.checks import check_kind, tokenizer_of
from keras_bert_d2l.checkpoints.loading import load_as_defined, load_pretrained, load_task
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike

Model = TypeVar("Model", bound=BERTModel | TaskModel)


class AskOptions(TypedDict, total=False):
    """Keyword arguments of every function that asks a model."""

    tokenizer: Tokenizer | None
    batch_size: int


def asked_model(
    model: Model | PathLike, *kinds: type[Model], tokenizer: Tokenizer | None = None
) -> tuple[Model, Tokenizer]:
    """Return the model that a function asks, and its tokenizer.

    Args:
        model: The model, or the path or the name of its checkpoint, which is then loaded.
        *kinds: The classes that the function takes. If `TextEmbedder` is one, the checkpoint of a
            BERT without a task is loaded as that, with the pooling that its folder defines.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task, there is no tokenizer, or its vocabulary
            does not have the model's size.
    """
    found: Any = model
    if isinstance(model, str | os.PathLike):
        if TextEmbedder in kinds:
            found = load_task(TextEmbedder, model, verbose=False).model
        else:
            found = load_pretrained(model, heads=(), verbose=False).model
    check_kind(found, *kinds, remedy=_remedy(found, *kinds))
    return found, tokenizer_of(found, tokenizer)


def model_at(model: Model | PathLike) -> Model:
    """Return a model as it is, or load it from the path or the name of its checkpoint.

    A folder that defines how to pool texts gives a `TextEmbedder`.

    Raises:
        FileNotFoundError: There is no checkpoint.
    """
    if not isinstance(model, str | os.PathLike):
        return model
    found: Any = load_as_defined(model, heads=()).model
    return found


def _remedy(model: object, *kinds: type[BERTModel | TaskModel]) -> str:
    """Return what to do with a model that is of none of the classes."""
    if BERTModel in kinds:
        return "it is for a different task, so use the checkpoint that it was fine-tuned from"
    if isinstance(model, TaskModel):
        return f"query it with `{model.task}`"  # the function has the name of the task
    return f"fine-tune a {kinds[0].__name__}(bert, ...)"
