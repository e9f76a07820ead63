"""Linear-chain conditional random field (CRF): scores of whole sequences of tags.

B texts, W words, L labels. The words of a text come first in its row; the other places are padding.
Messages have a further state, L: the place before the first word, or after the last one.
"""

import functools
from collections.abc import Callable
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.layers.inputs import is_known
from keras_bert_d2l.types import ConfigDict, LayerOptions, Tensor

_NEVER = -1e9  # the logarithm of a probability of 0, finite in sums of it
_max = functools.partial(ops.max, initial=-np.inf)  # there may be no text
_FORBIDDEN = -1e4  # of a move: so large that it decides, and finite if every sequence has one


@keras.saving.register_keras_serializable("keras_bert_d2l")
class CRF(keras.layers.Layer):
    """Linear-chain conditional random field over the labels of successive words.

    The score of a sequence of labels is the sum of the logits (emissions) of its labels, of the
    transition from each label to the next, and of how well its first label starts and its last
    label ends a text. The probability of a sequence is the softmax of its score over all sequences.
    All results are exact, and computed in float32. With new weights, which are zeros, the
    words are independent.

    `log_likelihood` gives the loss, `viterbi` the best sequence, and `marginals` the probability of
    each label of each word. `TokenClassifier(..., crf=True)` uses all three.

    The gradient of the log-likelihood is computed from expected counts, not through the loop over
    the words, so that XLA can compile it.

    Source: Lafferty et al. 2001; Rabiner 1989, section III (forward-backward, Viterbi); the names
    of the weights are those of pytorch-crf without `_transitions`.

    Args:
        num_labels: Number of labels, L, at least 2.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Attributes:
        transitions: Weights `(L, L)`, from the label of the row to that of the column.
        start: Weights `(L,)` of the first label of a text.
        end: Weights `(L,)` of the last label.

    Call arguments:
        emissions: Logits, `(B, W, L)`.
        mask: Which places are words, bool `(B, W)`. `None`: all.

    Output shape: the labels of the best sequence, int32 `(B, W)`; 0 at padding.

    Raises:
        ValueError: `num_labels` is not an integer, or is smaller than 2.

    Example:

    ```python
    import numpy as np
    import keras_bert_d2l as kb

    crf = kb.CRF(num_labels=3)
    emissions = np.random.normal(size=(2, 5, 3)).astype("float32")
    tags = np.array([[0, 1, 1, 2, 0], [2, 2, -100, -100, -100]])  # the second text has two words
    loss = -crf.log_likelihood(emissions, tags)
    assert loss.shape == (2,)
    assert crf(emissions, mask=tags >= 0).shape == (2, 5)
    ```
    """

    def __init__(self, num_labels: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(autocast=False, **kwargs)
        self.num_labels = check_integer("num_labels", num_labels, 2)
        self.supports_masking = True  # otherwise, Keras warns about the argument `mask`
        self.transitions, self.start, self.end = (
            self.add_weight(name=name, shape=(num_labels,) * rank, initializer="zeros")
            for name, rank in (("transitions", 2), ("start", 1), ("end", 1))
        )
        self.build(())

    def call(self, emissions: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.viterbi(emissions, mask)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, temperature: float = 1.0) -> Tensor:
        """Return the logarithm of the probability of the tags of each text, `(B,)`.

        Args:
            emissions: Logits in any float dtype, `(B, W, L)`.
            tags: The labels, int `(B, W)`. Places with negative labels do not count, and need not
                come last. A text without words has the log-likelihood 0.
            temperature: What all scores are divided by.
        """
        tags = ops.cast(tags, "int32")
        emissions = ops.cast(emissions, "float32") / temperature
        place = ops.cumsum(ops.ones_like(tags), axis=1)
        # Words first. The keys differ, because not every sort is stable.
        order = ops.argsort(ops.where(tags >= 0, place, place + ops.shape(tags)[1]), axis=1)
        tags = ops.take_along_axis(tags, order, axis=1)
        emissions = ops.take_along_axis(emissions, order[:, :, None], axis=1)
        is_word, size = tags >= 0, self.num_labels
        moves = self._moves(temperature=temperature)
        states, outside = ops.where(is_word, tags, size), ops.full_like(tags[:, :1], size)
        before, after = (ops.concatenate(x, 1) for x in ([outside, states], [states, outside]))
        of_moves = ops.take(ops.reshape(moves, (-1,)), before * (size + 1) + after)
        of_words = ops.take_along_axis(emissions, ops.maximum(tags, 0)[:, :, None], axis=2)[:, :, 0]
        score = ops.sum(of_moves, axis=1) + ops.sum(ops.where(is_word, of_words, 0.0), axis=1)
        return score - _run(_log_partition, _joined(emissions, is_word), moves)

    def viterbi(
        self, emissions: Tensor, mask: Tensor | None = None, allowed: np.ndarray | None = None
    ) -> Tensor:
        """Return the labels of the best sequence of each text, int32 `(B, W)`; 0 at padding.

        Args:
            emissions: Logits, `(B, W, L)`.
            mask: Which places are words, bool `(B, W)`. Words come first. `None`: all.
            allowed: Which moves are possible, bool `(L + 1, L + 1)`: from the label of the row, or
                in the last row from the start of a text, to the label of the column, or in the last
                column to its end. `None`: all.
        """
        return _run(_best_labels, _joined(emissions, mask), self._moves(allowed))

    def marginals(
        self,
        emissions: Tensor,
        mask: Tensor | None = None,
        allowed: np.ndarray | None = None,
        temperature: float = 1.0,
    ) -> Tensor:
        """Return the probability of each label of each word, `(B, W, L)`; arbitrary at padding.

        Args:
            emissions: As for `viterbi`, as are `mask` and `allowed`.
            mask: Which places are words.
            allowed: Which moves are possible.
            temperature: What all scores are divided by.
        """
        steps = _joined(ops.cast(emissions, "float32") / temperature, mask)
        return _run(_marginals, steps, self._moves(allowed, temperature))

    def _moves(self, allowed: np.ndarray | None = None, temperature: float = 1.0) -> Tensor:
        """Return the scores of all moves, `(L + 1, L + 1)`, from rows to columns."""
        inside = ops.concatenate([self.transitions, self.end[:, None]], axis=1)
        first = ops.concatenate([self.start, ops.zeros_like(self.end[:1])])
        moves = ops.cast(ops.concatenate([inside, first[None]]), "float32") / temperature
        return moves if allowed is None else ops.where(allowed, moves, moves + _FORBIDDEN)

    def get_config(self) -> ConfigDict:
        return {**super().get_config(), "num_labels": self.num_labels}


@functools.cache
def _compiled(function: Callable[..., Tensor], size: int) -> Callable[..., Tensor]:
    """Return a compiled function of steps `(W, B, size)` and moves `(size, size)`."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    shapes = [None, None, size], [size, size]
    return tf.function(function, [*map(tf.TensorSpec, shapes)], autograph=False)


def _run(function: Callable[..., Tensor], steps: Tensor, moves: Tensor) -> Tensor:
    """Call a function, compiled unless it becomes a part of something larger.

    Without that, JAX would compile the loops at each call, and TensorFlow run them in Python.
    """
    if is_known(steps):
        function = _compiled(function, moves.shape[0])
    return function(steps, moves)


def _joined(emissions: Tensor, is_word: Tensor | None) -> Tensor:
    """Return what the loops read, float32 `(W, B, L + 1)`: the logits, and 1 for words."""
    emissions = ops.cast(emissions, "float32")
    is_word = ops.ones_like(emissions[:, :, 0]) if is_word is None else is_word
    is_word = ops.cast(is_word, "float32")[:, :, None]
    return ops.transpose(ops.concatenate([emissions, is_word], axis=-1), (1, 0, 2))


def _outside(steps: Tensor) -> Tensor:
    """Return the message before the first word or after the last one, `(B, L + 1)`."""
    row = np.full(steps.shape[-1], _NEVER, "float32")
    row[-1] = 0
    return ops.sum(steps, axis=0) * 0.0 + row  # there may be no word


def _messages(
    steps: Tensor,
    moves: Tensor,
    reduce: Callable[..., Tensor] = ops.logsumexp,
    reverse: bool = False,
) -> Tensor:
    """Return the message after each word, with its own logits, `(W, B, L + 1)`.

    It is the score of each state, up to a constant, over all beginnings of sequences. At padding,
    it is that of the word before.

    Args:
        steps: The result of `_joined`.
        moves: The scores of all moves.
        reduce: `ops.logsumexp` for all sequences, a maximum for the best.
        reverse: Whether to begin with the last word.
    """
    moves = ops.transpose(moves) if reverse else moves
    # No word has the last state.
    moves = ops.concatenate([moves[:, :-1], ops.full_like(moves[:, :1], _NEVER)], axis=1)

    def step(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new = reduce(state[:, :, None] + moves, axis=1) + x
        new = new - reduce(new, axis=-1, keepdims=True)  # keeps the precision of long texts
        state = ops.where(x[:, -1:] > 0.0, new, state)
        return state, state

    return ops.scan(step, _outside(steps), steps, reverse=reverse)[1]


def _best_labels(steps: Tensor, moves: Tensor) -> Tensor:
    """Return the result of `viterbi`."""
    into = ops.transpose(moves)[:, :-1]  # from the state of the next word

    def step(after: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        found = ops.argmax(x[:, :-1] + ops.take(into, after, axis=0), axis=-1)
        after = ops.where(x[:, -1] > 0.0, ops.cast(found, "int32"), after)
        return after, after

    is_word = steps[:, :, -1:]
    best = ops.concatenate([_messages(steps, moves, _max)[:, :, :-1], is_word], axis=-1)
    last = ops.cast(_outside(steps)[:, -1], "int32") + np.int32(moves.shape[0] - 1)
    _, found = ops.scan(step, last, best, reverse=True)
    return ops.transpose(found * ops.cast(is_word[:, :, 0], "int32"), (1, 0))


def _marginals(steps: Tensor, moves: Tensor) -> Tensor:
    """Return the result of `marginals`."""
    forward, backward = (_messages(steps, moves, reverse=reverse) for reverse in (False, True))
    return ops.softmax(ops.transpose((forward + backward - steps)[:, :, :-1], (1, 0, 2)))


def _log_partition(steps: Tensor, moves: Tensor) -> Tensor:
    """Return the logarithm of the sum over all sequences, `(B,)`.

    Its gradient consists of the expected counts of labels and moves.
    """
    emissions, fixed = steps[:, :, :-1], ops.stop_gradient(moves)
    steps = ops.stop_gradient(steps)
    forward, backward = (_messages(steps, fixed, reverse=reverse) for reverse in (False, True))
    outside, is_word = _outside(steps)[None], steps[:, :, -1:]
    before = ops.exp(ops.concatenate([outside, forward]))  # (W + 1, B, L + 1)
    after = ops.exp(ops.concatenate([backward, outside]))
    factors = ops.exp(fixed - ops.max(fixed))
    into = ops.sum(before[:, :, :, None] * factors, axis=2)  # exact on GPUs, unlike a product
    logs = ops.log(into) + ops.max(fixed)
    constants = ops.logsumexp(logs[:-1, :, :-1] + steps[:, :, :-1], axis=-1)
    total = ops.sum(constants * is_word[:, :, 0], axis=0) + logs[-1, :, -1]

    labels = ops.softmax((forward + backward - steps)[:, :, :-1]) * is_word
    weights = ops.concatenate([is_word, ops.ones_like(is_word[:1])])
    weights = ops.divide_no_nan(weights, ops.sum(into * after, axis=-1, keepdims=True))
    counts = factors * ops.einsum("wbi,wbj->bij", before, after * weights)
    expected = ops.sum(emissions * labels, axis=(0, 2))
    expected = expected + ops.sum(moves * counts, axis=(1, 2))
    return expected + ops.stop_gradient(total - expected)
