"""TokenClassifier: classification of every token.

B batch, T tokens, C labels.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checks import IGNORED, check_bool, check_that
from keras_bert_d2l.contract.task import lazy
from keras_bert_d2l.layers.crf import CRF
from keras_bert_d2l.layers.heads import precise_policy
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import Labels, Training
from keras_bert_d2l.models.losses import CRFLoss
from keras_bert_d2l.models.tasks.labeled_task import LabeledTask, word_label_ids
from keras_bert_d2l.models.tasks.task_model import CalibrationRow
from keras_bert_d2l.tasks.tag.entities import allowed_moves
from keras_bert_d2l.types import ConfigDict, Option, Tensor

_ROWS_AT_ONCE = 256  # the probabilities of all their moves are in memory


@keras.saving.register_keras_serializable("keras_bert_d2l")
class TokenClassifier(LabeledTask):
    """Token classifier, for example for parts of speech or named entities.

    Losses and metrics ignore tokens with the label -100.

    `fit`, `evaluate` and `predict` also take words: `x` contains the words of each text and `y`
    their labels (names or ids), as lists of lists or ragged tensors. The first token of a word
    gets the label of the word; its other tokens are ignored. A text that is too long for the model
    gives several rows, which overlap by half; each word counts in one of them. `predict` returns
    one row per window, in order; `model.preprocessor.rows(words)["windows"]` says which text each
    belongs to. Use `tag` to get labels as text.

    Source: Devlin et al. 2019, figure 4 (d); transformers, `BertForTokenClassification`.

    Args:
        bert: The pretrained model.
        labels: Label names, in the order of their ids.
        crf: Whether to score all tags of a text together, by a linear-chain CRF. `fit` then trains
            the log-likelihood of the tags in each row, as a mean over the words; there are no other
            losses, metrics of Keras and class weights. `tag`, `evaluate` and exports return the
            best sequence of tags over all windows of a text, with marginals as scores; `predict`
            returns the logits as they are.
        valid_tags: With a CRF, exclude tags that break the scheme of the labels, BIO or BIOES, from
            predictions and marginals. Training ignores it, because data may break its scheme. It
            can be set later: `model.valid_tags = True`.
        dropout: Dropout rate before the head. `None`: the `dropout` of `bert`.
        tokenizer: Converts words to batches.
        name: Name of the model.

    Attributes:
        crf: The `CRF`, or `None`. Its weights are `crf.transitions` `(C, C)`, from the label of the
            row to that of the column, `crf.start` and `crf.end`, `(C,)`. `BERTAdamW` trains them at
            a hundred times the learning rate of the other weights.

    Call arguments: As for `SequenceClassifier`.

    Returns: Logits `(B, T, C)`. Labels are int `(B, T)`.

    Raises:
        ValueError: There are fewer than two labels, or `valid_tags` is set without a CRF or a
            scheme.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] ada wrote it".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    tagger = kb.TokenClassifier(bert, ["noun", "verb", "pronoun"], tokenizer=kb.Tokenizer(vocab))
    tagger.compile(kb.BERTAdamW(2e-5))
    tagger.fit([["ada", "wrote", "it"]], [["noun", "verb", "pronoun"]])
    ```
    """

    task = "tag"
    preprocessing = lazy("keras_bert_d2l.tasks.tag.rows:WordPreprocessor")
    gives_tokens = has_token_labels = True
    labels_are: Labels = "ids"
    fields = (*LabeledTask.fields, "crf", "valid_tags")

    def __init__(
        self,
        bert: BERTModel,
        labels: Sequence[str],
        *,
        crf: bool = False,
        valid_tags: bool = False,
        **options: Option,
    ) -> None:
        super().__init__(bert, labels, **options)
        self.crf = None
        if check_bool("crf", crf):
            self.crf = CRF(len(self.labels), dtype=precise_policy(bert), name="crf")
            self.labels_are = "tags"
        self.valid_tags = valid_tags

    def __setattr__(self, name: str, value: object) -> None:
        if name == "valid_tags" and check_bool(name, value):
            is_right = self.crf is not None and allowed_moves(self.labels) is not None
            check_that(is_right, name, "False without a CRF and labels of BIO or BIOES", value)
        super().__setattr__(name, value)

    def task_config(self) -> ConfigDict:
        return {**super().task_config(), "crf": self.crf is not None}

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        if self.crf is None:
            return super().default_training(class_weights)
        expected = "None with a CRF, which scores all tags of a text together"
        check_that(class_weights is None, "class_weights", expected, class_weights)
        return Training(CRFLoss(self.crf), None)

    def answer(self, logits: Tensor, num_words: Tensor | None = None) -> dict[str, Tensor]:
        """Return what the logits say, as `LabeledTask.answer` does.

        With a CRF, the `id` is that of the best sequence, and `scores` are marginals.

        Args:
            logits: The logits of tokens, `(..., C)`; with a CRF those of all words of texts, in
                order, `(B, W, C)`.
            num_words: With a CRF, the number of words of each text, int `(B,)`.
        """
        if self.crf is None:
            return super().answer(logits)
        check_that(num_words is not None, "num_words", "the number of words with a CRF", None)
        logits = ops.cast(logits, "float32")
        place = ops.cumsum(logits[:, :, 0] * 0.0 + 1.0, axis=1)  # of symbolic length in an export
        is_word = place <= ops.cast(num_words, "float32")[:, None]
        allowed = allowed_moves(self.labels) if self.valid_tags else None
        best = self.crf.viterbi(logits, is_word, allowed)
        scores = self.crf.marginals(logits, is_word, allowed, self.temperature)
        is_best = ops.equal(best[:, :, None], np.arange(len(self.labels), dtype="int32"))
        score = ops.sum(ops.where(is_best, scores, 0.0), axis=-1)
        return {"scores": scores, "score": score, "id": best}

    def decisions(self, rows: Sequence[CalibrationRow]) -> CalibrationRow:
        if self.crf is None:
            return super().decisions(rows)
        parts = []
        for logits, labels in _batches(rows):
            found = self.answer(logits, (labels != IGNORED).sum(axis=1))
            both = np.asarray(found["score"]), np.asarray(found["id"]) == labels
            parts.append([x[labels != IGNORED] for x in both])
        confidence, is_right = map(np.concatenate, zip(*parts, strict=True))
        return confidence, is_right

    def negative_log_likelihood(self, rows: Sequence[CalibrationRow]) -> Callable[[float], float]:
        if (crf := self.crf) is None:
            return super().negative_log_likelihood(rows)
        batches = list(_batches(rows))
        return lambda temperature: (
            -sum(float(ops.sum(crf.log_likelihood(*batch, temperature))) for batch in batches)
        )

    def label_ids(self, y: object) -> Tensor:
        return word_label_ids(y, self.labels)


def _batches(rows: Sequence[CalibrationRow]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the logits and labels of the words of rows as padded arrays, `(B, W, C)`, `(B, W)`."""
    pad = functools.partial(keras.utils.pad_sequences, padding="post")
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        logits, labels = zip(*rows[start : start + _ROWS_AT_ONCE], strict=True)
        yield pad(logits, dtype="float32"), pad(labels, value=IGNORED)
