"""Run a model on many rows: in batches of similar length, with outputs in the original order.

N: number of rows, B: rows per batch, T: tokens per row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_bert_d2l.checks import check_integer, shown
from keras_bert_d2l.progress import parts, stage
from keras_bert_d2l.types import Tensor

Outputs: TypeAlias = Any
"""The outputs of a model in NumPy: an array or a dictionary of arrays."""

_BATCHES_SORTED = 64  # number of batches to sort by length together; bounds the memory use


def text_list(name: str, texts: str | Sequence[str]) -> list[str]:
    """Return a text, or a list of texts, as a list.

    Raises:
        ValueError: The argument `name` is something else.
    """
    found = [texts] if isinstance(texts, str) else texts
    if not isinstance(found, Sequence | np.ndarray) or not all(isinstance(x, str) for x in found):
        raise ValueError(f"`{name}` must be a text or a list of texts. Received: {shown(texts)}.")
    return list(found)


def text_pairs(
    names: tuple[str, str], first: str | Sequence[str], second: str | Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the two texts, or lists of texts, of the arguments `names` as lists.

    Raises:
        ValueError: One is a text and the other a list, or the lists differ in length.
    """
    lists = text_list(names[0], first), text_list(names[1], second)
    shapes = [
        "one text" if isinstance(given, str) else f"a list of {len(texts)}"
        for given, texts in zip((first, second), lists, strict=True)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must both be texts, or lists of texts of the same "
            f"length. Received: {shapes[0]} and {shapes[1]}."
        )
    return lists


def check_lengths(valid_lens: Tensor, texts: Sequence[str], max_len: int) -> None:
    """Raise `ValueError` if a text, or the pair that it starts, is too long for the model."""
    longest = int(np.argmax(valid_lens)) if len(valid_lens) else 0
    if len(valid_lens) and valid_lens[longest] > max_len:
        raise ValueError(
            f"A text must have at most {max_len} tokens, the longest row of the model, including "
            f"special tokens. Received: {valid_lens[longest]} tokens in {shown(texts[longest])}; "
            "split it."
        )


def length_batches(lengths: Tensor, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the row indices of each batch `(B,)`, with the longest rows first.

    The largest batch comes first so that an out-of-memory error occurs immediately.

    Args:
        lengths: Number of tokens in each row, int `(N,)`.
        batch_size: Rows per batch, B.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def padded_length(valid_lens: Tensor, step: int = 8) -> int:
    """Return the padded length: the length of the longest row, rounded up to a multiple of `step`.

    JAX recompiles for each length, so that their number must be small.
    """
    return -(-int(np.max(valid_lens)) // step) * step


def predict_batch(model: keras.Model, batch: Mapping[str, Tensor]) -> Outputs:
    """Return a model's outputs for one batch of any length as NumPy arrays.

    The model runs as a graph, which is built once per model and is several times faster than eager
    execution.

    Raises:
        ValueError: An output is NaN.
    """
    if keras.backend.backend() == "tensorflow" and not model.compiled:
        model.jit_compile = False  # XLA would recompile for every batch length
    outputs = model.predict_on_batch(dict(batch))
    if any(np.isnan(output).any() for output in keras.tree.flatten(outputs)):
        raise ValueError(
            "`model` must have finite outputs. Received: outputs that are NaN. Its training has "
            "diverged, or its weights are damaged."
        )
    return outputs


def predict_rows(
    model: keras.Model, rows: Mapping[str, Tensor], batch_size: int
) -> Iterator[tuple[np.ndarray, Outputs]]:
    """Run a model on rows in batches of similar length.

    Args:
        model: A `BERTModel` or a task model.
        rows: `tokens` and `segments` int `(N, T)`, `valid_lens` int `(N,)`, and any other inputs
            of the model with N rows. Unnecessary padding is removed.
        batch_size: Rows per batch, B.

    Yields: the row indices of a batch, int `(B,)`, and the model's outputs for these rows: an
        array or a dictionary of arrays with B rows.
    """
    arrays = {name: np.asarray(values) for name, values in rows.items()}
    with stage("Predicting", len(arrays["valid_lens"])) as work:
        for numbers in length_batches(arrays["valid_lens"], batch_size):
            batch = {name: values[numbers] for name, values in arrays.items()}
            longest = padded_length(batch["valid_lens"])
            for name in ("tokens", "segments"):
                batch[name] = batch[name][:, :longest]
            yield numbers, predict_batch(model, batch)
            work.advance(len(numbers))


def predict_texts(
    model: keras.Model,
    tokenize: Callable[[int, int], Mapping[str, Tensor]],
    num_texts: int,
    batch_size: int,
) -> Iterator[Outputs]:
    """Yield a model's outputs for each text, in the order of the texts.

    Args:
        model: The model.
        tokenize: Function `tokenize(start, stop)` that returns one row per text in
            `range(start, stop)`, in the format of the argument `rows` of `predict_rows`.
        num_texts: Number of texts.
        batch_size: Texts per batch.

    Yields: the outputs for one text: an array or a dictionary of arrays without the dimension B.
        Per-token outputs have the padded length of the batch.
    """
    check_integer("batch_size", batch_size, 1)
    step = batch_size * _BATCHES_SORTED
    for part in parts("Predicting", num_texts, step):
        outputs: list[Outputs] = [None] * (part.stop - part.start)
        rows = tokenize(part.start, part.stop)
        for numbers, batch in predict_rows(model, rows, batch_size):
            for place, number in enumerate(numbers):
                outputs[number] = keras.tree.map_structure(lambda x, at=place: x[at], batch)
        yield from outputs
