"""All signatures of a model, for pretraining and every task."""

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import (
    MultipleChoice,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.classification import SequenceSignatures
from keras_bert_d2l.serving.signatures.multiple_choice import ChoiceSignatures
from keras_bert_d2l.serving.signatures.pretraining import PretrainingSignatures
from keras_bert_d2l.serving.signatures.question_answering import AnswererSignatures
from keras_bert_d2l.serving.signatures.signature import Signature, TextOptions
from keras_bert_d2l.serving.signatures.tagging import TaggerSignatures
from keras_bert_d2l.serving.signatures.texts import TextSignatures
from keras_bert_d2l.serving.signatures.token_ids import ServedModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_TEXT_SIGNATURES: dict[type[BERTModel | TaskModel], type[TextSignatures]] = {
    BERTModel: PretrainingSignatures,
    SequenceClassifier: SequenceSignatures,
    SequenceRegressor: SequenceSignatures,
    TokenClassifier: TaggerSignatures,
    QuestionAnswerer: AnswererSignatures,
    MultipleChoice: ChoiceSignatures,
    TextEmbedder: TextSignatures,
}
_PAIR_MODELS = (SequenceClassifier, SequenceRegressor)


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
    if options.pairs and (tokenizer is None or not isinstance(model, _PAIR_MODELS)):
        raise ValueError(
            "`pairs` requires a SequenceClassifier or a SequenceRegressor with a tokenizer. "
            f"Received: {name}. Omit `pairs`."
        )
    if options.null_threshold is not None and not (
        tokenizer and isinstance(model, QuestionAnswerer)
    ):
        raise ValueError(
            "`null_threshold` requires a QuestionAnswerer with a tokenizer. "
            f"Received: {name}. Omit `null_threshold`."
        )
    run = ServedModel(model)
    if tokenizer is None:
        return run.signatures()
    check_vocabulary(model, tokenizer)
    kind = next(kind for of, kind in _TEXT_SIGNATURES.items() if isinstance(model, of))
    return kind(run, tokenizer, options).signatures() | run.signatures()
