"""SequenceClassifier: classification of a text or a pair of texts.

B batch, T tokens, C labels.
"""

from collections.abc import Sequence
from typing import ClassVar

import keras
import numpy as np

from keras_bert_d2l.checks import check_bool, check_not_negative, check_that
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.losses import WeightedBinaryCrossEntropy, binary_metrics
from keras_bert_d2l.models.tasks.labeled_task import LabeledTask, multi_hot
from keras_bert_d2l.types import Option, Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class SequenceClassifier(LabeledTask):
    """Classifier for texts or pairs of texts, with one or more labels per example.

    Dropout and a dense layer compute the logits from the pooler's output, or from the mean of the
    encoded tokens.

    `fit`, `evaluate` and `predict` also take strings: `x` is a list of texts, or
    `{"texts": [...], "texts_b": [...]}` for pairs, or a dataset of such batches. Pairs that are
    too long for the model are truncated, and so are single texts, unless `long_texts` says
    otherwise: then the first 8 windows of a text count. `y` may contain label names, ids or one-hot
    rows, or lists of label names with `multi_label`. `predict` returns logits, and probabilities
    with `probabilities=True`.

    Source: Devlin et al. 2019, figure 4 (a, b); transformers, `BertForSequenceClassification`, and
    `classifier_pooling` of `ModernBertForSequenceClassification`.

    Args:
        bert: The pretrained model.
        labels: Label names, in the order of their ids.
        multi_label: Whether a text can have any number of the labels.
        thresholds: With `multi_label`, the least probability of each label that a text has; see
            `calibrate`. `None`: 0.5.
        **options: `dropout`, the dropout rate before the head (`None`: the rate of `bert`);
            `pooling`, what the head reads: `"cls"`, the pooler's output for `[CLS]`, or `"mean"`,
            the mean of the encoded tokens (`None`: `"cls"` if `bert` has a trained pooler,
            otherwise `"mean"`); `long_texts`, `"cut"` to truncate texts that are too long, or
            `"mean"` or `"max"` to pool the logits of windows; `tokenizer`, which converts strings
            to batches; `temperature`, the divisor of the logits in all probabilities; and `name`.

    Call arguments:
        tokens: Token ids, int `(B, T)`; or a dictionary of the call arguments.
        segments: Segment ids, int `(B, T)`: 0 for the first text and 1 for the second. `None`, or
            a dictionary without them: 0 for all tokens.
        valid_lens: Number of non-padding tokens in each row, `(B,)`. `None`: all tokens.
        training: Whether to apply dropout.

    Returns: Logits `(B, C)`. Labels are int `(B,)`; with `multi_label`, 0 or 1, `(B, C)`.

    Raises:
        ValueError: `bert` has no pooler for `pooling="cls"`, or there are fewer than two labels.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=kb.Tokenizer(vocab))
    classifier.compile(kb.BERTAdamW(2e-5))
    classifier.fit(["what a film", "a bore"], ["good", "bad"])
    ```
    """

    task = "classify"
    fields = ("labels", "multi_label", "long_texts", "dropout", "pooling")
    calibrated: ClassVar = {"temperature": 1.0, "thresholds": None}
    pools = True

    def __init__(
        self,
        bert: BERTModel,
        labels: Sequence[str],
        *,
        multi_label: bool = False,
        thresholds: Sequence[float] | None = None,
        **options: Option,
    ) -> None:
        self.multi_label = check_bool("multi_label", multi_label)
        self.min_labels = 1 if self.multi_label else 2
        if self.multi_label:
            self.labels_are = "rows"
            self.dataset_labels = (
                "rows of 0 and 1, as from keras.layers.StringLookup(vocabulary=model.labels, "
                "num_oov_indices=0, output_mode='multi_hot')"
            )
        super().__init__(bert, labels, **options)
        is_right = thresholds is None or (multi_label and len(thresholds) == len(labels))
        check_that(is_right, "thresholds", "one per label, with `multi_label`", thresholds)
        self.thresholds = thresholds and tuple(
            check_not_negative("thresholds", x, 1) for x in thresholds
        )

    def answer(self, logits: Tensor) -> dict[str, Tensor]:
        """Return the probabilities of labels, `scores` `(B, C)`, and the labels that apply.

        These are the most likely one, `id` int32 `(B,)` and its `score`; or with `multi_label` all
        with a probability of at least their threshold, `is_label` bool `(B, C)`.
        """
        if self.multi_label:
            scores = keras.ops.sigmoid(self.tempered(logits))
            least = 0.5 if self.thresholds is None else np.array(self.thresholds, "float32")
            return {"scores": scores, "is_label": scores >= least}
        return super().answer(logits)

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        if self.multi_label:
            return Training(
                WeightedBinaryCrossEntropy(class_weights=class_weights), binary_metrics()
            )
        return super().default_training(class_weights)

    def label_ids(self, y: object) -> Tensor:
        if self.multi_label:
            return multi_hot(y, self.labels)
        return super().label_ids(y)
