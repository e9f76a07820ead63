"""The model of a task in, all its signatures out."""

from keras_bert_d2l.models.tasks.heads import (
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.length_buckets import TextBatches
from keras_bert_d2l.serving.signatures.requests import Signature
from keras_bert_d2l.serving.signatures.spans import SpanAnswers
from keras_bert_d2l.serving.signatures.task import (
    Answers,
    TaskTextSignatures,
    TaskTokenSignatures,
)
from keras_bert_d2l.serving.signatures.texts import LabelAnswers, ScoreAnswers, VectorAnswers
from keras_bert_d2l.serving.signatures.words import WordAnswers
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

PAIR_TASKS = (SequenceClassifier, SequenceRegressor)

_EXAMPLE = "a"  # what a server that warms up asks for each string


def task_signatures(
    model: TaskModel,
    tokenizer: Tokenizer | None,
    *,
    pairs: bool,
    top_k: int,
    null_threshold: float | None,
) -> dict[str, Signature]:
    """Returns the signatures of the model of a task by name.

    Args:
        model: The model.
        tokenizer: Its tokenizer; `None`: there are signatures of token ids alone.
        pairs: Whether it is asked pairs of texts, for the `PAIR_TASKS`.
        top_k: Number of answers of a `QuestionAnswerer`.
        null_threshold: Above which `null_score` it says that there is no answer; `None`: never.
    """
    of_tokens = TaskTokenSignatures(model)
    if tokenizer is None:
        return of_tokens.signatures()
    batches = TextBatches(tokenizer, model.bert_config.max_len)
    answers = _answers(of_tokens, batches, pairs, top_k, null_threshold)
    of_text = TaskTextSignatures(of_tokens, batches, answers, (_EXAMPLE,) * len(answers.specs))
    return {**of_text.signatures(), **of_tokens.signatures()}


def _answers(
    of_tokens: TaskTokenSignatures,
    batches: TextBatches,
    pairs: bool,
    top_k: int,
    null_threshold: float | None,
) -> Answers:
    match of_tokens.model:
        case SequenceClassifier():
            return LabelAnswers(of_tokens, batches, pairs)
        case SequenceRegressor():
            return ScoreAnswers(of_tokens, batches, pairs)
        case TokenClassifier():
            return WordAnswers(of_tokens, batches)
        case QuestionAnswerer():
            return SpanAnswers(of_tokens, batches, top_k, null_threshold)
        case _:
            return VectorAnswers(of_tokens, batches)
