"""All signatures of a model, for pretraining and every task."""

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import (
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.classification import SequenceSignatures
from keras_bert_d2l.serving.signatures.pretraining import TextSignatures, TokenSignatures
from keras_bert_d2l.serving.signatures.question_answering import AnswererSignatures
from keras_bert_d2l.serving.signatures.signature import Signature
from keras_bert_d2l.serving.signatures.tagging import TaggerSignatures
from keras_bert_d2l.serving.signatures.task_models import TaskTextSignatures, TaskTokenSignatures
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_PAIR_MODELS = (SequenceClassifier, SequenceRegressor)


def model_signatures(
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    *,
    pairs: bool,
    top_k: int,
    null_threshold: float | None,
) -> dict[str, Signature]:
    """Return the signatures of a model by name.

    Args:
        model: The model.
        tokenizer: Its tokenizer. `None`: only the token-id signatures.
        pairs: Whether the inputs of a classifier or a regressor are pairs of texts.
        top_k: Number of predictions per mask, or of answers per question.
        null_threshold: Threshold of a `QuestionAnswerer`; see `AnswererSignatures`.

    Raises:
        ValueError: `pairs` or `null_threshold` does not apply to the model, a number is out of
            range, or the vocabulary does not have the model's size.
    """
    name = f"a {type(model).__name__}{'' if tokenizer else ' without a tokenizer'}"
    if pairs and (tokenizer is None or not isinstance(model, _PAIR_MODELS)):
        raise ValueError(
            "`pairs` requires a SequenceClassifier or a SequenceRegressor with a tokenizer. "
            f"Received: {name}. Omit `pairs`."
        )
    if null_threshold is not None and not (tokenizer and isinstance(model, QuestionAnswerer)):
        raise ValueError(
            "`null_threshold` requires a QuestionAnswerer with a tokenizer. "
            f"Received: {name}. Omit `null_threshold`."
        )
    if tokenizer is not None:
        check_vocabulary(model, tokenizer)
    if isinstance(model, BERTModel):
        of_tokens = TokenSignatures(model)
        if tokenizer is None:
            return of_tokens.signatures()
        return TextSignatures(of_tokens, tokenizer, top_k).signatures() | of_tokens.signatures()
    of_task = TaskTokenSignatures(model)
    if tokenizer is None:
        return of_task.signatures()
    of_text = _text_signatures(of_task, tokenizer, pairs, top_k, null_threshold)
    return of_text.signatures() | of_task.signatures()


def _text_signatures(
    of_tokens: TaskTokenSignatures,
    tokenizer: Tokenizer,
    pairs: bool,
    top_k: int,
    null_threshold: float | None,
) -> TaskTextSignatures:
    match of_tokens.model:
        case SequenceClassifier() | SequenceRegressor():
            return SequenceSignatures(of_tokens, tokenizer, pairs)
        case TokenClassifier():
            return TaggerSignatures(of_tokens, tokenizer)
        case QuestionAnswerer():
            return AnswererSignatures(of_tokens, tokenizer, top_k, null_threshold)
        case _:
            return TaskTextSignatures(of_tokens, tokenizer)
