"""All signatures of a model, for pretraining and every task.

B: texts in a batch, T: tokens, M: maximum number of masks per text, D: hidden width, k:
predictions per mask.
"""

from typing import Any

import keras
import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.checks import check_that
from keras_bert_d2l.contract.task import task_named, tasks_with
from keras_bert_d2l.inference.heads import check_top_k, top_predictions
from keras_bert_d2l.layers.encoder import BERTEncoder
from keras_bert_d2l.layers.inputs import check_shapes
from keras_bert_d2l.layers.kernels.attention import exported
from keras_bert_d2l.models.batch_model import BatchModel
from keras_bert_d2l.models.bert import FEATURES, BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.signatures.signature import (
    TEXT,
    TEXT_B,
    Answer,
    ExportedModel,
    Signature,
    TextOptions,
    TextSignatures,
    after_checks,
    filled,
    mask_positions,
    traced_once,
)
from keras_bert_d2l.text.tokenizer.framing import require
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

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        check_top_k(options.top_k, len(tokenizer.vocab))
        super().__init__(run, tokenizer, options)
        self._top_k = options.top_k
        self._sparse = Preprocessor(run.model, tokenizer, run.model.sparse.max_len)

    def signatures(self) -> dict[str, Signature]:
        found = super().signatures()
        if "mlm" in self.run.model.usable_heads:
            found["fill_mask"] = self.of_strings(self.fill_mask, TEXT)
            found["embed_sparse"] = self.of_strings(self.embed_sparse, TEXT)
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
        batch, truncated = self.batch(*texts)
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
        batch, truncated = self.batch(text, text_b)
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
        batch, truncated = self.batch(text)
        positions = mask_positions(batch["tokens"], self.vocab)
        mlm_logits = self.run(**batch, pred_positions=positions)["mlm_logits"]
        scores, ids = top_predictions(mlm_logits, self._top_k)
        is_mask = (positions > 0)[:, :, None]
        names = [*map(self.vocab.spelled, range(len(self.vocab)))]
        tokens = tf.gather(tf.constant(names), ids)
        return {
            "tokens": tf.where(is_mask, tokens, ""),
            "scores": tf.where(is_mask, scores, 0.0),
            "ids": tf.where(is_mask, ids, 0),
            "positions": positions,
            "truncated": truncated,
        }

    def embed_sparse(self, text: tf.Tensor) -> Answer:
        """Return one sparse vector per text, with S values in the longest one.

        Args:
            text: Strings `(B,)`.

        Returns: `indices` (int32), `values` (float32) and `tokens` (strings), each `(B, S)`, as
            from `keras_bert_d2l.embed_sparse`; and `truncated`. Shorter vectors are padded with
            zeros and empty strings.
        """
        model = self.run.model
        rows = dict(self._sparse.rows(text))
        batch = self.padded(rows)
        encoded = tf.cast(self.run(**batch)["encoded"], model.compute_dtype)
        weights = model.sparse_weights(encoded, **batch)
        size = tf.reduce_max(tf.math.count_nonzero(weights, axis=1, dtype=tf.int32))
        size = tf.clip_by_value(size, 0, model.sparse.top_k or len(self.vocab))
        values, ids = tf.math.top_k(weights, size)
        order = tf.argsort(tf.where(values > 0, ids, len(self.vocab)))
        values, ids = (tf.gather(x, order, batch_dims=1) for x in (values, ids))
        return {
            "indices": tf.where(values > 0, ids, 0),
            "values": values,
            "tokens": tf.where(values > 0, tf.gather(tf.constant(self.vocab.tokens), ids), ""),
            "truncated": rows["num_tokens"] > self._sparse.max_len(),
        }


class OwnModel(ExportedModel):
    """A functional Keras model of one's own, and a `BERTModel` that shares its encoder.

    Args:
        model: The model.

    Attributes:
        inputs: The inputs of the model by name.
        run: The model as a function from its inputs to its outputs by name.

    Raises:
        ValueError: The model is not functional, a name appears twice, or there are no tokens.
    """

    def __init__(self, model: keras.Model) -> None:
        super().__init__(bert_within(model))
        self._own = model
        advice = "Export `keras.Model(inputs, model(inputs))`, with a `keras.Input` for each input."
        is_functional = hasattr(model, "_nodes_by_depth")
        check_that(is_functional, "model", "a functional model", model, advice)
        names = _names(model.input, [x.name for x in model.inputs], "text", "text_b")
        expected = "a model with an input named 'tokens'"
        check_that("tokens" in names, "model", expected, names, advice)
        specs = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in model.inputs]
        self.inputs = dict(zip(names, map(tf.TensorSpec.from_spec, specs, names), strict=True))
        check_shapes({k: spec.shape for k, spec in self.inputs.items()}, self.model.max_row_len)
        self._outputs = _names(model.output, model.output_names, "truncated")
        self.run = traced_once(self._run, (*self.inputs.values(),))

    def _run(self, *inputs: tf.Tensor) -> Answer:
        num_rows = tf.stack([tf.shape(x)[0] for x in inputs])
        message = "All inputs must have the same number of rows."
        with tf.control_dependencies(require(num_rows == num_rows[0], message)), exported():
            batch = keras.tree.pack_sequence_as(self._own.input, [*map(tf.identity, inputs)])
            outputs = keras.tree.flatten(self._own(batch, training=False))
        half = (tf.float16, tf.bfloat16)
        outputs = [tf.cast(x, tf.float32) if x.dtype in half else x for x in outputs]
        return dict(zip(self._outputs, outputs, strict=True))

    def signatures(self) -> dict[str, Signature]:
        """Return the signature `tokens`, which checks its inputs and runs the model."""

        def run(*inputs: tf.Tensor) -> Answer:
            given = dict(zip(self.inputs, inputs, strict=True))
            return self.run(*after_checks(lambda: self.model.check_batch(given), inputs))

        specs = (*self.inputs.values(),)
        example = [filled(x, number=k == "valid_lens") for k, x in self.inputs.items()]
        return {"tokens": Signature(run, specs, (*example,))}


class OwnSignatures(TextSignatures):
    """Signatures of an `OwnModel` that take strings."""

    run: OwnModel

    def __init__(self, run: OwnModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self._texts = (TEXT, TEXT_B)[: 1 + options.pairs]
        ranks = {name: spec.shape.rank for name, spec in run.inputs.items()}
        known = FEATURES if ranks.get("attention_mask") != 2 else (*FEATURES, "attention_mask")
        self._others = [name for name in ranks if name not in known]
        self.specs = (*self._texts, *(run.inputs[name] for name in self._others))
        if length := run.inputs["tokens"].shape[1]:
            self.preprocess, self.lengths = Preprocessor(run.model, tokenizer, length), (length,)

    def answer(self, *inputs: tf.Tensor) -> Answer:
        """Return the outputs of the model, and `truncated`.

        Args:
            *inputs: The texts, and the inputs of the model that are no features.
        """
        batch, truncated = self.batch(*inputs[: len(self._texts)])
        batch |= zip(self._others, inputs[len(self._texts) :], strict=True)
        batch["pred_positions"] = positions = mask_positions(batch["tokens"], self.vocab)
        size = self.run.inputs.get("pred_positions", TEXT).shape[-1]
        if size is not None:
            truncated |= tf.math.count_nonzero(positions, axis=1) > size
            batch["pred_positions"] = tf.pad(positions, [[0, 0], [0, size]])[:, :size]
        num_tokens = tf.shape(batch["tokens"])[1]
        batch.setdefault("attention_mask", tf.sequence_mask(batch["valid_lens"], num_tokens))
        given = [tf.cast(batch[name], spec.dtype) for name, spec in self.run.inputs.items()]
        return {**self.run.run(*given), "truncated": truncated}


def bert_within(model: Any) -> Any:
    """Return a `BERTModel` that shares the only encoder in a Keras model of one's own.

    Anything else is returned unchanged, also a model of this package.
    """
    if not isinstance(model, keras.Model) or isinstance(model, BatchModel):
        return model
    layers = model._flatten_layers()  # private, but Keras's quantization uses it the same way
    encoders = [layer for layer in layers if isinstance(layer, BERTEncoder)]
    if len(encoders) != 1:
        return model
    bert = BERTModel.from_layers(encoders[0])
    bert.tokenizer = getattr(model, "tokenizer", None)
    return bert


def _names(structure: Any, names: list[str], *reserved: str) -> list[str]:
    """Return the keys of a dictionary of tensors in the order of Keras, otherwise `names`.

    Raises:
        ValueError: A name appears twice or is reserved.
    """
    keys = isinstance(structure, dict) and keras.tree.flatten(
        type(structure)((key, key) for key in structure)
    )
    found = keys if keys and len(keys) == len(names) else names
    is_right = len({*found, *reserved}) == len(names) + len(reserved)
    expected = f"a model whose inputs and outputs have different names, other than {reserved}"
    check_that(is_right, "model", expected, found)
    return found


def model_signatures(
    model: keras.Model, tokenizer: Tokenizer | None, options: TextOptions
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
    for option, value in options._asdict().items():
        is_given = option != "top_k" and value is not None and value is not False
        if is_given and not (tokenizer and takes(model, option)):
            tasks = " or a ".join(task.model.__name__ for task in tasks_with(option))
            raise ValueError(
                f"`{option}` requires a {tasks} with a tokenizer. Received: {name}. Omit "
                f"`{option}`."
            )
    run = ExportedModel(model) if isinstance(model, BatchModel) else OwnModel(model)
    if tokenizer is None:
        return run.signatures()
    check_vocabulary(run.model, tokenizer)
    kind: type[TextSignatures] = PretrainingSignatures
    if isinstance(model, TaskModel):
        kind = task_named(model.task).signatures
    elif isinstance(run, OwnModel):
        kind = OwnSignatures
    return kind(run, tokenizer, options).signatures() | run.signatures()


def takes(model: keras.Model, option: str) -> bool:
    """Return whether an option of exports is for a model."""
    if not isinstance(model, BatchModel):
        return option == "pairs"
    return isinstance(model, TaskModel) and option in task_named(model.task).options
