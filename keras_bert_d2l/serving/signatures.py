"""The questions that a served model answers: strings or token ids in, float32 answers out.

B texts in a batch, T tokens, P predicted positions, M (most) masks in a text, D hidden width,
V vocabulary, k predictions for a mask.
"""

from typing import Any

import tensorflow as tf

from keras_bert_d2l.inference.fill_mask import top_predictions
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer import Tokenizer

TEXT_SPECS = (tf.TensorSpec((None,), tf.string, name="text"),)
TOKENS_SPECS = (
    tf.TensorSpec((None, None), tf.int32, name="tokens"),
    tf.TensorSpec((None, None), tf.int32, name="segments"),
    tf.TensorSpec((None,), tf.int32, name="valid_lens"),
    tf.TensorSpec((None, None), tf.int32, name="pred_positions"),
)


class TokenSignatures:
    """The answers of a pretraining model to token ids.

    Args:
        model: The model; dropout is off.
    """

    def __init__(self, model: BERTModel) -> None:
        self.model = model

    def tokens(
        self,
        tokens: tf.Tensor,
        segments: tf.Tensor,
        valid_lens: tf.Tensor,
        pred_positions: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Runs the whole model.

        Args:
            tokens: Token ids with special tokens and padding, int32 `(B, T)`.
            segments: Segment ids, int32 `(B, T)`.
            valid_lens: Tokens of each row that are not padding, int32 `(B,)`.
            pred_positions: Positions to predict, int32 `(B, P)`; P may be 0.

        Returns: `encoded` `(B, T, D)`, `pooled` `(B, D)`, `mlm_logits` `(B, P, V)` and
            `nsp_logits` `(B, 2)`, whose column 1 is "is next", all float32; without what the
            model has not.
        """
        encoded, mlm_logits, nsp_logits = self.model(
            tokens, segments, valid_lens, pred_positions, training=False
        )
        outputs = {"encoded": encoded, "mlm_logits": mlm_logits, "nsp_logits": nsp_logits}
        outputs["pooled"] = _pooled(self.model, encoded)
        return _float32(outputs)


class TextSignatures:
    """The answers of a pretraining model to strings.

    A text longer than the model's `max_len` loses its end. The batch is padded to its longest text,
    which changes no answer.

    Args:
        model: The model; dropout is off.
        tokenizer: Its tokenizer.
        top_k: Predictions for each mask, k.
    """

    def __init__(self, model: BERTModel, tokenizer: Tokenizer, top_k: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.top_k = top_k

    def embed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Describes texts by vectors.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding` `(B, D)`, the mean of the encoded tokens, special ones included;
            `pooled` `(B, D)`, the output of the pooler; `nsp` `(B, 2)`, probabilities of which
            the second is that of "is next"; all float32, without what the model has not.
        """
        batch = self._batch(text)
        encoded, _, nsp_logits = self.model(**batch, training=False)
        is_valid = tf.sequence_mask(batch["valid_lens"], tf.shape(encoded)[1], tf.float32)  # (B, T)
        total = tf.einsum("btd,bt->bd", tf.cast(encoded, tf.float32), is_valid)
        embedding = total / tf.cast(batch["valid_lens"], tf.float32)[:, None]
        outputs = {"embedding": embedding, "pooled": _pooled(self.model, encoded)}
        if nsp_logits is not None:
            outputs["nsp"] = tf.nn.softmax(tf.cast(nsp_logits, tf.float32))
        return _float32(outputs)

    def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predicts the tokens that are hidden behind the masks of texts.

        Args:
            text: Strings `(B,)`, with masks written as the vocabulary spells them.

        Returns: `tokens` (strings), `scores` (float32 probabilities, the largest first) and `ids`
            (int32), each `(B, M, k)`, and `positions` (int32 `(B, M)`), the masks' places among
            the tokens of their texts. Where a text has fewer than M masks, its last entries are
            empty strings and zeros.
        """
        batch = self._batch(text)
        is_mask = batch["tokens"] == self.tokenizer.vocab.mask_id  # (B, T)
        places = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
        positions = tf.ragged.boolean_mask(places, is_mask).to_tensor(0)  # 0 is [CLS], never a mask
        _, mlm_logits, _ = self.model(**batch, pred_positions=positions, training=False)
        scores, ids = top_predictions(mlm_logits, self.top_k)
        is_there = (positions > 0)[:, :, None]
        tokens = tf.gather(tf.constant(self.tokenizer.vocab.tokens), ids)
        return {
            "tokens": tf.where(is_there, tokens, ""),
            "scores": tf.where(is_there, scores, 0.0),
            "ids": tf.where(is_there, ids, 0),
            "positions": positions,
        }

    def _batch(self, text: tf.Tensor) -> dict[str, Any]:
        batch = self.tokenizer(text, max_len=self.model.bert_config.max_len)
        # Cut back to the longest text; 1 stands for a batch without any.
        longest = tf.reduce_max(tf.concat([batch["valid_lens"], [1]], axis=0))
        for name in ("tokens", "segments"):
            batch[name] = batch[name][:, :longest]
        return batch


def _pooled(model: BERTModel, encoded: tf.Tensor) -> tf.Tensor | None:
    """The pooler's output `(B, D)`, or `None` where the model has no pooler."""
    return None if model.hidden is None else model.hidden(encoded[:, 0])  # [CLS]


def _float32(outputs: dict[str, tf.Tensor | None]) -> dict[str, tf.Tensor]:
    """The outputs that there are, in float32."""
    return {name: tf.cast(x, tf.float32) for name, x in outputs.items() if x is not None}
