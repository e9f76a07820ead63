"""Signatures of a pretraining model.

B: texts in a batch, T: tokens, P: predicted positions, M: maximum number of masks per text,
D: hidden width, V: vocabulary size, k: predictions per mask.
"""

import numpy as np
import tensorflow as tf

from keras_bert_d2l.inference.pretraining.fill_mask import check_top_k, top_predictions
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.signatures.encoder import BATCH, EXAMPLE_BATCH, ServedEncoder, mean_of
from keras_bert_d2l.serving.signatures.signature import (
    TEXT,
    TEXT_B,
    Answer,
    Signature,
    text_signature,
    tf_example_signature,
    traced_once,
)
from keras_bert_d2l.serving.signatures.text_batches import TextBatches
from keras_bert_d2l.text.tokenizer.framing import require
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

PRED_POSITIONS = tf.TensorSpec((None, None), tf.int32, name="pred_positions")


class TokenSignatures:
    """Token-id signature of a pretraining model.

    Args:
        model: The model. Dropout is off.
    """

    def __init__(self, model: BERTModel) -> None:
        self.model = model
        self.encode = ServedEncoder(model)

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures by name."""
        if "mlm" not in self.model.usable_heads:
            return {"tokens": Signature(self.tokens, BATCH, EXAMPLE_BATCH)}
        example = (*EXAMPLE_BATCH, np.zeros((1, 1), np.int32))
        return {"tokens": Signature(self.tokens, (*BATCH, PRED_POSITIONS), example)}

    def tokens(
        self,
        tokens: tf.Tensor,
        segments: tf.Tensor,
        valid_lens: tf.Tensor,
        pred_positions: tf.Tensor | None = None,
    ) -> Answer:
        """Run the complete model.

        Args:
            tokens: Token ids with special tokens and padding, int32 `(B, T)`.
            segments: Segment ids, int32 `(B, T)`.
            valid_lens: Number of non-padding tokens per row, int32 `(B,)`.
            pred_positions: Positions to predict, int32 `(B, P)`. P may be 0. `None` for a model
                without an MLM head.

        Returns: `encoded` `(B, T, D)`, `pooled` `(B, D)`, `mlm_logits` `(B, P, V)` and
            `nsp_logits` `(B, 2)`, whose column 1 means "is next", all float32. The outputs of
            missing heads are omitted.
        """
        checks = self.encode.check(tokens)
        if pred_positions is not None:
            are_positions = (0 <= pred_positions) & (pred_positions < tf.shape(tokens)[1])
            message = "`pred_positions` must be positions in `tokens`."
            checks = [*checks, *require(are_positions, message)]
        with tf.control_dependencies(checks):
            encoded = self.encode(tokens, segments, valid_lens)
        pooled, nsp_logits = self.heads(encoded)
        outputs = {"encoded": encoded, "pooled": pooled, "nsp_logits": nsp_logits}
        if pred_positions is not None:
            outputs["mlm_logits"] = self.model.mlm(encoded, pred_positions)
        return _float32(outputs)

    def heads(self, encoded: tf.Tensor) -> tuple[tf.Tensor | None, tf.Tensor | None]:
        """Return the pooled `[CLS]` `(B, D)` and NSP logits `(B, 2)`; `None` for a missing head."""
        cls, heads = encoded[:, 0], self.model.usable_heads
        pooled = heads["pooler"](cls) if "pooler" in heads else None
        if "nsp" not in heads:
            return pooled, None
        return pooled, heads["nsp"](cls if pooled is None else pooled)


class TextSignatures:
    """String signatures of a pretraining model.

    Texts longer than the model's `max_len` are truncated at the end and flagged in the output
    `truncated` (bool `(B,)`). Padding does not affect the outputs; see `TextBatches`.

    Args:
        of_tokens: The model and its token-id signature.
        tokenizer: The model's tokenizer.
        top_k: Number of predictions per mask, k.

    Raises:
        ValueError: `top_k` is out of range.
    """

    def __init__(self, of_tokens: TokenSignatures, tokenizer: Tokenizer, top_k: int) -> None:
        check_top_k(top_k, len(tokenizer.vocab))
        self.model = of_tokens.model
        self._vocab = tokenizer.vocab
        self._top_k = top_k
        self._encode, self._heads = of_tokens.encode, of_tokens.heads
        self._batches = TextBatches(tokenizer, self.model.bert_config.max_len)

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures by name."""
        mask = self._vocab.to_tokens(self._vocab.mask_id)
        describe = traced_once(self.describe, (TEXT,))
        found = {
            "serving_default": text_signature(describe, (TEXT,), mask),
            "embed": text_signature(self.embed, (TEXT,), mask),
            "tf_example": tf_example_signature(describe, (TEXT,), mask),
        }
        if "mlm" in self.model.usable_heads:
            found["fill_mask"] = text_signature(self.fill_mask, (TEXT,), mask)
        if "nsp" in self.model.usable_heads:
            found["nsp"] = text_signature(self.nsp, (TEXT, TEXT_B), mask)
        return found

    def describe(self, text: tf.Tensor) -> Answer:
        """Return all text-level predictions of the model.

        Args:
            text: Strings `(B,)`.

        Returns: float32: `embedding` `(B, D)`, the mean of the encoded tokens, including special
            tokens; `pooled` `(B, D)`, the output of the pooler; `nsp` `(B, 2)`, probabilities
            whose column 1 means "is next". The outputs of missing heads are omitted. Also
            `truncated`.
        """
        batch, truncated = self._batches(text)
        encoded = self._encode(**batch)
        pooled, nsp_logits = self._heads(encoded)
        outputs = {
            "embedding": mean_of(encoded, batch["valid_lens"]),
            "pooled": pooled,
            "nsp": None if nsp_logits is None else _probabilities(nsp_logits),
        }
        return {**_float32(outputs), "truncated": truncated}

    def embed(self, text: tf.Tensor) -> Answer:
        """Return one vector per text.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding` and `truncated`, as in `describe`.
        """
        batch, truncated = self._batches(text)
        embedding = mean_of(self._encode(**batch), batch["valid_lens"])
        return {"embedding": embedding, "truncated": truncated}

    def nsp(self, text: tf.Tensor, text_b: tf.Tensor) -> Answer:
        """Predict whether the second text follows the first.

        Args:
            text: Strings `(B,)`.
            text_b: Strings `(B,)`.

        Returns: `nsp`, float32 probabilities `(B, 2)` whose column 1 means "is next", and
            `truncated`.
        """
        batch, truncated = self._batches(text, text_b)
        _, nsp_logits = self._heads(self._encode(**batch))
        return {"nsp": _probabilities(nsp_logits), "truncated": truncated}

    def fill_mask(self, text: tf.Tensor) -> Answer:
        """Predict the masked tokens of texts.

        Args:
            text: Strings `(B,)` containing the vocabulary's mask token, for example `[MASK]`.

        Returns: `tokens` (strings), `scores` (float32 probabilities, highest first) and `ids`
            (int32), each `(B, M, k)`; `positions` (int32 `(B, M)`), the token positions of the
            masks; and `truncated`. Texts with fewer than M masks are padded with empty strings
            and zeros.
        """
        batch, truncated = self._batches(text)
        is_mask = batch["tokens"] == self._vocab.mask_id  # (B, T)
        places = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
        positions = tf.ragged.boolean_mask(places, is_mask).to_tensor(0)  # 0 is [CLS], never a mask
        mlm_logits = self.model.mlm(self._encode(**batch), positions)
        scores, ids = top_predictions(mlm_logits, self._top_k)
        is_mask = (positions > 0)[:, :, None]
        tokens = tf.gather(tf.constant(self._vocab.tokens), ids)
        return {
            "tokens": tf.where(is_mask, tokens, ""),
            "scores": tf.where(is_mask, scores, 0.0),
            "ids": tf.where(is_mask, ids, 0),
            "positions": positions,
            "truncated": truncated,
        }


def _probabilities(logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.cast(logits, tf.float32))


def _float32(outputs: dict[str, tf.Tensor | None]) -> Answer:
    """Convert outputs to float32, without those that are `None`."""
    return {name: tf.cast(x, tf.float32) for name, x in outputs.items() if x is not None}
