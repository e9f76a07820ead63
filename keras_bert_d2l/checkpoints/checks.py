"""Checks of the model and the tokenizer that are passed to a function."""

from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.string_inputs import check_vocab_size
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_HEADS = {"mlm": "masked-language-model", "nsp": "next-sentence"}


def check_bert(model: object, head: str | None = None) -> None:
    """Raise a `ValueError` if a model is not a `BERTModel` with its pretraining heads.

    Args:
        model: What the caller passed.
        head: `"mlm"` or `"nsp"`, if the function needs this head with trained weights.
    """
    if not isinstance(model, BERTModel):
        raise ValueError(
            "This function needs a BERTModel with its pretraining heads. Received: a "
            f"{type(model).__name__}, which has a task head instead. Use the checkpoint that it "
            "was fine-tuned from."
        )
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
    """Raise a `ValueError` if there is no tokenizer, or if its vocabulary has the wrong size."""
    if tokenizer is None:
        raise ValueError(
            "Texts need a tokenizer. Received: tokenizer=None. A checkpoint without a vocabulary "
            "has no tokenizer: create one from the model's own vocabulary with "
            "`Tokenizer(Vocab.from_file(path))`."
        )
    check_vocab_size(tokenizer, model.bert_config)
