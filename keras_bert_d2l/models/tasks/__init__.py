"""Task models: classification, regression, tagging, answers, multiple choice, embedding."""

from keras_bert_d2l.models.tasks.answerer import QuestionAnswerer
from keras_bert_d2l.models.tasks.classifier import SequenceClassifier
from keras_bert_d2l.models.tasks.embedder import TextEmbedder
from keras_bert_d2l.models.tasks.multiple_choice import MultipleChoice
from keras_bert_d2l.models.tasks.regressor import SequenceRegressor
from keras_bert_d2l.models.tasks.tagger import TokenClassifier
from keras_bert_d2l.models.tasks.task_model import TaskModel

TASKS: dict[str, type[TaskModel]] = {
    task.__name__: task
    for task in (
        SequenceClassifier,
        SequenceRegressor,
        TokenClassifier,
        QuestionAnswerer,
        MultipleChoice,
        TextEmbedder,
    )
}
