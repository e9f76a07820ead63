"""Checks of a model: its weights, its activations and its gradients on a batch.

B batch, T tokens, L blocks, N heads.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import keras
import numpy as np

from keras_bert_d2l.checkpoints.weights.transfer import named_weights
from keras_bert_d2l.inspection.doctor.finding import Finding
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.types import Tensor

_ROWS = 12  # whole pairs and triplets; enough to find a gradient out of range
_ATTENDED = 4  # rows whose attention is computed, because it takes much memory
_TOKENS = 2048  # of the data, and as many random ones, to find dead units
_REPEATED = 8  # times a random token in its row
_DEAD = 1e-3  # of the largest output of the layer
_ONE_HOT = 0.999
_FLOAT16_MAX = 65504.0


@dataclasses.dataclass(frozen=True)
class Examination:
    """What a model computes on a few rows of a batch.

    Attributes:
        loss: The loss.
        gradients: The gradient of each weight by its name, also of frozen weights.
        trainable: The names of the weights that are trained.
        peak: The largest magnitude of a hidden state.
        one_hot: Share of the tokens and heads that attend to a single token.
    """

    loss: float
    gradients: Mapping[str, np.ndarray]
    trainable: frozenset[str]
    peak: float
    one_hot: float

    @property
    def trained(self) -> dict[str, np.ndarray]:
        """The gradients of the weights that are trained."""
        return {path: g for path, g in self.gradients.items() if path in self.trainable}


def examine(model: BERTModel | TaskModel, batch: Tensor) -> Examination:
    """Compute the loss, the gradients and the activations on the first rows of a batch.

    Nothing is random and nothing is changed: dropout is not applied.
    """
    import tensorflow as tf

    x, y, weights = keras.utils.unpack_x_y_sample_weight(
        tf.nest.map_structure(lambda values: values[:_ROWS], batch)
    )
    variables = named_weights(model)
    values = [variable.value for variable in variables.values()]
    with tf.GradientTape() as tape:
        tape.watch(values)  # also those that are frozen
        loss = model.compute_loss(x, y, model(x, training=False), weights, training=False)
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(loss, values, unconnected_gradients=zero)
    model.reset_metrics()
    return Examination(
        loss=float(loss),
        gradients={
            name: tf.convert_to_tensor(gradient).numpy()
            for name, gradient in zip(variables, gradients, strict=True)
        },
        trainable=frozenset(name for name, v in variables.items() if v.trainable),
        **_activations(model, x),
    )


def _activations(model: BERTModel | TaskModel, x: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the last two fields of an `Examination`."""
    tokens, segments, lengths = _inputs(model, x, _ATTENDED)
    states = model.encoder(
        tokens, segments, lengths, return_hidden_states=True, return_attention=True
    )
    is_token = _are_tokens(tokens, lengths)
    return {
        "peak": max(float(keras.ops.max(keras.ops.abs(h))) for h in states["hidden_states"]),
        "one_hot": _mean([_is_one_hot(a, tokens, is_token) for a in states["attention"]]),
    }


def _inputs(
    model: BERTModel | TaskModel, x: Mapping[str, Tensor], rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the tokens, segments and lengths of the first rows, without pairs and triplets."""
    length = min(np.shape(x["tokens"])[-1], model.bert_config.max_len)
    tokens, segments = (
        np.reshape(x[name], (-1, np.shape(x[name])[-1]))[:rows, :length]
        for name in ("tokens", "segments")
    )
    lengths = np.reshape(x.get("valid_lens", np.full(len(tokens), length)), -1)[:rows]
    return tokens, segments, np.minimum(lengths, length)


def _are_tokens(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return which positions are not padding, `(B, T)`."""
    return np.arange(tokens.shape[1]) < lengths[:, None]


def _mean(parts: Sequence[np.ndarray]) -> float:
    values = np.concatenate([[], *parts])
    return float(values.mean()) if len(values) else 0.0  # a model without blocks


def _is_one_hot(attention: Tensor, tokens: np.ndarray, is_token: np.ndarray) -> np.ndarray:
    """Return for each token and head of a block whether almost all of its weight is on one token.

    The weights of equal tokens of a row are added: their scores are almost the same, so that the
    weight stays divided between them however saturated the softmax is. Rows of one token, repeated,
    do not count.
    """
    is_equal = (tokens[:, :, None] == tokens[:, None, :]).astype("float32")  # (B, T, T)
    of_equal = keras.ops.convert_to_numpy(attention) @ is_equal[:, None]  # (B, N, T, T)
    largest = of_equal.max(axis=-1)  # (B, N, T)
    has_choice = np.any((tokens != tokens[:, :1]) & is_token, axis=1)  # (B,)
    counted = is_token & has_choice[:, None]
    return largest[np.broadcast_to(counted[:, None], largest.shape)] > _ONE_HOT


def share_of_dead_units(
    model: BERTModel | TaskModel, features: Iterable[Mapping[str, Tensor]]
) -> float:
    """Return the share of the units of the feed-forward networks that no token activates.

    Many units are active only for a few words or topics, which the data of a task may not have.
    Therefore, a dead unit must not be active for hundreds of random tokens either, each of them in
    a row of its own, where no other token dilutes it.

    Args:
        model: The model.
        features: The features of batches. Only the first 2,048 tokens are computed.
    """
    config = model.bert_config
    length = min(_REPEATED, config.max_len)
    rows = _TOKENS // length
    ids = np.random.default_rng(0).integers(config.vocab_size, size=(rows, 1)).repeat(length, 1)
    largest = _largest_outputs(model, ids, 0 * ids, np.full(rows, length))
    number = 0
    for x in features:
        tokens, segments, lengths = _inputs(model, x, max(1, _TOKENS // np.shape(x["tokens"])[-1]))
        outputs = _largest_outputs(model, tokens, segments, lengths)
        largest = [*map(np.maximum, largest, outputs)]
        number += tokens.size
        if number >= _TOKENS:
            break
    return _mean([units <= _DEAD * units.max() for units in largest])


def _largest_outputs(
    model: BERTModel | TaskModel, tokens: np.ndarray, segments: np.ndarray, lengths: np.ndarray
) -> list[np.ndarray]:
    """Return the largest magnitude of each unit of each feed-forward network."""
    states = model.encoder(tokens, segments, lengths, return_hidden_states=True)["hidden_states"]
    is_token, largest = _are_tokens(tokens, lengths), []
    for block, X in zip(model.encoder.blks, states, strict=False):
        before = block.addnorm1.before(X)
        X = block.addnorm1(X, block.attention(before, before, before, lengths))
        units = keras.ops.convert_to_numpy(block.ffn.dense1(block.addnorm2.before(X)))[is_token]
        largest.append(np.abs(units).max(axis=0))
    return largest


def finite_weights(weights: Mapping[str, np.ndarray]) -> Finding:
    """Return the number of weights that are NaN or infinite; one is enough to spoil all outputs."""
    return Finding(
        name="weights that are not finite",
        measures="weights that are NaN or infinite",
        number=sum(int(np.sum(~np.isfinite(value))) for value in weights.values()),
        high=0,
        severity="cannot learn",
        meaning="All outputs are NaN, and training cannot repair them.",
        remedy="Start again from an earlier checkpoint with a lower learning rate. With "
        "mixed_float16, use mixed_bfloat16 or float32.",
    )


def frozen_weights(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> Finding:
    """Return the share of the weights in variables that training has not changed at all.

    Adam changes every weight with a gradient in the first step. Half is far more than the unused
    parts of a healthy model, such as the pooler without a next-sentence head.

    Args:
        before: The weights before the training, by path.
        after: The weights after some steps.
    """
    sizes = {path: value.size for path, value in before.items()}
    unchanged = [path for path in sizes if np.array_equal(before[path], after[path])]
    return Finding(
        name="frozen weights",
        measures="share of the weights that the training has not changed",
        number=sum(sizes[path] for path in unchanged) / sum(sizes.values()),
        high=0.5,
        severity="cannot learn",
        meaning="Most of the weights are frozen.",
        remedy="Set `trainable = True` for the layers to train before `compile`, or omit "
        "`--freeze-encoder` and `--freeze-blocks`.",
    )


def unused_weights(found: Examination) -> Finding:
    """Return the share of the trainable weights that the loss does not depend on.

    5% leaves room for embeddings of segments and the pooler, which small models may not use.
    """
    sizes = {path: g.size for path, g in found.trained.items()}
    unused = sum(sizes[path] for path, g in found.trained.items() if not np.any(g))
    return Finding(
        name="unused weights",
        measures="share of the trainable weights without a gradient",
        number=unused / sum(sizes.values()) if sizes else 1.0,
        high=0.05,
        severity="cannot learn",
        meaning="The loss does not depend on these weights, so they stay as they are.",
        remedy="Check that the outputs of these layers reach the loss, that the weights of the "
        "predictions are not all 0, and that the layers to train are not frozen.",
    )


def gradient_norm(found: Examination) -> Finding:
    """Return the global norm of the gradient.

    It is 0.1 to 10 for BERT, in training and at its start. Below 1e-4, Adam's epsilon (1e-6 per
    weight) begins to count. Above 100, clipping to 1 leaves the direction of a few examples.
    """
    squares = (float(np.sum(np.square(g, dtype="float64"))) for g in found.trained.values())
    return Finding(
        name="gradient norm",
        measures="global norm of the gradient",
        number=math.sqrt(sum(squares)),
        low=1e-4,
        high=100,
        severity="cannot learn",
        meaning="The gradient vanishes or explodes.",
        remedy="Check the scale of the weights (truncated normal, 0.02) and of the loss, and that "
        "layer normalization is in place. A lower learning rate helps against explosion.",
    )


def dead_units(share: float) -> Finding:
    """Judge the share of the units of the feed-forward networks that are never active.

    A unit that is 0 for all tokens gets no gradient. A few of ReLU's units always are; half of them
    are lost capacity.
    """
    return Finding(
        name="dead units",
        measures="share of the units of the feed-forward networks that are never active",
        number=share,
        high=0.5,
        severity="learns less",
        meaning="These units output 0 for every token, so they no longer learn.",
        remedy="Start again with a lower learning rate or a longer warm-up. GELU keeps more units "
        "alive than ReLU.",
    )


def saturated_attention(found: Examination) -> Finding:
    """Return the share of the tokens and heads that attend to a single token.

    Some heads of a trained BERT attend almost only to [SEP] or to the next token (Clark et al.
    2019). If half of all do, the softmax is saturated and passes no gradient (Zhai et al. 2023).
    """
    return Finding(
        name="saturated attention",
        measures="share of the tokens and heads that attend to one token only",
        number=found.one_hot,
        high=0.5,
        severity="learns less",
        meaning="The softmax of the attention is saturated and passes no gradient.",
        remedy="Start again with a lower learning rate or a longer warm-up, and check the scale of "
        "the weights.",
    )


def float16_range(found: Examination) -> Finding:
    """Return the largest magnitude of a hidden state as a share of float16's range.

    Sums inside a block are several times larger than its output, hence an eighth.
    """
    return Finding(
        name="float16 range",
        measures="largest hidden state / largest float16",
        number=found.peak / _FLOAT16_MAX,
        high=1 / 8,
        severity="cannot learn",
        meaning="Activations may overflow to infinity, which makes the loss NaN.",
        remedy="Use mixed_bfloat16, which has the range of float32, or float32.",
    )


def weights_of(model: BERTModel | TaskModel) -> dict[str, np.ndarray]:
    """Return a copy of the weights of a model, by name."""
    return {n: keras.ops.convert_to_numpy(v).copy() for n, v in named_weights(model).items()}
