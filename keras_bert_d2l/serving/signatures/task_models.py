"""Signatures shared by the models of all tasks.

B: texts in a batch, T: tokens, C: labels, D: hidden width.
"""

import tensorflow as tf

from keras_bert_d2l.models.tasks import TextEmbedder
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.encoder import BATCH, EXAMPLE_BATCH, ServedEncoder, mean_of
from keras_bert_d2l.serving.signatures.signature import (
    PREDICT,
    TEXT,
    Answer,
    Signature,
    text_signature,
    tf_example_signature,
    traced_once,
)
from keras_bert_d2l.serving.signatures.text_batches import TextBatches
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

_EXAMPLE = "a"  # text of the server's warm-up request


class TaskTokenSignatures:
    """Token-id signature of a task model.

    Args:
        model: The model. Dropout is off.

    Call arguments:
        tokens: Token ids with special tokens and padding, int32 `(B, T)`.
        segments: Segment ids, int32 `(B, T)`.
        valid_lens: Number of non-padding tokens per row, int32 `(B,)`.

    Returns: the outputs of the model in float32.
    """

    def __init__(self, model: TaskModel) -> None:
        self.model = model
        self.encode = ServedEncoder(model)

    def __call__(
        self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor
    ) -> tf.Tensor | Answer:
        encoded = self.encode(tokens, segments, valid_lens)
        outputs = self.model.answer(encoded, tokens, valid_lens)
        return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), outputs)

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures by name."""
        return {"tokens": Signature(self.tokens, BATCH, EXAMPLE_BATCH)}

    def tokens(self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor) -> Answer:
        """Run the complete model.

        Args:
            tokens: Token ids with special tokens and padding, int32 `(B, T)`.
            segments: Segment ids, int32 `(B, T)`.
            valid_lens: Number of non-padding tokens per row, int32 `(B,)`.

        Returns: float32 outputs, depending on the model class:

            - `SequenceClassifier`: `logits` `(B, C)`;
            - `SequenceRegressor`: `logits` `(B, C)`, which are its scores;
            - `TokenClassifier`: `logits` `(B, T, C)`;
            - `QuestionAnswerer`: the logits `start` and `end` `(B, T)`;
            - `TextEmbedder`: `embedding` `(B, D)`.
        """
        with tf.control_dependencies(self.encode.check(tokens)):
            tokens = tf.identity(tokens)
        outputs = self(tokens, segments, valid_lens)
        if isinstance(outputs, dict):
            return outputs
        return {"embedding" if isinstance(self.model, TextEmbedder) else "logits": outputs}


class TaskTextSignatures:
    """String signatures of a task model, with a subclass for each task but embedding.

    This class itself serves a `TextEmbedder`.

    Args:
        of_tokens: The model and its token-id signature.
        tokenizer: The model's tokenizer.

    Attributes:
        specs: String inputs of `answer`.
        method: TensorFlow Serving method for the task in addition to `Predict`.
    """

    specs: tuple[tf.TensorSpec, ...] = (TEXT,)
    method: str = PREDICT

    def __init__(self, of_tokens: TaskTokenSignatures, tokenizer: Tokenizer) -> None:
        self.model = of_tokens.model
        self.run = of_tokens
        self.batches = TextBatches(tokenizer, self.model.bert_config.max_len)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the outputs of `serving_default` for strings, each `(B,)`."""
        return self.embed(*texts)

    def for_method(self, answer: Answer) -> Answer:
        """Convert the outputs to the names and shapes that `method` requires."""
        return answer

    def embed(self, text: tf.Tensor) -> Answer:
        """Return one vector per text.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding`, float32 `(B, D)`: the output of a `TextEmbedder`; for other tasks,
            the mean of the encoded tokens, including special tokens. Also `truncated`, bool
            `(B,)`.
        """
        batch, truncated = self.batches(text)
        if isinstance(self.model, TextEmbedder):
            vectors = self.run(**batch)
        else:
            vectors = mean_of(self.run.encode(**batch), batch["valid_lens"])
        return {"embedding": vectors, "truncated": truncated}

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures by name."""
        answer = traced_once(self.answer, self.specs)
        return {
            "serving_default": text_signature(answer, self.specs, _EXAMPLE),
            "embed": text_signature(self.embed, (TEXT,), _EXAMPLE),
            "tf_example": tf_example_signature(
                lambda *texts: self.for_method(answer(*texts)), self.specs, _EXAMPLE, self.method
            ),
        }
