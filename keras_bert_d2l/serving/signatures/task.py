"""The questions that a served model of a task answers: strings or token ids in, answers out.

B texts in a batch, T tokens, C labels, D hidden width.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from keras_bert_d2l.models.tasks.heads import TextEmbedder
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.serving.signatures.encoding import BATCH, Encoding, example_batch
from keras_bert_d2l.serving.signatures.length_buckets import TextBatches
from keras_bert_d2l.serving.signatures.requests import (
    CLASSIFY,
    EXAMPLES,
    METHOD_EXAMPLES,
    PREDICT,
    REGRESS,
    TEXT,
    Signature,
    examples_array,
    parse_examples,
    texts_array,
)


class Answers(Protocol):
    """How a task answers strings.

    Attributes:
        specs: The names of the strings that it takes, each `(B,)`.
        method: TensorFlow Serving's method for such a task beside `Predict`; `PREDICT`: none.

    Call arguments:
        *texts: Strings, each `(B,)`.

    Returns: a dictionary of named tensors.
    """

    specs: tuple[tf.TensorSpec, ...]
    method: str

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]: ...


class TaskTokenSignatures:
    """The answers of the model of a task to token ids.

    Args:
        model: The model; dropout is off.
    """

    def __init__(self, model: TaskModel) -> None:
        self.model = model
        self.encode = Encoding(model)

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        return {"tokens": Signature(self.tokens, BATCH, example_batch())}

    def tokens(
        self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Runs the whole model.

        Args:
            tokens: Token ids with special tokens and padding, int32 `(B, T)`.
            segments: Segment ids, int32 `(B, T)`.
            valid_lens: Tokens of each row that are not padding, int32 `(B,)`.

        Returns: float32: `logits`, of a `SequenceClassifier` and a `SequenceRegressor` (whose
            scores they are) `(B, C)`, of a `TokenClassifier` `(B, T, C)`; of a `QuestionAnswerer`
            `start` and `end` `(B, T)`, logits; of a `TextEmbedder` `embedding` `(B, D)`.
        """
        with tf.control_dependencies(self.encode.check(tokens)):
            tokens = tf.identity(tokens)
        outputs = self(tokens, segments, valid_lens)
        if isinstance(outputs, dict):
            return outputs
        name = "embedding" if isinstance(self.model, TextEmbedder) else "logits"
        return {name: outputs}

    def __call__(self, tokens: tf.Tensor, segments: tf.Tensor, valid_lens: tf.Tensor) -> Any:
        """Returns the model's outputs in float32."""
        encoded = self.encode(tokens, segments, valid_lens)
        outputs = self.model.answer(encoded, tokens, valid_lens, False)
        return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), outputs)


class TaskTextSignatures:
    """The answers of the model of a task to strings.

    Args:
        of_tokens: The answers to token ids.
        batches: Makes batches of texts.
        answers: What the task answers.
        example: Strings that it takes: a small request.
    """

    def __init__(
        self,
        of_tokens: TaskTokenSignatures,
        batches: TextBatches,
        answers: Answers,
        example: tuple[str, ...],
    ) -> None:
        self._of_tokens = of_tokens
        self._batches = batches
        self._answers = answers
        self._example = example
        # Traced once for both of its signatures.
        self._answer: Callable[..., dict[str, tf.Tensor]] = tf.function(
            answers.__call__, input_signature=answers.specs, autograph=False
        )

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        specs, method = self._answers.specs, self._answers.method
        names = [str(spec.name) for spec in specs]
        example = examples_array(dict(zip(names, self._example, strict=True)))
        taken = EXAMPLES if method == PREDICT else METHOD_EXAMPLES
        texts = tuple(texts_array(text) for text in self._example)
        return {
            "serving_default": Signature(self._answer, specs, texts),
            "embed": Signature(self.embed, (TEXT,), texts[:1]),
            "tf_example": Signature(self.tf_example, (taken,), (example,), method),
        }

    def embed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Describes texts by vectors.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding`, float32 `(B, D)`: of a `TextEmbedder` its answer, of another task
            the mean of the encoded tokens, special ones included; and `truncated`, bool `(B,)`.
        """
        batch, truncated = self._batches(text)
        is_vector = isinstance(self._of_tokens.model, TextEmbedder)
        vectors = self._of_tokens(**batch) if is_vector else self._of_tokens.encode.mean(batch)
        return {"embedding": vectors, "truncated": truncated}

    def tf_example(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers serialised examples as `serving_default` answers strings.

        Args:
            examples: Serialised `tf.train.Example`s `(B,)`, with one string under the name of
                each argument of `serving_default`.

        Returns: what `serving_default` returns; for a method of the server what that takes.
        """
        answer = self._answer(*parse_examples(examples, self._answers.specs))
        if self._answers.method == CLASSIFY:
            return {"classes": answer["labels"], "scores": answer["scores"]}
        if self._answers.method == REGRESS:
            return {"outputs": answer["scores"][:, 0]}
        return answer


def repeated(labels: tuple[str, ...], batch_size: Any) -> tf.Tensor:
    """Returns the names of the labels for each row, strings `(B, C)`."""
    return tf.tile(tf.constant(np.array(labels, object))[tf.newaxis], [batch_size, 1])
