"""All signatures of a model, for pretraining and every task.

B: texts in a batch, T: tokens, M: maximum number of masks per text, D: hidden width, k:
predictions per mask.
"""

import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.inference.heads import check_top_k, top_predictions
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.signature import (
    TEXT,
    TEXT_B,
    Answer,
    ServedModel,
    Signature,
    TextOptions,
)
from keras_bert_d2l.serving.signatures.texts import TextSignatures
from keras_bert_d2l.tasks.task import task_named, tasks_with
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


def model_signatures(
    model: BERTModel | TaskModel,
    tokenizer: Tokenizer | None,
    options: TextOptions,
) -> dict[str, Signature]:
    """Return the signatures of a model by name.

    Args:
        model: The model.
        tokenizer: Its tokenizer. `None`: only the token-id signature.
        options: Options of the string signatures.

    Raises:
        ValueError: An option does not apply to the model or is out of range, or the vocabulary
            does not have the model's size.
    """
    name = f"a {type(model).__name__}{'' if tokenizer else ' without a tokenizer'}"
    given = {"pairs": options.pairs, "null_threshold": options.null_threshold is not None}
    for option, is_given in given.items():
        if is_given and (tokenizer is None or not takes(model, option)):
            needed = " or a ".join(task.model.__name__ for task in tasks_with(option))
            raise ValueError(
                f"`{option}` requires a {needed} with a tokenizer. Received: {name}. Omit "
                f"`{option}`."
            )
    run = ServedModel(model)
    if tokenizer is None:
        return run.signatures()
    check_vocabulary(model, tokenizer)
    kind: type[TextSignatures] = PretrainingSignatures
    if isinstance(model, TaskModel):
        kind = task_named(model.task).signatures
    return kind(run, tokenizer, options).signatures() | run.signatures()


def takes(model: BERTModel | TaskModel, option: str) -> bool:
    """Return whether an option of exports is for the task of a model."""
    return isinstance(model, TaskModel) and option in task_named(model.task).options
