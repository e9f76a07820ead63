"""Texts in any order in, batches of about one length to the model, answers in the same order out.

N rows, B of them in a batch, T tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

_BATCHES_SORTED = 64  # batches that are sorted by length together: it bounds the memory
_STEP = 8  # JAX compiles anew for every length: there are not to be many


def check_batch_size(batch_size: int) -> None:
    """Refuses batches without a row."""
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1. Received: batch_size={batch_size!r}.")


def check_lengths(valid_lens: Any, texts: Sequence[str], max_len: int) -> None:
    """Refuses texts, or first texts of pairs, that are longer than a model can read."""
    longest = int(np.argmax(valid_lens)) if len(valid_lens) else 0
    if len(valid_lens) and valid_lens[longest] > max_len:
        raise ValueError(
            f"A text must have at most {max_len} tokens, the model's `max_len`, special tokens "
            f"included. Received: {valid_lens[longest]} tokens in {texts[longest]!r:.80}; split it."
        )


def length_batches(lengths: Any, batch_size: int) -> Iterator[np.ndarray]:
    """Yields the numbers of the rows of each batch `(B,)`, the longest rows first.

    The largest batch comes first, so that what does not fit into memory fails at once.

    Args:
        lengths: Tokens of each row, int `(N,)`.
        batch_size: Rows in a batch, B.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def padded_length(valid_lens: Any) -> int:
    """Returns how long rows have to be, by their tokens that are no padding: a multiple of 8."""
    return -(-int(np.max(valid_lens)) // _STEP) * _STEP


def predict_batch(model: keras.Model, batch: Mapping[str, Any]) -> Any:
    """Returns a model's outputs for one batch of any length, as NumPy has them.

    It runs as a graph, which is several times as fast as op by op, and is made once for each model.
    """
    if keras.backend.backend() == "tensorflow" and not model.compiled:
        model.jit_compile = False  # XLA would compile anew for every length of a batch
    return model.predict_on_batch(dict(batch))


def predict_rows(
    model: keras.Model, rows: Mapping[str, Any], batch_size: int
) -> Iterator[tuple[np.ndarray, Any]]:
    """Runs a model on rows in batches of about one length.

    Args:
        model: The model, a `BERTModel` or that of a task.
        rows: `tokens` and `segments` int `(N, T)` and `valid_lens` int `(N,)`, arrays or tensors,
            and what else the model takes, with N rows. Padding at the end is cut off.
        batch_size: Rows in a batch, B.

    Yields: the numbers of the rows in a batch, int `(B,)`, and the model's outputs for them: an
        array or a dictionary of arrays with B rows.
    """
    arrays = {name: np.asarray(values) for name, values in rows.items()}
    lengths = arrays["valid_lens"]
    for numbers in length_batches(lengths, batch_size):
        batch = {name: values[numbers] for name, values in arrays.items()}
        longest = padded_length(batch["valid_lens"])
        for name in ("tokens", "segments"):
            batch[name] = batch[name][:, :longest]
        yield numbers, predict_batch(model, batch)


def predict_texts(
    model: keras.Model,
    tokenize: Callable[[int, int], Mapping[str, Any]],
    num_texts: int,
    batch_size: int,
) -> Iterator[Any]:
    """Yields a model's outputs for one text after the other, in their order.

    Args:
        model: The model.
        tokenize: From the numbers of the first text and of that behind the last to the rows of
            these texts, one each, as `predict_rows` takes them.
        num_texts: How many texts there are.
        batch_size: Texts that pass through the model at once.

    Yields: the outputs for one text: an array or a dictionary of arrays without the dimension B.
        Those for each token are as long as the batch was.
    """
    check_batch_size(batch_size)
    step = batch_size * _BATCHES_SORTED
    for start in range(0, num_texts, step):
        stop = min(start + step, num_texts)
        outputs: list[Any] = [None] * (stop - start)
        for numbers, batch in predict_rows(model, tokenize(start, stop), batch_size):
            for place, number in enumerate(numbers):
                outputs[number] = keras.tree.map_structure(lambda x, at=place: x[at], batch)
        yield from outputs
