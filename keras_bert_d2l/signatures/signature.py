"""What a signature is, the signature of token ids, and the model that all signatures share.

B: texts in a batch, T: tokens in a row, P: predicted positions, D: hidden width, V: vocabulary
size, C: labels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from keras_bert_d2l.contract.registry import embedder
from keras_bert_d2l.layers.kernels.attention import exported
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.signatures.compiled import CompiledEncoder, compiled_shapes

TEXT = tf.TensorSpec((None,), tf.string, name="text")
TEXT_B = tf.TensorSpec((None,), tf.string, name="text_b")
QUESTION = tf.TensorSpec((None,), tf.string, name="question")
CHOICES = tf.TensorSpec((None, None), tf.string, name="choices")
CONTEXT = tf.TensorSpec((None,), tf.string, name="context")

_BATCH = (
    tf.TensorSpec((None, None), tf.int32, name="tokens"),
    tf.TensorSpec((None, None), tf.int32, name="segments"),
    tf.TensorSpec((None,), tf.int32, name="valid_lens"),
)
_PRED_POSITIONS = tf.TensorSpec((None, None), tf.int32, name="pred_positions")

Answer = dict[str, tf.Tensor]
"""The outputs of a signature by name."""

Traced = TypeVar("Traced")


class Signature(NamedTuple):
    """One function of an exported model.

    Attributes:
        function: Takes tensors and returns named tensors.
        specs: Names, dtypes and shapes of its inputs.
        example: One small array per input, for warming up a server.
        more_examples: Further arrays for warming up a server, one tuple per request.
    """

    function: Callable[..., Answer]
    specs: tuple[tf.TensorSpec, ...]
    example: tuple[np.ndarray, ...]
    more_examples: tuple[tuple[np.ndarray, ...], ...] = ()


class TextOptions(NamedTuple):
    """Options of the string signatures.

    Attributes:
        pairs: Whether the inputs of a classifier or a regressor are pairs of texts.
        top_k: Number of predictions per mask, or of answers per question.
        null_threshold: A `QuestionAnswerer` returns the empty string as its best answer if
            `null_score` is above this. `None`: it always returns a part of the context.
        inputs: The features that inputs of an own model are, by the names of the inputs.
        outputs: New names for outputs of an own model.
    """

    pairs: bool
    top_k: int
    null_threshold: float | None
    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None


def filled(spec: tf.TensorSpec, text: bytes = b"", number: int = 0) -> np.ndarray:
    """Return a small array for an input, of equal texts or numbers."""
    shape = [1, *(size or 2 for size in spec.shape[1:])]
    is_text = spec.dtype == tf.string
    return np.full(shape, text if is_text else number, spec.dtype.as_numpy_dtype)


def traced_once(
    function: Callable[..., Traced],
    specs: tuple[tf.TensorSpec, ...],
    *,
    jit_compile: bool | None = None,
) -> Callable[..., Traced]:
    """Wrap a function so that it is traced and saved once, even if several signatures call it."""
    return tf.function(function, input_signature=specs, autograph=False, jit_compile=jit_compile)


def after_checks(check: Callable[[], None], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return inputs that a graph computes with only after checks of their values.

    Otherwise, a GPU would return zeros for invalid ids.
    """
    graph = tf.compat.v1.get_default_graph()
    num_operations = len(graph.get_operations())
    check()
    added = graph.get_operations()[num_operations:]
    with tf.control_dependencies([one for one in added if one.type == "Assert"]):
        return [*map(tf.identity, inputs)]


class ExportedModel:
    """A model without dropout, whose encoder is traced once for all signatures.

    Args:
        model: The model.
        xla: Whether XLA compiles the encoder for small batches.

    Call arguments:
        tokens: Token ids with special tokens and padding, int32 `(B, T)`.
        segments: Segment ids, int32 `(B, T)`.
        valid_lens: Number of non-padding tokens per row, int32 `(B,)`.
        pred_positions: For a `BERTModel` with an MLM head, the positions to predict, int32
            `(B, P)`. P may be 0. `None`: no `mlm_logits`.

    Returns: float32 outputs, depending on the model class:

        - `BERTModel`: `encoded` `(B, T, D)`; `embedding` `(B, D)`, that of `TextEmbedder(model)`;
          `pooled` `(B, D)`; `mlm_logits` `(B, P, V)`; and `nsp_logits` `(B, 2)`, whose column 1
          means "is next". The outputs of missing heads are omitted;
        - `SequenceClassifier`: `logits` `(B, C)`;
        - `SequenceRegressor`: `logits` `(B, C)`, which are its scores;
        - `TokenClassifier`: `logits` `(B, T, C)`;
        - `QuestionAnswerer`: the logits `start` and `end` `(B, T)`;
        - `MultipleChoice`: `logits` `(B,)`, the score of each row;
        - `TextEmbedder`: `embedding` `(B, D)`.
    """

    def __init__(self, model: BERTModel | TaskModel, *, xla: bool = False) -> None:
        self.model = model
        self._task = embedder()(model) if isinstance(model, BERTModel) else model
        self.embeds = "embedding" in self._task.outputs
        self._encode = traced_once(self._run_encoder, _BATCH)
        self._shapes = compiled_shapes(model.bert_config.max_len) if xla else []
        if xla:
            compiled = traced_once(self._run_encoder, _BATCH, jit_compile=True)
            encoder = CompiledEncoder(self._encode, compiled, model.bert_config)
            self._encode = traced_once(encoder, _BATCH)

    def __call__(
        self,
        tokens: tf.Tensor,
        segments: tf.Tensor,
        valid_lens: tf.Tensor,
        pred_positions: tf.Tensor | None = None,
    ) -> Answer:
        encoded = None
        if self._task.long_texts == "cut":
            encoded = self._encode(tokens, segments, valid_lens)
            outputs = self._task.head_outputs(encoded, self._task.is_token(tokens, valid_lens))
        else:
            outputs = self._task.over_windows(self._encode, tokens, segments, valid_lens)
        if not isinstance(outputs, dict):
            outputs = {self._task.outputs[0]: outputs}
        if isinstance(self.model, BERTModel):
            outputs |= _pretraining_outputs(self.model, encoded, pred_positions)
        return {name: tf.cast(x, tf.float32) for name, x in outputs.items()}

    def _run_encoder(self, *batch: tf.Tensor) -> tf.Tensor:
        with exported():
            return self.model.encoder(*batch, training=False)

    def signatures(self) -> dict[str, Signature]:
        """Return the signature `tokens`, which checks its inputs and runs the complete model."""
        has_mlm = isinstance(self.model, BERTModel) and "mlm" in self.model.usable_heads
        specs = (*_BATCH, _PRED_POSITIONS) if has_mlm else _BATCH

        def example(rows: int, length: int) -> tuple[np.ndarray, ...]:
            ids = np.zeros((rows, length), np.int32)
            return (ids, ids, np.full(rows, 2, np.int32), ids[:, :1])[: len(specs)]

        def run(*features: tf.Tensor) -> Answer:
            batch = {spec.name: x for spec, x in zip(specs, features, strict=True)}
            return self(*after_checks(lambda: self.model.check_batch(batch), features))

        more = tuple(example(*shape) for shape in self._shapes)
        return {"tokens": Signature(run, specs, example(1, 2), more)}


def _pretraining_outputs(
    model: BERTModel, encoded: tf.Tensor, pred_positions: tf.Tensor | None
) -> Answer:
    outputs, cls, heads = {"encoded": encoded}, encoded[:, 0], model.usable_heads
    if "pooler" in heads:
        outputs["pooled"] = cls = heads["pooler"](cls)
    if pred_positions is not None:
        outputs["mlm_logits"] = heads["mlm"](encoded, pred_positions)
    if "nsp" in heads:
        outputs["nsp_logits"] = heads["nsp"](cls)
    return outputs
