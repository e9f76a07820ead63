"""MultipleChoice: the choice that fits a text best.

B batch, N choices, T tokens, R rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np

from keras_bert_d2l.checks import IGNORED, check_range, is_in_graph, shown
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.models.tasks.labeled_task import ids_of_rows
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import Batch, Preprocessor, Texts, as_tensors
from keras_bert_d2l.types import Option, Tensor


class ChoicePreprocessor(Preprocessor):
    """Converts texts and their choices, `{"texts": (B,), "choices": (B, N)}`."""

    keys = ("texts", "choices")
    form = '{"texts": [...], "choices": [[...], ...]}'

    def checked(self, x: Any, y: Tensor | None = None) -> Texts:
        texts = as_tensors(x)
        choices = _dense_choices(self._sides(texts)["choices"])
        if choices.shape.rank != 2:
            raise self._wrong_form(f"choices={shown(x['choices'])}")
        if y is not None:
            _check_positions(y, choices.shape[1])
        return texts

    def rows(self, *texts: Any, **options: Any) -> Batch:
        """Return the rows of texts with their choices, `(B, N, T)`."""
        import tensorflow as tf

        rows, shape = self.flat_rows(*texts)
        return {
            name: tf.reshape(x, tf.concat([shape, tf.shape(x)[1:]], 0)) for name, x in rows.items()
        }

    def flat_rows(self, texts: Tensor, choices: Tensor) -> tuple[Batch, Tensor]:
        """Return the rows, `(B * N, T)`, and the shape `(B, N)`."""
        import tensorflow as tf

        choices = _dense_choices(choices)
        shape = tf.shape(choices)
        message = "`choices` must have one row per text, each with at least one choice."
        is_right = (tf.size(texts) == shape[0]) & (shape[1] > 0)
        with tf.control_dependencies([tf.debugging.Assert(is_right, [message])]):
            first, second = tf.repeat(texts, shape[1]), tf.reshape(choices, [-1])
        return super().rows(first, second), shape


@keras.saving.register_keras_serializable("keras_bert_d2l")
class MultipleChoice(TaskModel):
    """Multiple choice: which of N texts continues a text or answers a question.

    Each choice forms a row with the text. Dropout and a dense layer compute the score of a row from
    the pooler's output, or from the mean of the encoded tokens, and the softmax compares the scores
    of the N choices. The weights do not depend on N.

    `fit`, `evaluate` and `predict` also take strings: `x` is `{"texts": [...], "choices": [...]}`
    with N choices per text, or a dataset of such batches, and `y` contains the positions of the
    right choices. Pairs that are too long are truncated, the longer text first.

    Source: Radford et al. 2018; Zellers et al. 2018 (SWAG); transformers, `BertForMultipleChoice`.

    Args:
        bert: The pretrained model.
        dropout: Dropout rate before the head. `None`: the `dropout` of `bert`.
        pooling: What the head reads, as for `SequenceClassifier`.
        **options: `tokenizer`, which converts strings to batches, and `name`.

    Call arguments:
        tokens: Token ids, int `(B, N, T)`; or a dictionary of the call arguments. Single rows
            `(R, T)` are scored on their own.
        segments: Segment ids, int, of the same shape: 0 for the text and 1 for the choice.
        valid_lens: Number of non-padding tokens in each row, `(B, N)`. `None`: all tokens.
        training: Whether to apply dropout.

    Returns: Scores `(B, N)`, which are logits, or `(R,)`. Labels are int `(B,)`, from 0 to N - 1.

    Raises:
        ValueError: `bert` has no pooler for `pooling="cls"`.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] she opens the door sky".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    model = kb.MultipleChoice(bert, tokenizer=kb.Tokenizer(vocab))
    model.compile(kb.BERTAdamW(2e-5))
    x = {"texts": ["she opens", "the"], "choices": [["the door", "sky"], ["opens", "sky"]]}
    model.fit(x, [0, 1])
    ```
    """

    task = "choose"
    preprocessing = ChoicePreprocessor
    fields = ("dropout", "pooling")
    calibrated: ClassVar = {"temperature": 1.0}
    pools = True

    def __init__(self, bert: BERTModel, *, dropout: float | None = None, **options: Option) -> None:
        super().__init__(bert, head=1, dropout=dropout, **options)

    def call(
        self,
        tokens: Tensor | Batch,
        segments: Tensor | None = None,
        valid_lens: Tensor | None = None,
        training: bool | None = None,
        attention_mask: Tensor | None = None,
        return_hidden_states: bool = False,
        return_attention: bool = False,
    ) -> Tensor | dict[str, Tensor]:
        names = ("tokens", "segments", "valid_lens", "attention_mask")
        values = (tokens, segments, valid_lens, attention_mask)
        is_batch = isinstance(tokens, Mapping)
        features: Batch = tokens if is_batch else dict(zip(names, values, strict=True))
        shape = keras.ops.shape(features["tokens"])[:-1]  # (B, N) or (R,)
        found = super().call(
            {
                name: keras.ops.reshape(x, (-1, *keras.ops.shape(x)[len(shape) :]))
                for name, x in features.items()
                if x is not None
            },
            training=training,
            return_hidden_states=return_hidden_states,
            return_attention=return_attention,
        )
        if isinstance(found, Mapping):
            return {**found, "output": keras.ops.reshape(found["output"], shape)}
        return keras.ops.reshape(found, shape)

    def head_outputs(self, encoded_X: Tensor, is_token: Tensor | None = None) -> Tensor:
        return super().head_outputs(encoded_X, is_token)[:, 0]

    def answer(self, logits: Tensor, is_choice: Tensor = True) -> dict[str, Tensor]:
        """Return the `scores` of choices, `(B, N)`, and the `index` and `score` of the best.

        Args:
            logits: `(B, N)`.
            is_choice: Which of them belong to choices, bool `(B, N)`. The scores of others are 0.
        """
        logits = keras.ops.where(is_choice, self.tempered(logits), np.finfo("float32").min)
        scores = keras.ops.softmax(logits)
        best = keras.ops.argmax(scores, axis=-1)
        score = keras.ops.max(scores, axis=-1)
        return {"index": keras.ops.cast(best, "int32"), "score": score, "scores": scores}

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        return Training(WeightedCrossEntropy(), label_metrics())

    def check_batch(self, x: Tensor, y: Tensor = None) -> None:
        if isinstance(x, Mapping) and len(getattr(x.get("tokens"), "shape", ())) == 3:
            num_choices = x["tokens"].shape[1]
            if y is not None and num_choices is not None:
                _check_positions(y, num_choices)
            x = {name: _rows(feature, name) for name, feature in x.items()}
        super().check_batch(x)

    def label_ids(self, y: object) -> Tensor:
        if not isinstance(y, list | tuple | np.ndarray):
            return y
        labels = ids_of_rows(np.asarray(y))
        is_array = isinstance(y, np.ndarray)
        if labels.dtype.kind not in "iuf" or (not is_array and (labels % 1).any()):
            raise ValueError(
                "Labels must be the positions of the right choices, from 0. Received: "
                f"{shown(list(y))}."
            )
        return labels


def _check_positions(labels: Tensor, num_choices: int) -> None:
    check_range("labels", labels, 0, num_choices - 1, "They are positions.", ignored=IGNORED)


def _rows(feature: Tensor, name: str) -> Tensor:
    """Return a feature of choices, `(B, N, ...)`, as that of rows, `(B * N, ...)`."""
    rest = () if name == "valid_lens" else tuple(feature.shape[2:])
    if not is_in_graph(feature):
        return np.reshape(feature, (-1, *rest))
    import tensorflow as tf

    return tf.reshape(feature, tf.concat([[-1], tf.shape(feature)[2:]], 0))


def _dense_choices(choices: Tensor) -> Tensor:
    """Return choices as strings `(B, N)`; raise an error if some texts have more than others."""
    import tensorflow as tf

    if not isinstance(choices, tf.RaggedTensor):
        return choices
    message = "Every text must have the same number of choices."
    sizes = choices.row_lengths()
    are_equal = tf.reduce_all(sizes == sizes[:1])
    if tf.executing_eagerly() and not are_equal:
        raise ValueError(f"{message} Received: {sorted(set(sizes.numpy().tolist()))}.")
    with tf.control_dependencies([tf.debugging.Assert(are_equal, [message])]):
        return choices.to_tensor()
