"""The tasks of BERT: one text or a pair classified or scored, tokens tagged, answers found, texts
made vectors.

B batch, T tokens, C labels, D hidden width.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.layers.masks import combine_masks, valid_lens_mask
from keras_bert_d2l.layers.pooling import Pooling, PoolingKind
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.contrastive import ContrastiveLoss
from keras_bert_d2l.models.losses import (
    WeightedBinaryCrossEntropy,
    WeightedCrossEntropy,
    WeightedSquaredError,
)
from keras_bert_d2l.models.metrics import binary_metrics, label_metrics, score_metrics
from keras_bert_d2l.models.tasks import answer_labels
from keras_bert_d2l.models.tasks import strings as text_batches
from keras_bert_d2l.models.tasks.label_names import (
    check_dropout,
    check_labels,
    label_ids,
    multi_hot,
    word_label_ids,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel, check_bert, dense_head, precise_policy

WINDOW_LEN = 384  # tokens of a question and its context: google-research/bert, run_squad.py
IGNORED = -100  # the label of a token that has none; any number below 0 is as good


class LabelledTask(TaskModel):
    """A task that has an output for each of its labels.

    Args:
        bert: The pretrained model.
        labels: The names of the labels, in the order of their ids.
        dropout: Rate of the dropout before the head; `None`: the `dropout` of `bert`.
        tokenizer: Turns strings into batches.
        **kwargs: `name` of Keras.

    Raises:
        ValueError: `bert` is not fit for the task, or there are fewer than `min_labels` labels.
    """

    fields: tuple[str, ...] = ("labels", "dropout")
    min_labels = 2

    def __init__(
        self,
        bert: BERTModel,
        labels: Sequence[str],
        *,
        dropout: float | None = None,
        tokenizer: Any = None,
        **kwargs: Any,
    ) -> None:
        check_bert(bert, type(self))
        self.labels = check_labels(labels, self.min_labels)
        super().__init__(
            bert,
            head=dense_head(bert, len(self.labels)),
            dropout=check_dropout(dropout, bert),
            tokenizer=tokenizer,
            **kwargs,
        )


@keras.saving.register_keras_serializable("keras_bert_d2l")
class SequenceClassifier(LabelledTask):
    """Tells which label a text or a pair of texts has, or which labels.

    Source: Devlin et al. 2019, figure 4 (a, b); transformers, `BertForSequenceClassification`:
    the pooler's output, dropout, a dense layer.

    Strings may stand for the batch: `x` is a list of texts, or `{"texts": [...], "texts_b":
    [...]}` for pairs; or a data set of batches of these. A text that is too long for the model
    loses its end. `y` may hold names of labels, or for `multi_label` lists of names.

    Args:
        bert: The pretrained model, with a pooler.
        labels: The names of the labels, in the order of their ids.
        multi_label: Whether a text can have any number of the labels.
        **kwargs: `dropout`, the rate before the head (`None`: that of `bert`), `tokenizer`, which
            turns strings into batches, and `name` of Keras.

    Call arguments:
        tokens: Token ids, int `(B, T)`; or a dictionary of the call arguments.
        segments: Segment ids, int `(B, T)`.
        valid_lens: Tokens of each row that are not padding, `(B,)`; `None`: all.
        training: Whether dropout acts.

    Returns: logits `(B, C)`. Labels are int `(B,)`, for `multi_label` 0 and 1 `(B, C)`.

    Raises:
        ValueError: `bert` has no pooler, or there are fewer than two labels.

    Example:

    ```python
    classifier = SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    classifier.compile(BERTAdamW(2e-5))
    classifier.fit(["what a film", "a bore"], ["good", "bad"])
    ```
    """

    fields = ("labels", "multi_label", "dropout")
    has_pooler = True

    def __init__(
        self, bert: BERTModel, labels: Sequence[str], *, multi_label: bool = False, **kwargs: Any
    ) -> None:
        self.multi_label = bool(multi_label)
        self.min_labels = 1 if self.multi_label else 2
        super().__init__(bert, labels, **kwargs)

    def default_training(self, class_weights: Sequence[float] | None) -> dict[str, Any]:
        if self.multi_label:
            loss: Any = WeightedBinaryCrossEntropy(class_weights=class_weights)
            return {"loss": loss, "weighted_metrics": binary_metrics()}
        loss = WeightedCrossEntropy(class_weights=class_weights)
        return {"loss": loss, "weighted_metrics": label_metrics()}

    def label_ids(self, y: Any) -> Any:
        return (multi_hot if self.multi_label else label_ids)(y, self.labels)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class SequenceRegressor(LabelledTask):
    """Gives a text or a pair of texts a score, or several.

    Source: transformers, `BertForSequenceClassification` with `problem_type="regression"`.
    Strings may stand for the batch, as for `SequenceClassifier`.

    Args:
        bert: The pretrained model, with a pooler.
        labels: The names of the scores.
        **kwargs: `dropout`, the rate before the head (`None`: that of `bert`), `tokenizer`, which
            turns strings into batches, and `name` of Keras.

    Call arguments: as those of `SequenceClassifier`.

    Returns: scores `(B, C)`. Labels are floats `(B, C)`, or `(B,)` for one score.

    Raises:
        ValueError: `bert` has no pooler, or there is no label.
    """

    has_pooler = True
    min_labels = 1

    def __init__(self, bert: BERTModel, labels: Sequence[str] = ("score",), **kwargs: Any) -> None:
        super().__init__(bert, labels, **kwargs)

    def default_training(self, class_weights: Sequence[float] | None) -> dict[str, Any]:
        if class_weights is not None:
            raise ValueError("`class_weights` weighs labels, and a score has none.")
        return {"loss": WeightedSquaredError(), "weighted_metrics": score_metrics()}

    def label_ids(self, y: Any) -> Any:
        return np.asarray(y, "float32") if isinstance(y, list | tuple) else y


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TokenClassifier(LabelledTask):
    """Gives every token a label: parts of speech, names and the like.

    Source: Devlin et al. 2019, figure 4 (d); transformers, `BertForTokenClassification`.

    Tokens whose label is below 0 are ignored, by loss and metrics: `IGNORED` is -100. Words may
    stand for the batch: `x` holds the words of each text and `y` their labels, as names or ids,
    in lists of lists or ragged tensors; the label of a word is that of its first token, and its
    other tokens are ignored.

    Args:
        bert: The pretrained model.
        labels: The names of the labels, in the order of their ids.
        dropout: Rate of the dropout before the head; `None`: the `dropout` of `bert`.
        tokenizer: Turns words into batches.
        **kwargs: `name` of Keras.

    Call arguments: as those of `SequenceClassifier`.

    Returns: logits `(B, T, C)`. Labels are int `(B, T)`.

    Raises:
        ValueError: There are fewer than two labels.
    """

    gives_tokens = True

    def default_training(self, class_weights: Sequence[float] | None) -> dict[str, Any]:
        loss = WeightedCrossEntropy(class_weights=class_weights)
        return {"loss": loss, "weighted_metrics": label_metrics()}

    def label_ids(self, y: Any) -> Any:
        return word_label_ids(y, self.labels)

    def text_batch(self, texts: Any) -> dict[str, Any]:
        return self.tokenizer.from_words(texts, max_len=self.bert_config.max_len)

    def text_targets(
        self, texts: Any, batch: Mapping[str, Any], labels: Any, *weights: Any
    ) -> tuple[Any, ...]:
        return text_batches.first_piece_labels(labels, batch["word_ids"], IGNORED), *weights


@keras.saving.register_keras_serializable("keras_bert_d2l")
class QuestionAnswerer(TaskModel):
    """Tells where in a text the answer to a question begins and ends.

    Source: Devlin et al. 2019, section 4.2; transformers, `BertForQuestionAnswering`.

    Strings may stand for the batch: `x` is `{"questions": [...], "contexts": [...]}`, and `y` has
    for each question `{"text": ..., "start": ...}`, its answer and the answer's first character
    in the context, or an object with these attributes; several, of which the first is learned; or
    `None` or nothing where the context has no answer. Or a data set of batches of these, whose
    labels are tensors: `{"text": (B,), "start": (B,)}`, the text `""` for no answer.

    A long context becomes several rows, windows that overlap: `fit` and `evaluate` see more rows
    than questions then, each with the weight of its question. A row that does not hold the whole
    answer is labelled as without one; where no row holds it, all of them are ignored. `predict`
    returns a row for each window, in order, and `tokenizer.windows(questions, contexts,
    *model.window_sizes)["rows"]` tells which question it is of. `answer` gives answers as text.

    Args:
        bert: The pretrained model.
        **kwargs: `name` of Keras, and `tokenizer`, which turns strings into batches.

    Call arguments: as those of `SequenceClassifier`.

    Returns: `{"start": (B, T), "end": (B, T)}`, logits of the answer's first and last token.
        Labels are positions, `{"start": (B,), "end": (B,)}`; one below 0 is ignored.

    Example:

    ```python
    answerer = QuestionAnswerer(bert, tokenizer=tokenizer)
    answerer.compile(BERTAdamW(3e-5))
    x = {"questions": ["Who wrote it?"], "contexts": ["It was written by Ada."]}
    answerer.fit(x, [{"text": "Ada", "start": 18}])
    ```
    """

    gives_tokens = True

    def __init__(self, bert: BERTModel, **kwargs: Any) -> None:
        check_bert(bert, type(self))
        super().__init__(bert, head=dense_head(bert, 2), **kwargs)

    def answer(self, encoded_X: Any, tokens: Any, valid_lens: Any, training: bool | None) -> Any:
        logits = super().answer(encoded_X, tokens, valid_lens, training)
        return {"start": logits[..., 0], "end": logits[..., 1]}

    def default_training(self, class_weights: Sequence[float] | None) -> dict[str, Any]:
        sides = ("start", "end")
        return {
            "loss": {side: WeightedCrossEntropy() for side in sides},
            "loss_weights": dict.fromkeys(sides, 0.5),
            "weighted_metrics": {side: label_metrics() for side in sides},
        }

    @property
    def window_sizes(self) -> tuple[int, int]:
        """Tokens of a window, and those it has in common with the next, as `answer` has them."""
        max_len = min(WINDOW_LEN, self.bert_config.max_len)
        return max_len, max_len // 3

    def label_ids(self, y: Any) -> Any:
        return answer_labels.answer_tensors(y)

    def checked_texts(self, x: Any, y: Any = None) -> Any:
        answer_labels.check_keys(x)
        texts = super().checked_texts(x)
        lengths = self.tokenizer.tokenize(texts["questions"]).row_lengths()
        most = answer_labels.longest_question(*self.window_sizes)
        answer_labels.check_examples(texts, y, lengths, most)
        return texts

    def text_batch(self, texts: Any) -> dict[str, Any]:
        answer_labels.check_keys(texts)
        max_len, overlap = self.window_sizes
        return self.tokenizer.windows(texts["questions"], texts["contexts"], max_len, overlap)

    def text_targets(
        self, texts: Any, batch: Mapping[str, Any], labels: Any, *weights: Any
    ) -> tuple[Any, ...]:
        starts, ends = answer_labels.character_spans(texts["contexts"], labels)
        spans = self.tokenizer.answer_spans(batch, starts, ends)
        labels = answer_labels.window_labels(spans, batch["rows"], starts, IGNORED)
        return labels, *answer_labels.of_windows(weights, batch["rows"])


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TextEmbedder(TaskModel):
    """Makes a text a vector, by which it can be compared with others.

    Source: Reimers and Gurevych 2019 (Sentence-BERT). A list of texts may stand for the batch, as
    for `SequenceClassifier`, but no pairs: each text has a vector of its own.

    It is trained to bring texts of one group near each other. The labels are the groups: ids, or
    names in a list. For pairs of texts that mean the same, the i-th pair is the group i, and both
    texts have to be in one batch.

    Args:
        bert: The pretrained model.
        pooling: `"cls"` (the encoded `[CLS]`), `"mean"` or `"max"` over all tokens.
        normalize: Whether vectors have the length 1, so that their product is their cosine.
        **kwargs: `name` of Keras, and `tokenizer`, which turns strings into batches.

    Call arguments: as those of `SequenceClassifier`.

    Returns: vectors `(B, D)`. Labels are int `(B,)`; a text whose label is below 0 is of no group.

    Raises:
        ValueError: There is no such pooling.

    Example:

    ```python
    embedder = TextEmbedder(bert, tokenizer=tokenizer)
    embedder.compile(BERTAdamW(2e-5))
    texts = [text for pair in pairs for text in pair]
    groups = [number for number in range(len(pairs)) for _ in range(2)]
    embedder.fit(texts, groups, batch_size=64, shuffle=False)
    ```
    """

    fields = ("pooling", "normalize")
    has_head = False

    def __init__(
        self,
        bert: BERTModel,
        pooling: PoolingKind = "mean",
        *,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        check_bert(bert, type(self))
        head = Pooling(pooling, normalize=normalize, dtype=precise_policy(bert), name="head")
        super().__init__(bert, head=head, **kwargs)
        self.pooling = pooling
        self.normalize = bool(normalize)

    def answer(self, encoded_X: Any, tokens: Any, valid_lens: Any, training: bool | None) -> Any:
        mask = combine_masks(
            valid_lens_mask(valid_lens, ops.shape(encoded_X)[1]),
            # The same tokens as the encoder attends to.
            ops.cast(tokens, "int32") > 0 if self.bert_config.mask_from == "tokens" else None,
        )
        return self.head(encoded_X, None if mask is None else mask[:, 0])

    def default_training(self, class_weights: Sequence[float] | None) -> dict[str, Any]:
        return {"loss": ContrastiveLoss(), "weighted_metrics": None}

    def label_ids(self, y: Any) -> Any:
        if not isinstance(y, list | tuple | np.ndarray):
            return y
        y = np.asarray(y)
        return np.unique(y, return_inverse=True)[1] if y.dtype.kind in "USO" else y

    def text_batch(self, texts: Any) -> dict[str, Any]:
        if isinstance(texts, Mapping) and "texts_b" in texts:
            raise ValueError(
                "A TextEmbedder takes single texts. Received: pairs; put both texts of a pair in "
                "the list, next to each other, with the same label."
            )
        return super().text_batch(texts)


TASKS: dict[str, type[TaskModel]] = {
    task.__name__: task
    for task in (
        SequenceClassifier,
        SequenceRegressor,
        TokenClassifier,
        QuestionAnswerer,
        TextEmbedder,
    )
}
