"""All signatures of a model, for pretraining and every task."""

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.pretraining import PretrainingSignatures
from keras_bert_d2l.serving.signatures.signature import Signature, TextOptions
from keras_bert_d2l.serving.signatures.texts import TextSignatures
from keras_bert_d2l.serving.signatures.token_ids import ServedModel
from keras_bert_d2l.tasks.task import task_named, tasks_with
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


def model_signatures(
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    options: TextOptions,
) -> dict[str, Signature]:
    """Return the signatures of a model by name.

    Args:
        model: The model.
        tokenizer: Its tokenizer. `None`: only the token-id signature.
        options: Options of the string signatures.

    Raises:
        ValueError: An option does not apply to the model or is out of range, or the vocabulary
            does not have the model's size.
    """
    name = f"a {type(model).__name__}{'' if tokenizer else ' without a tokenizer'}"
    given = {"pairs": options.pairs, "null_threshold": options.null_threshold is not None}
    for option, is_given in given.items():
        if is_given and (tokenizer is None or not takes(model, option)):
            needed = " or a ".join(task.model.__name__ for task in tasks_with(option))
            raise ValueError(
                f"`{option}` requires a {needed} with a tokenizer. Received: {name}. Omit "
                f"`{option}`."
            )
    run = ServedModel(model)
    if tokenizer is None:
        return run.signatures()
    check_vocabulary(model, tokenizer)
    kind: type[TextSignatures] = PretrainingSignatures
    if isinstance(model, TaskModel):
        kind = task_named(model.task).signatures
    return kind(run, tokenizer, options).signatures() | run.signatures()


def takes(model: BERTModel | TaskModel, option: str) -> bool:
    """Return whether an option of exports is for the task of a model."""
    return isinstance(model, TaskModel) and option in task_named(model.task).options
