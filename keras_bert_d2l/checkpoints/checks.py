"""Checks of the model and the tokenizer that are passed to a function."""

from typing import cast

import keras

from keras_bert_d2l.checks import check_type, shown
from keras_bert_d2l.models.batch_model import check_vocab_size
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


def check_kind(model: object, *kinds: type[BERTModel | TaskModel]) -> None:
    """Raise a `ValueError` if a model is not an instance of one of some classes."""
    if not isinstance(model, kinds):
        needed = " or a ".join(kind.__name__ for kind in kinds)
        received = f"a {type(model).__name__}" if isinstance(model, keras.Model) else shown(model)
        raise ValueError(
            f"`model` must be a {needed}. Received: {received}. Load one with `from_pretrained` of "
            "its class, or pass `BERTModel.from_layers(encoder)` for a Keras model of your own."
        )


def check_head(model: BERTModel, head: str) -> None:
    """Raise a `ValueError` unless a model has a head, such as `"mlm"`, with trained weights."""
    if head not in model.usable_heads:
        raise ValueError(
            f"This function needs a model with a trained {head!r} head. Received: a model whose "
            f"trained heads are {sorted(model.usable_heads)}. Load a checkpoint that has the head, "
            f"train it with `pretrain`, or pass `BERTModel.from_layers(encoder, {head}={head})`."
        )


def check_vocabulary(model: BERTModel | TaskModel, tokenizer: Tokenizer | None) -> None:
    """Raise a `ValueError` unless there is a tokenizer with a vocabulary of the model's size."""
    if tokenizer is not None:
        check_type("tokenizer", tokenizer, Tokenizer, "Load one with `load_tokenizer(path)`.")
    check_vocab_size(tokenizer, model.bert_config)


def tokenizer_of(model: BERTModel | TaskModel, tokenizer: Tokenizer | None = None) -> Tokenizer:
    """Return the tokenizer that was passed for a model or, by default, its own.

    Raises:
        ValueError: There is none, or the vocabulary does not have the model's size.
    """
    found: Tokenizer | None = model.tokenizer if tokenizer is None else tokenizer
    check_vocabulary(model, found)
    return cast(Tokenizer, found)
