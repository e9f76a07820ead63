"""The signatures of token ids and of strings: the model that they share, and what they return.

B: texts in a batch, T: tokens in a row, P: predicted positions, D: hidden width, V: vocabulary
size, C: labels.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from keras_bert_d2l.contract.task import embedder, task_named
from keras_bert_d2l.layers.kernels.attention import exported
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.text.tokenizer.framing import require
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

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

_WINDOWS_PER_STEP = 32  # maximum batch size of the model, to limit memory use
_STEP = 8  # the shortest length, and the distance between the lengths up to 64

Batch = dict[str, tf.Tensor]
"""`tokens` and `segments`, int32 `(B, T)`, and `valid_lens`, int32 `(B,)`."""


class Signature(NamedTuple):
    """One function of an exported model.

    Attributes:
        function: Takes tensors and returns named tensors.
        specs: Names, dtypes and shapes of its inputs.
        example: One small array per input, for warming up a server.
    """

    function: Callable[..., Answer]
    specs: tuple[tf.TensorSpec, ...]
    example: tuple[np.ndarray, ...]


class TextOptions(NamedTuple):
    """Options of the string signatures.

    Attributes:
        pairs: Whether the inputs of a classifier or a regressor are pairs of texts.
        top_k: Number of predictions per mask, or of answers per question.
        null_threshold: A `QuestionAnswerer` returns the empty string as its best answer if
            `null_score` is above this. `None`: it always returns a part of the context.
    """

    pairs: bool
    top_k: int
    null_threshold: float | None


def filled(spec: tf.TensorSpec, text: bytes = b"", number: int = 0) -> np.ndarray:
    """Return a small array for an input, of equal texts or numbers."""
    shape = [1, *(size or 2 for size in spec.shape[1:])][: spec.shape.rank]
    is_text = spec.dtype == tf.string
    return np.full(shape, text if is_text else number, spec.dtype.as_numpy_dtype)


def traced_once(
    function: Callable[..., Traced], specs: tuple[tf.TensorSpec, ...]
) -> Callable[..., Traced]:
    """Wrap a function so that it is traced and saved once, even if several signatures call it."""
    return tf.function(function, input_signature=specs, autograph=False)


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

    Call arguments:
        tokens: Token ids with special tokens and padding, int32 `(B, T)`.
        segments: Segment ids, int32 `(B, T)`.
        valid_lens: Number of non-padding tokens per row, int32 `(B,)`.
        pred_positions: For a `BERTModel` with an MLM head, the positions to predict, int32
            `(B, P)`. P may be 0. `None`: no `mlm_logits`.
        **of_task: Other `features` of a task model, such as `prompt_lens`.

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

    def __init__(self, model: BERTModel | TaskModel) -> None:
        self.model = model
        self._task = embedder()(model) if isinstance(model, BERTModel) else model
        self.embeds = "embedding" in self._task.outputs
        self._encode = traced_once(self._run_encoder, _BATCH)

    def __call__(
        self,
        tokens: tf.Tensor,
        segments: tf.Tensor,
        valid_lens: tf.Tensor,
        pred_positions: tf.Tensor | None = None,
        **of_task: tf.Tensor,
    ) -> Answer:
        encoded = None
        if self._task.long_texts == "cut":
            encoded = self._encode(tokens, segments, valid_lens)
            is_token = self._task.is_token(tokens, valid_lens)
            outputs = self._task.head_outputs(encoded, is_token, **of_task)
        else:
            outputs = self._task.over_windows(self._encode, tokens, segments, valid_lens)
        if not isinstance(outputs, dict):
            outputs = {self._task.outputs[0]: outputs}
        if self.embeds:
            outputs = self._task.answer(outputs["embedding"])
        if isinstance(self.model, BERTModel):
            outputs |= _pretraining_outputs(self.model, encoded, pred_positions)
        return {name: tf.cast(x, tf.float32) for name, x in outputs.items()}

    def _run_encoder(self, *batch: tf.Tensor) -> tf.Tensor:
        first = tf.zeros_like(batch[0][:, :1]) if self._task.reads_first else None
        with exported():
            return self.model.encoder(*batch, training=False, positions=first)

    def signatures(self) -> dict[str, Signature]:
        """Return the signature `tokens`, which checks its inputs and runs the complete model."""
        has_mlm = isinstance(self.model, BERTModel) and "mlm" in self.model.usable_heads
        specs = (*_BATCH, _PRED_POSITIONS) if has_mlm else _BATCH
        ids = np.zeros((1, 2), np.int32)
        example = (ids, ids, np.full(1, 2, np.int32), ids[:, :1])[: len(specs)]

        def run(*features: tf.Tensor) -> Answer:
            batch = {spec.name: x for spec, x in zip(specs, features, strict=True)}
            return self(*after_checks(lambda: self.model.check_batch(batch), features))

        return {"tokens": Signature(run, specs, example)}


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


def padded_lengths(max_len: int) -> tuple[int, ...]:
    """Return the lengths T that rows are padded to: 8, 16, 24, ..., 64, 80, 96, ... and `max_len`.

    Padding adds at most 7 tokens to texts of up to 64 tokens, and at most a quarter to longer ones.
    A server prepares kernels and memory for each shape, so a few fixed lengths limit this work.
    """
    lengths, length, step = [], _STEP, _STEP
    while length < max_len:
        lengths.append(length)
        step *= 2 if length == 8 * step else 1
        length += step
    return (*lengths, max_len)


def embedding_prompts(model: BERTModel | TaskModel) -> dict[str, str]:
    """Return the prompts of the signatures that embed texts, by the names of these signatures.

    `embed` has the default prompt of the model. `embed_query` and `embed_document` exist if their
    prompts differ from it.
    """
    found: Any = embedder()(model) if isinstance(model, BERTModel) else model
    if "embedding" not in found.outputs:
        return {}
    default = found.prompt()
    of_kinds = {f"embed_{kind}": found.prompt(kind) for kind in ("query", "document")}
    return {"embed": default, **{k: text for k, text in of_kinds.items() if text != default}}


def mask_positions(tokens: tf.Tensor, vocab: Vocab) -> tf.Tensor:
    """Return the positions of the masks in each row `(B, T)`, padded with 0, int32 `(B, M)`."""
    is_mask = tokens == vocab.mask_id
    places = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
    return tf.ragged.boolean_mask(places, is_mask).to_tensor(0)  # 0 is [CLS], never a mask


def checked_pairs(text: tf.Tensor, text_b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the texts of pairs. The graph fails if their shapes differ."""
    message = "Both inputs must have the same number of texts, one pair per row."
    with tf.control_dependencies(require(tf.shape(text) == tf.shape(text_b), message)):
        return tf.identity(text), tf.identity(text_b)


class TextSignatures:
    """String signatures of a model, with a subclass for every kind of model but `TextEmbedder`.

    Texts longer than the model's `max_len` are truncated and flagged in the output
    `truncated` (bool `(B,)`). Rows are padded to the next of a few lengths, which does not affect
    the outputs.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: The options that apply to the kind of model.

    Attributes:
        specs: String inputs of `answer`.
        preprocess: Converts strings to rows.
        lengths: The lengths that rows may have.
    """

    specs: tuple[tf.TensorSpec, ...] = (TEXT,)

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        self.run = run
        self.vocab = tokenizer.vocab
        model = run.model
        kind = model.preprocessing if isinstance(model, TaskModel) else Preprocessor
        self.preprocess: Any = kind(model, tokenizer)
        self.lengths = padded_lengths(self.preprocess.max_len(1 + options.pairs))
        self._single = traced_once(self._batch, (TEXT,))

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the outputs of `serving_default` for strings, each `(B,)`."""
        return self.embed(*texts)

    def batch(self, text: tf.Tensor, text_b: tf.Tensor | None = None) -> tuple[Batch, tf.Tensor]:
        """Return the rows of texts or pairs, and whether each was truncated, bool `(B,)`."""
        return self._single(text) if text_b is None else self._batch(*checked_pairs(text, text_b))

    def _batch(self, *texts: tf.Tensor, **options: Any) -> tuple[Batch, tf.Tensor]:
        rows = self.preprocess.rows(*texts, **options)
        truncated = rows["num_tokens"] > self.preprocess.max_len(len(texts))
        return self.padded(rows), truncated

    def padded(self, rows: Batch) -> Batch:
        """Return the features of rows, padded to the shortest sufficient of the lengths."""
        lengths = tf.constant(self.lengths)
        place = tf.searchsorted(lengths, tf.shape(rows["tokens"])[1:])
        features = {
            name: rows[name]
            for name in (*self.preprocess.features, "starts", "ends")
            if name in rows
        }
        return self.preprocess.padded(features, tf.gather(lengths, place)[0])

    def in_steps(self, windows: Batch, *outputs: str, of_tokens: bool = True) -> Answer:
        """Run the model on the windows of long texts, or on many texts, a few at a time.

        Args:
            windows: The batch, `(W, T)`.
            *outputs: The names of the outputs to return.
            of_tokens: Whether they have one place per token. Otherwise, each step is only as long
                as its longest row.
        """
        num_windows = tf.shape(windows["valid_lens"])[0]
        num_steps = tf.maximum(-(-num_windows // _WINDOWS_PER_STEP), 1)
        size = -(-num_windows // num_steps)  # steps of equal size; the last window may repeat
        places = tf.minimum(tf.range(num_steps * size), num_windows - 1)

        def run(places: tf.Tensor) -> Answer:
            batch = {name: tf.gather(windows[name], places) for name in self.preprocess.features}
            if not of_tokens:
                most = tf.maximum(tf.reduce_max(batch["valid_lens"]), 1)  # there may be no row
                longest = -(-most // _STEP) * _STEP
                batch |= {name: batch[name][:, :longest] for name in ("tokens", "segments")}
            found = self.run(**batch)
            return {name: found[name] for name in outputs}

        found = tf.map_fn(
            run,
            tf.reshape(places, [num_steps, size]),
            fn_output_signature=dict.fromkeys(outputs, tf.float32),
            parallel_iterations=1,
        )
        return {
            name: tf.reshape(x, tf.concat([[num_steps * size], tf.shape(x)[2:]], 0))[:num_windows]
            for name, x in found.items()
        }

    def embed(self, text: tf.Tensor, prompt: str | None = None) -> Answer:
        """Return one vector per text.

        Args:
            text: Strings `(B,)`.
            prompt: The text to put before each of them. `None`: the default prompt of the model.

        Returns: `embedding`, float32 `(B, D)`, as from `keras_bert_d2l.embed`, and `truncated`,
            bool `(B,)`.
        """
        rows = self.batch(text) if prompt is None else self._batch(text, prompt=prompt)
        batch, truncated = rows
        return {"embedding": self.run(**batch)["embedding"], "truncated": truncated}

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures by name."""
        answer = traced_once(self.answer, self.specs)
        found = {"serving_default": self.of_strings(answer, *self.specs)}
        for name, prompt in embedding_prompts(self.run.model).items():
            embed = self.embed if name == "embed" else functools.partial(self.embed, prompt=prompt)
            found[name] = self.of_strings(embed, TEXT)
        return found

    def of_strings(self, function: Callable[..., Answer], *specs: tf.TensorSpec) -> Signature:
        """Return the signature of a function of texts, and perhaps other inputs."""
        # A server warms up with a mask, so that `fill_mask` has something to predict.
        text = self.vocab.to_tokens(self.vocab.mask_id).encode()
        return Signature(function, specs, tuple(filled(spec, text) for spec in specs))


class AnswerSignatures(TextSignatures):
    """Signatures of a model with one answer per text or pair of texts: what its `answer` says.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: With `pairs`, the inputs are pairs of texts, as always if the task needs pairs.
    """

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        are_pairs = options.pairs or task_named(run.model.task).needs_text_b
        super().__init__(run, tokenizer, options._replace(pairs=are_pairs))
        self.specs = (TEXT, TEXT_B) if are_pairs else (TEXT,)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return what the model says about texts.

        Args:
            *texts: `text`, and for pairs `text_b`, strings `(B,)`.

        Returns: the tensors of the model's `answer`; `truncated`, bool `(B,)`; and for a model with
            labels `labels`, strings `(B, C)` in the order of their ids, and with an `id` also the
            `label`, strings `(B,)`.
        """
        batch, truncated = self.batch(*texts)
        model: Any = self.run.model
        answer = dict(model.answer(self.run(**batch)[model.outputs[0]]))
        if hasattr(model, "labels"):
            names = tf.constant(np.array(model.labels, object))[tf.newaxis]
            answer["labels"] = tf.tile(names, [tf.shape(truncated)[0], 1])
            if "id" in answer:
                answer["label"] = tf.gather(answer["labels"], answer["id"], batch_dims=1)
        return {**answer, "truncated": truncated}
