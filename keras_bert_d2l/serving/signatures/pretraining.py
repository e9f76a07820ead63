"""String signatures of a pretraining model.

B: texts in a batch, T: tokens, M: maximum number of masks per text, D: hidden width, k:
predictions per mask.
"""

import tensorflow as tf

from keras_bert_d2l.inference.heads import check_top_k, top_predictions
from keras_bert_d2l.serving.signatures.signature import (
    TEXT,
    TEXT_B,
    Answer,
    Signature,
    TextOptions,
)
from keras_bert_d2l.serving.signatures.texts import TextSignatures
from keras_bert_d2l.serving.signatures.token_ids import ServedModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer


class PretrainingSignatures(TextSignatures):
    """Signatures of a `BERTModel`.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: `top_k` is the number of predictions per mask, k.

    Raises:
        ValueError: `top_k` is out of range.
    """

    def __init__(self, run: ServedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        check_top_k(options.top_k, len(tokenizer.vocab))
        super().__init__(run, tokenizer, options)
        self._top_k = options.top_k

    def signatures(self) -> dict[str, Signature]:
        found = super().signatures()
        if "mlm" in self.run.model.usable_heads:
            found["fill_mask"] = self.of_strings(self.fill_mask, TEXT)
        if "nsp" in self.run.model.usable_heads:
            found["nsp"] = self.of_strings(self.nsp, TEXT, TEXT_B)
        return found

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return all text-level predictions of the model.

        Args:
            *texts: `text`, strings `(B,)`.

        Returns: float32: `embedding` `(B, D)`, as for `embed`; `pooled` `(B, D)`, the output of
            the pooler; `nsp` `(B, 2)`, probabilities whose column 1 means "is next". The outputs
            of missing heads are omitted. Also `truncated`.
        """
        batch, truncated = self.batches(*texts)
        outputs = self.run(**batch)
        answer = {"embedding": outputs["embedding"], "truncated": truncated}
        if "pooled" in outputs:
            answer["pooled"] = outputs["pooled"]
        if "nsp_logits" in outputs:
            answer["nsp"] = tf.nn.softmax(outputs["nsp_logits"])
        return answer

    def nsp(self, text: tf.Tensor, text_b: tf.Tensor) -> Answer:
        """Predict whether the second text follows the first.

        Args:
            text: Strings `(B,)`.
            text_b: Strings `(B,)`.

        Returns: `nsp`, float32 probabilities `(B, 2)` whose column 1 means "is next", and
            `truncated`.
        """
        batch, truncated = self.batches(text, text_b)
        return {"nsp": tf.nn.softmax(self.run(**batch)["nsp_logits"]), "truncated": truncated}

    def fill_mask(self, text: tf.Tensor) -> Answer:
        """Predict the masked tokens of texts.

        Args:
            text: Strings `(B,)` containing the vocabulary's mask token, for example `[MASK]`.

        Returns: `tokens` (strings), `scores` (float32 probabilities, highest first) and `ids`
            (int32), each `(B, M, k)`; `positions` (int32 `(B, M)`), the token positions of the
            masks; and `truncated`. Texts with fewer than M masks are padded with empty strings
            and zeros.
        """
        batch, truncated = self.batches(text)
        is_mask = batch["tokens"] == self.vocab.mask_id  # (B, T)
        places = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
        positions = tf.ragged.boolean_mask(places, is_mask).to_tensor(0)  # 0 is [CLS], never a mask
        mlm_logits = self.run(**batch, pred_positions=positions)["mlm_logits"]
        scores, ids = top_predictions(mlm_logits, self._top_k)
        is_mask = (positions > 0)[:, :, None]
        tokens = tf.gather(tf.constant(self.vocab.tokens), ids)
        return {
            "tokens": tf.where(is_mask, tokens, ""),
            "scores": tf.where(is_mask, scores, 0.0),
            "ids": tf.where(is_mask, ids, 0),
            "positions": positions,
            "truncated": truncated,
        }
