"""Checks of the model and the tokenizer that are passed to a function."""

from typing import cast

from keras_bert_d2l.checks import shown
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.string_inputs import check_vocab_size
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_HEADS = {"mlm": "masked-language-model", "nsp": "next-sentence"}


def check_kind(model: object, *kinds: type[BERTModel | TaskModel], remedy: str) -> None:
    """Raise a `ValueError` if a model is not an instance of one of some classes.

    Args:
        model: What the caller passed as a model.
        *kinds: The classes.
        remedy: What to do with a model of a different class, for the message.
    """
    if isinstance(model, kinds):
        return
    needed = " or a ".join(kind.__name__ for kind in kinds)
    received = f"a {type(model).__name__}; {remedy}"
    if not isinstance(model, BERTModel | TaskModel):
        received = f"{shown(model)}; load a checkpoint with `load_pretrained(path).model`"
    raise ValueError(f"`model` must be a {needed}. Received: {received}.")


def check_bert(model: object, head: str | None = None) -> None:
    """Raise a `ValueError` if a model is not a `BERTModel` with its pretraining heads.

    Args:
        model: What the caller passed.
        head: `"mlm"` or `"nsp"`, if the function needs this head with trained weights.
    """
    remedy = "it has a task head, so use the checkpoint that it was fine-tuned from"
    check_kind(model, BERTModel, remedy=remedy)
    model = cast(BERTModel, model)
    if head is None or head in model.usable_heads:
        return
    if head == "nsp" and model.nsp is None:
        received = "a model with next_sentence=False. Use a model that has the head."
    else:
        received = (
            f"a model whose checkpoint lacked {sorted(model.missing_heads)}, so these weights are "
            "random. Train them with `pretrain`, or load a checkpoint that has them."
        )
    raise ValueError(
        f"This function needs a model with a {_HEADS[head]} head. Received: {received}"
    )


def check_vocabulary(model: BERTModel | TaskModel, tokenizer: Tokenizer | None) -> None:
    """Raise a `ValueError` unless a tokenizer has a vocabulary of the model's size."""
    if tokenizer is None:
        raise ValueError(
            "Texts need a tokenizer. Received: tokenizer=None. A checkpoint without a vocabulary "
            "has no tokenizer: add the model's own vocabulary to it as vocab.txt, or create a "
            "tokenizer in Python with `Tokenizer(Vocab.from_file(path))`."
        )
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError(
            f"`tokenizer` must be a Tokenizer, such as `load_pretrained(path).tokenizer`. "
            f"Received: {shown(tokenizer)}."
        )
    check_vocab_size(tokenizer, model.bert_config)
