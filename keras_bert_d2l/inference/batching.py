"""Run a model on many rows: in batches of similar length, with outputs in the original order.

N: number of rows, B: rows per batch, T: tokens per row.
"""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_bert_d2l.checks import check_bool, check_integer, shown
from keras_bert_d2l.models.tasks.preprocessor import Preprocessor
from keras_bert_d2l.progress import parts, stage
from keras_bert_d2l.text_arguments import TruncationWarning, text_list
from keras_bert_d2l.types import Tensor

Outputs: TypeAlias = Any
"""The outputs of a model in NumPy: an array or a dictionary of arrays."""

_BATCHES_SORTED = 64  # number of batches to sort by length together; bounds the memory use


def text_pairs(names: tuple[str, str], first: Any, second: Any) -> tuple[list[str], list[str]]:
    """Return the two texts, or lists of texts, of the arguments `names` as lists.

    One text beside a list is repeated for each text of the list.

    Raises:
        ValueError: The lists differ in length.
    """
    lists = text_list(names[0], first), text_list(names[1], second)
    if isinstance(first, str):
        lists = lists[0] * len(lists[1]), lists[1]
    elif isinstance(second, str):
        lists = lists[0], lists[1] * len(lists[0])
    if len(lists[0]) != len(lists[1]):
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must be lists of texts of the same length, or one of "
            f"them a text. Received: a list of {len(lists[0])} and a list of {len(lists[1])}."
        )
    return lists


@dataclasses.dataclass
class TextRows:
    """Rows of texts, or of pairs of texts, for a model.

    After the last row, a `TruncationWarning` reports how many were truncated.

    Args:
        preprocess: Converts the texts.
        sides: The texts; for pairs, also the second texts.
        truncate: Whether to truncate texts that are too long, instead of raising an error.
        truncation: Which text of a pair to truncate, as for `Tokenizer`.

    Call arguments:
        start: Number of the first text.
        stop: Number after the last text.

    Returns: the rows, as from `Tokenizer`.

    Raises:
        ValueError: `truncate` is not a boolean, or is `False` and a text is too long.
    """

    preprocess: Preprocessor
    sides: Sequence[Sequence[str]]
    truncate: bool
    truncation: str = "longest_first"
    num_truncated: int = 0

    def __post_init__(self) -> None:
        check_bool("truncate", self.truncate)

    def __call__(self, start: int, stop: int) -> dict[str, Tensor]:
        rows = self.of(start, *(side[start:stop] for side in self.sides))
        if stop == len(self.sides[0]):
            self.warn()
        return rows

    def of(self, first: int, *sides: Sequence[str]) -> dict[str, Tensor]:
        """Return the rows of some texts, the first of which has the index `first`."""
        rows = dict(self.preprocess.rows(*sides, truncation=self.truncation))
        lengths = rows.pop("num_tokens").numpy()
        self._max_len = max_len = self.preprocess.max_len(len(sides))
        num_truncated = int((lengths > max_len).sum())
        if num_truncated and not self.truncate:
            longest = int(lengths.argmax())
            text = " | ".join(texts[longest] for texts in sides)
            raise ValueError(
                f"A text must have at most {max_len} tokens, including special tokens. "
                f"Received: {lengths[longest]} tokens in {shown(text)} at index {first + longest}. "
                "Split it, or omit `truncate=False`."
            )
        self.num_truncated += num_truncated
        arrays = {name: np.asarray(x) for name, x in rows.items()}
        more = min(max_len, padded_length(lengths)) - arrays["tokens"].shape[1]
        of_tokens = self.preprocess.tokenizer.vocab.pad_id
        for name, value in (("tokens", of_tokens), ("segments", 0)):
            arrays[name] = np.pad(arrays[name], ((0, 0), (0, more)), constant_values=value)
        return arrays

    def warn(self) -> None:
        """Warn about the texts that were truncated, if any."""
        if self.num_truncated:
            kind = "pair" if len(self.sides) > 1 else "text"
            found = TruncationWarning(self.num_truncated, kind, self._max_len)
            warnings.warn(found, stacklevel=6)


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
