"""Checks of the model and the tokenizer that are passed to a function."""

from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.string_inputs import check_vocab_size
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


def check_bert(model: object) -> None:
    """Raise a `ValueError` if a model is not a `BERTModel` with its pretraining heads."""
    if not isinstance(model, BERTModel):
        raise ValueError(
            "This function needs a BERTModel with its pretraining heads. Received: a "
            f"{type(model).__name__}, which has a task head instead. Use the checkpoint that it "
            "was fine-tuned from."
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
