"""The questions that a served pretraining model answers: strings or token ids in, answers out.

B texts in a batch, T tokens, P predicted positions, M (most) masks in a text, D hidden width,
V vocabulary, k predictions for a mask.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.inference.pretraining.fill_mask import top_predictions
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.signatures.encoding import BATCH, Encoding, example_batch, mean_of
from keras_bert_d2l.serving.signatures.length_buckets import TextBatches
from keras_bert_d2l.serving.signatures.requests import (
    EXAMPLES,
    TEXT,
    TEXT_B,
    Signature,
    examples_array,
    parse_examples,
    texts_array,
)
from keras_bert_d2l.text.tokenizer.framing import require
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

PRED_POSITIONS = tf.TensorSpec((None, None), tf.int32, name="pred_positions")


class TokenSignatures:
    """The answers of a pretraining model to token ids.

    Args:
        model: The model; dropout is off.
    """

    def __init__(self, model: BERTModel) -> None:
        self.model = model
        self.encode = Encoding(model)

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        example = (*example_batch(), np.zeros((1, 1), np.int32))
        return {"tokens": Signature(self.tokens, (*BATCH, PRED_POSITIONS), example)}

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
        are_positions = (0 <= pred_positions) & (pred_positions < tf.shape(tokens)[1])
        checks = [
            *self.encode.check(tokens),
            *require(are_positions, "`pred_positions` must be positions in `tokens`."),
        ]
        with tf.control_dependencies(checks):
            encoded = self.encode(tokens, segments, valid_lens)
        pooled, nsp_logits = self.heads(encoded)
        outputs = {
            "encoded": encoded,
            "pooled": pooled,
            "mlm_logits": self.model.mlm(encoded, pred_positions),
            "nsp_logits": nsp_logits,
        }
        return _float32(outputs)

    def heads(self, encoded: tf.Tensor) -> tuple[tf.Tensor | None, tf.Tensor | None]:
        """Returns the pooled `[CLS]` `(B, D)` and the NSP logits `(B, 2)`, or `None` for either."""
        cls = encoded[:, 0]
        pooled = None if self.model.hidden is None else self.model.hidden(cls)
        if self.model.nsp is None:
            return pooled, None
        return pooled, self.model.nsp(cls if pooled is None else pooled)


class TextSignatures:
    """The answers of a pretraining model to strings.

    A text longer than the model's `max_len` loses its end, and the answer's `truncated` (bool
    `(B,)`) says so. The batch is padded to a length that its longest text decides, see
    `TextBatches`, which changes no answer.

    Args:
        of_tokens: The answers to token ids.
        tokenizer: The model's tokenizer.
        top_k: Predictions for each mask, k.
    """

    def __init__(self, of_tokens: TokenSignatures, tokenizer: Tokenizer, top_k: int) -> None:
        self.model = of_tokens.model
        self.tokenizer = tokenizer
        self.top_k = top_k
        self._of_tokens = of_tokens
        self._batches = TextBatches(tokenizer, self.model.bert_config.max_len)
        # Traced once for both of its signatures.
        self._describe = tf.function(self.describe, input_signature=(TEXT,), autograph=False)

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        vocab = self.tokenizer.vocab
        mask = vocab.to_tokens(vocab.mask_id)
        text, example = texts_array(mask), examples_array({"text": mask})
        found = {
            "serving_default": Signature(self._describe, (TEXT,), (text,)),
            "embed": Signature(self.embed, (TEXT,), (text,)),
            "fill_mask": Signature(self.fill_mask, (TEXT,), (text,)),
            "tf_example": Signature(self.tf_example, (EXAMPLES,), (example,)),
        }
        if self.model.nsp is not None:
            found["nsp"] = Signature(self.nsp, (TEXT, TEXT_B), (text, text))
        return found

    def describe(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Says of texts all that the model says of a whole text.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding` `(B, D)`, the mean of the encoded tokens, special ones included;
            `pooled` `(B, D)`, the output of the pooler; `nsp` `(B, 2)`, probabilities of which
            the second is that of "is next"; all float32, without what the model has not; and
            `truncated`.
        """
        batch, truncated = self._batches(text)
        encoded = self._of_tokens.encode(**batch)
        pooled, nsp_logits = self._of_tokens.heads(encoded)
        outputs = {
            "embedding": mean_of(encoded, batch["valid_lens"]),
            "pooled": pooled,
            "nsp": _probabilities(nsp_logits),
        }
        return {**_float32(outputs), "truncated": truncated}

    def embed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Describes texts by vectors.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding` and `truncated`, as `describe`.
        """
        batch, truncated = self._batches(text)
        return {"embedding": self._of_tokens.encode.mean(batch), "truncated": truncated}

    def nsp(self, text: tf.Tensor, text_b: tf.Tensor) -> dict[str, tf.Tensor]:
        """Says whether a text goes on with another one.

        Args:
            text: Strings `(B,)`.
            text_b: Strings `(B,)`.

        Returns: `nsp`, float32 probabilities `(B, 2)` of which the second is that of "is next",
            and `truncated`.
        """
        batch, truncated = self._batches(text, text_b)
        _, nsp_logits = self._of_tokens.heads(self._of_tokens.encode(**batch))
        return {"nsp": _probabilities(nsp_logits), "truncated": truncated}

    def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predicts the tokens that are hidden behind the masks of texts.

        Args:
            text: Strings `(B,)`, with masks written as the vocabulary spells them.

        Returns: `tokens` (strings), `scores` (float32 probabilities, the largest first) and `ids`
            (int32), each `(B, M, k)`, and `positions` (int32 `(B, M)`), the masks' places among
            the tokens of their texts; and `truncated`. Where a text has fewer than M masks, its
            last entries are empty strings and zeros.
        """
        batch, truncated = self._batches(text)
        is_mask = batch["tokens"] == self.tokenizer.vocab.mask_id  # (B, T)
        places = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
        positions = tf.ragged.boolean_mask(places, is_mask).to_tensor(0)  # 0 is [CLS], never a mask
        mlm_logits = self.model.mlm(self._of_tokens.encode(**batch), positions)
        scores, ids = top_predictions(mlm_logits, self.top_k)
        is_there = (positions > 0)[:, :, None]
        tokens = tf.gather(tf.constant(self.tokenizer.vocab.tokens), ids)
        return {
            "tokens": tf.where(is_there, tokens, ""),
            "scores": tf.where(is_there, scores, 0.0),
            "ids": tf.where(is_there, ids, 0),
            "positions": positions,
            "truncated": truncated,
        }

    def tf_example(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers serialised examples as `describe` answers texts.

        Args:
            examples: Serialised `tf.train.Example`s `(B,)`, whose feature `text` is one string.

        Returns: what `describe` returns.
        """
        return self._describe(*parse_examples(examples, (TEXT,)))


def _probabilities(logits: Any) -> Any:
    return None if logits is None else tf.nn.softmax(tf.cast(logits, tf.float32))


def _float32(outputs: dict[str, tf.Tensor | None]) -> dict[str, tf.Tensor]:
    """The outputs that there are, in float32."""
    return {name: tf.cast(x, tf.float32) for name, x in outputs.items() if x is not None}
