"""SequenceRegressor: regression on a text or a pair of texts.

B batch, C scores.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import keras
import numpy as np

from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.data_checks import check_finite
from keras_bert_d2l.models.losses import WeightedSquaredError, score_metrics
from keras_bert_d2l.models.tasks.labeled_task import LabeledTask
from keras_bert_d2l.types import Option, Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class SequenceRegressor(LabeledTask):
    """Regression model for texts or pairs of texts, with one or more scores per example.

    `fit`, `evaluate` and `predict` also take strings, as in `SequenceClassifier`.

    Source: transformers, `BertForSequenceClassification` with `problem_type="regression"`.

    Args:
        bert: The pretrained model.
        labels: Names of the scores.
        activation: `"linear"`, or `"sigmoid"` for scores from 0 to 1, as of cross-encoders.
        **options: `dropout`, `pooling`, `long_texts`, `tokenizer` and `name`, as in
            `SequenceClassifier`.

    Call arguments: As for `SequenceClassifier`.

    Returns: Scores `(B, C)`. Labels are floats `(B, C)`, or `(B,)` for one score.

    Raises:
        ValueError: `bert` has no pooler for `pooling="cls"`, `labels` is empty, or `activation` is
            unknown.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    regressor = kb.SequenceRegressor(bert, ["stars"], tokenizer=kb.Tokenizer(vocab))
    regressor.compile(kb.BERTAdamW(2e-5))
    regressor.fit(["what a film", "a bore"], [4.5, 1.0])
    ```
    """

    task = "regress"
    fields = ("labels", "activation", "long_texts", "dropout", "pooling")
    pools = True
    labels_are = "scores"
    calibrated: ClassVar = {}  # no probabilities
    min_labels = 1
    dataset_labels = "numbers"

    def __init__(
        self,
        bert: BERTModel,
        labels: Sequence[str] = ("score",),
        *,
        activation: Literal["linear", "sigmoid"] = "linear",
        **options: Option,
    ) -> None:
        self.activation = check_choice("activation", activation, ("linear", "sigmoid"))
        self.gives_logits = activation == "linear"
        super().__init__(bert, labels, **options)
        self.head.activation = keras.activations.get(activation)

    def answer(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the `scores`, `(B, C)`, which are the outputs themselves."""
        return {"scores": logits}

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(WeightedSquaredError(), score_metrics())

    def weights_of_classes(self, by_label: Mapping[str | int, float]) -> list[float]:
        raise ValueError("`class_weights` needs classes; a SequenceRegressor predicts scores.")

    def label_ids(self, y: object) -> Tensor:
        if not isinstance(y, list | tuple | np.ndarray):
            return y
        check_finite("labels", y)
        return np.asarray(y, "float32")
