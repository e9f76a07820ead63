"""Conversion of strings to batches of token ids, and of long rows to windows.

B batch, T tokens, L tokens in a window, W windows of the longest row, C outputs per row.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from keras import ops

from keras_bert_d2l.checks import IGNORED, check_share, check_that, shown, wrong
from keras_bert_d2l.layers.inputs import holds_text, is_dataset
from keras_bert_d2l.layers.pooling import pooled
from keras_bert_d2l.models.data_checks import check_has_labels
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf

FEATURES = ("tokens", "segments", "valid_lens")
Batch: TypeAlias = Mapping[str, Tensor]
Texts: TypeAlias = Any  # strings `(B,)` or ragged words `(B, None)`, or a mapping of these
LongTexts: TypeAlias = Literal["cut", "mean", "max"]
LONG_TEXTS: tuple[LongTexts, ...] = get_args(LongTexts)
MAX_WINDOWS = 8  # limits the memory that one text can take


def without_pandas(x: Any, labels: Sequence[str] = ()) -> Any:
    """Return a pandas column as an array, other columns as lists, and anything else unchanged.

    The columns of a data frame are put in the order of `labels`, if these are their names.
    """
    if isinstance(x, Mapping):
        return {name: without_pandas(value) for name, value in x.items()}
    if isinstance(x, Sequence) and not isinstance(x, str | bytes | list | tuple):
        return list(x)
    if labels and set(getattr(x, "columns", ())) == set(labels):
        x = x[list(labels)]
    return x.to_numpy() if hasattr(x, "to_numpy") else x


def held_out(parts: Sequence[Any], share: float) -> list[list[Any]]:
    """Split texts, labels and weights in two, the last ones in the second part, as Keras does.

    Raises:
        ValueError: `share` is out of range, or one part would be empty.
    """
    parts = [without_pandas(part) for part in parts]
    size = num_texts(parts[0])
    place = math.floor(size * (1 - check_share("validation_split", share)))
    expected = f"a share that leaves at least one of {size} texts on both sides"
    check_that(0 < place < size, "validation_split", expected, share)

    def part(x: Any, where: slice) -> Any:
        is_map = isinstance(x, Mapping)
        return {name: x[name][where] for name in x} if is_map else x if x is None else x[where]

    return [[part(x, where) for x in parts] for where in (slice(place), slice(place, None))]


def as_tensors(x: Texts, name: str = "texts") -> Texts:
    """Convert strings to string tensors: ragged for lists of words, dense otherwise.

    Args:
        x: The strings, or a dictionary of them.
        name: Name of the strings, for error messages. A dictionary gives the names by its keys.

    Raises:
        ValueError: As for `text_list`, or there is only one string.
    """
    import tensorflow as tf

    if isinstance(x, Mapping):
        return {name: as_tensors(value, name) for name, value in x.items()}
    if isinstance(x, str | bytes) or getattr(x, "shape", None) == ():
        raise ValueError(f"Texts must be a list of strings. Received: the string {shown(x)}.")
    found = text_list(name, x, words=True)
    if found and isinstance(found[0], list):
        return tf.ragged.constant(found, tf.string, ragged_rank=1)
    return tf.convert_to_tensor(found, tf.string)


def check_labels_given(x: object, y: object, sample_weight: object) -> None:
    """Raise `ValueError` if texts have no labels, or a dataset gets others."""
    for name, value in (("y", y), ("sample_weight", sample_weight)):
        if value is not None and (is_dataset(x) or isinstance(x, Iterator)):
            raise wrong(name, "None for a dataset or a generator, whose batches contain it", value)
    if are_texts(x) or (is_dataset(x) and not has_labels(x)):
        check_has_labels(y)


def has_labels(dataset: "tf.data.Dataset") -> bool:
    """Return whether the elements of a dataset contain labels."""
    return isinstance(dataset.element_spec, tuple) and len(dataset.element_spec) > 1


def are_texts(x: object) -> bool:
    """Return whether `x` contains all strings in memory."""
    return not is_dataset(x) and holds_text(without_pandas(x))


def flat(x: Any) -> Any:
    """Return `(B,)` for a column `(B, 1)`, and anything else unchanged."""
    return x[:, 0] if tuple(getattr(x, "shape", ())[1:]) == (1,) else x


def single_or_pairs(x: Texts) -> Texts:
    """Convert texts, or pairs of texts, to tensors; raise `ValueError` for anything else."""
    texts = as_tensors(flat(x))
    parts = texts if isinstance(texts, Mapping) else {"texts": texts}
    is_known = parts.keys() in ({"texts"}, {"texts", "texts_b"})
    if not is_known or any(part.shape.rank != 1 for part in parts.values()):
        raise ValueError(
            'Texts must be a list of strings, or for pairs {"texts": [...], "texts_b": [...]}. '
            f"Received: {shown(x)}."
        )
    return texts


def batched(
    x: Texts, y: Tensor | None, sample_weight: Tensor | None, batch_size: int, shuffle: bool
) -> "tf.data.Dataset":
    """Return a dataset of batches of strings, with their labels and weights if any."""
    import tensorflow as tf

    given = {"y": y, "sample_weight": sample_weight}
    for name, values in given.items():
        is_sized = all(len(getattr(part, "shape", ())) for part in tf.nest.flatten(values))
        if values is not None and not is_sized:
            raise wrong(name, "a list, an array or a tensor with one entry per text", values)
    parts = [x] + [part for part in given.values() if part is not None]
    size = check_sizes(parts)
    dataset = tf.data.Dataset.from_tensor_slices(tuple(parts) if len(parts) > 1 else parts[0])
    if shuffle:
        dataset = dataset.shuffle(max(1, size))
    return dataset.batch(batch_size)


def generated(batches: Iterator[Sequence[Any]]) -> "tf.data.Dataset":
    """Return a dataset of batches of strings, each with its labels and weights if any."""
    import tensorflow as tf

    first = tuple(next(batches))
    spec = tf.data.Dataset.from_tensor_slices(first).batch(1).element_spec  # for all sizes
    all_batches = itertools.chain([first], map(tuple, batches))
    return tf.data.Dataset.from_generator(lambda: all_batches, output_signature=spec)


def check_sizes(parts: Any) -> int:
    """Return the number of texts; raise `ValueError` if other parts have more or fewer items."""
    import tensorflow as tf

    sizes = {_size(part) for part in tf.nest.flatten(parts)}
    if len(sizes) > 1:
        raise ValueError(
            "There must be one label and one weight per text, and one second text or list of "
            "choices if there are any. Received: different numbers of them, "
            f"{sorted(sizes)}."
        )
    return max(sizes)


def num_texts(x: Any) -> int:
    """Return the number of texts or pairs of texts in memory."""
    part = next(iter(x.values())) if isinstance(x, Mapping) else x
    return 1 if getattr(part, "shape", None) == () else len(part)


def one_batch(batch: Batch) -> "tf.data.Dataset":
    """Return a dataset of one batch, which Keras reads as it is, without a pipeline."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(batch)


def traced(text_batch: Callable[[Texts], Batch]) -> Callable[[Texts], Batch]:
    """Return a graph function for trimmed batches, traced only once because that takes a second."""
    import tensorflow as tf

    def batch_of(texts: Texts) -> Batch:
        batch = text_batch(texts)
        # The rows of choices, (B, N, T), are already trimmed.
        return batch if batch["tokens"].shape.rank == 3 else trimmed(batch)

    return tf.function(batch_of, reduce_retracing=True, autograph=False)


def tokenized(
    dataset: "tf.data.Dataset",
    text_batch: Callable[[Texts], Batch],
    text_targets: Callable[..., tuple[Tensor, ...]],
    dataset_labels: str,
) -> "tf.data.Dataset":
    """Convert a dataset of batches of strings to batches of token ids.

    Args:
        dataset: Batches of strings, alone or with labels and weights.
        text_batch: Computes the features of the strings, and other values for `text_targets`.
        text_targets: Computes the labels, and the weights if any, from the strings, the output of
            `text_batch`, and the labels and weights of the strings.
        dataset_labels: What the labels must be, for an error message.

    Raises:
        ValueError: The labels are strings.
    """
    import tensorflow as tf

    @tf.autograph.experimental.do_not_convert  # conversion would only cost seconds
    def with_tokens(texts: Texts, *rest: Tensor) -> Tensor:
        batch = text_batch(texts)
        of_model = {name: batch[name] for name in FEATURES}
        return (of_model, *text_targets(texts, batch, *rest)) if rest else of_model

    if not any(part.shape.rank for part in tf.nest.flatten(dataset.element_spec)):
        dataset = dataset.batch(32)  # it has single texts
    spec = dataset.element_spec
    if has_labels(dataset) and getattr(spec[1], "dtype", None) == tf.string:
        raise ValueError(f"The labels of a dataset must be {dataset_labels}. Received: strings.")
    if isinstance(spec, tuple):
        mapped = dataset.map(with_tokens, num_parallel_calls=tf.data.AUTOTUNE)
    else:  # a dictionary is a single argument
        mapped = dataset.map(lambda texts: with_tokens(texts), num_parallel_calls=tf.data.AUTOTUNE)
    return mapped.prefetch(tf.data.AUTOTUNE)


def trimmed(batch: Batch) -> Batch:
    """Truncate a tokenizer's batch to its longest row."""
    import tensorflow as tf

    # The 1 covers a batch without rows.
    longest = tf.reduce_max(tf.concat([batch["valid_lens"], [1]], axis=0))
    return {name: x[:, :longest] if x.shape.rank == 2 else x for name, x in batch.items()}


def first_piece_labels(labels: Tensor, word_ids: Tensor) -> Tensor:
    """Convert word labels to token labels: the first token of a word gets the label of the word.

    Args:
        labels: One label per word, int, ragged `(B, None)`.
        word_ids: Index of each token's word, or -1 for no word, int `(B, T)`.

    Returns: int32 `(B, T)`; `IGNORED` for all other tokens.
    """
    import tensorflow as tf

    before = tf.pad(word_ids[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
    is_first = (word_ids >= 0) & (word_ids != before)
    # Add a column, so that gathering also works for a batch without words.
    dense = tf.pad(tf.cast(labels.to_tensor(IGNORED), tf.int32), [[0, 0], [0, 1]])
    by_token = tf.gather(dense, tf.maximum(word_ids, 0), batch_dims=1)
    return tf.where(is_first, by_token, IGNORED)


def check_word_counts(words: Tensor, labels: Tensor) -> None:
    """Raise `ValueError` unless every word has one label; both are ragged `(B, None)`."""
    import tensorflow as tf

    if words.shape.rank != 2:
        raise ValueError(
            "Texts must be given as a list of words for each text, or as ragged strings (B, None). "
            f"Received: {words.dtype.name} of shape {words.shape}."
        )
    if not isinstance(words, tf.RaggedTensor):
        words = tf.RaggedTensor.from_tensor(words)
    of_words, of_labels = words.row_lengths().numpy(), labels.row_lengths().numpy()
    for row in np.flatnonzero(of_words != of_labels)[:1]:
        raise ValueError(
            f"Every word must have one label. Received: {of_words[row]} words but {of_labels[row]} "
            f"labels in text {row}."
        )


def _size(part: Tensor) -> int:
    import tensorflow as tf

    return int(part.nrows()) if isinstance(part, tf.RaggedTensor) else int(np.shape(part)[0])


def longest_row(max_len: int, long_texts: LongTexts) -> int:
    """Return the maximum number of tokens in a row of a model whose encoder takes `max_len`."""
    if long_texts == "cut":
        return max_len
    room, step = _room_and_step(max_len)
    return 2 + room + step * (MAX_WINDOWS - 1)


def over_windows(
    run: Callable[[Tensor, Tensor, Tensor], Tensor],
    tokens: Tensor,
    segments: Tensor,
    valid_lens: Tensor | None,
    max_len: int,
    long_texts: LongTexts,
) -> Tensor:
    """Run a model on windows of single texts, and pool its outputs over the windows of each text.

    Each window begins with the row's first token, `[CLS]`, and ends with its last one, `[SEP]`.
    Windows overlap by a third. A text that fits into one window gives the same outputs as without
    windows.

    Args:
        run: Returns the outputs `(N, C)` for tokens, segments and valid lengths of N rows.
        tokens: Token ids, `(B, T)`.
        segments: Segment ids, `(B, T)`.
        valid_lens: Number of non-padding tokens in each row, `(B,)`. `None`: all tokens.
        max_len: Maximum number of tokens in a window.
        long_texts: `"mean"` or `"max"` of the outputs.

    Returns: the outputs, `(B, C)`.
    """
    tokens = ops.cast(tokens, "int32")
    num_rows, length = ops.shape(tokens)
    lens = ops.zeros_like(tokens[:, 0]) + length if valid_lens is None else valid_lens
    lens = ops.cast(lens, "int32")[:, None]  # (B, 1)
    room, step = _room_and_step(max_len)
    # XLA needs numbers for static shapes, which are not known in every graph.
    lower, higher = (min, max) if isinstance(length, int) else (ops.minimum, ops.maximum)
    num_windows = higher(length - max_len + step - 1, 0) // step + 1
    starts = ops.arange(num_windows, dtype="int32") * step  # (W,)
    in_window = ops.clip(lens - 2 - starts, 0, room)  # tokens of the text in each window, (B, W)
    is_window = (starts == 0) | (in_window > room - step)  # has more than the overlap

    place = ops.arange(lower(length, max_len), dtype="int32")  # (L,)
    is_inside = place <= in_window[:, :, None]  # (B, W, L): the first token or one of the text
    is_end = place == in_window[:, :, None] + 1
    index = ops.where(place == 0, 0, starts[:, None] + place)  # (W, L)
    index = ops.where(is_inside, index, ops.where(is_end, lens[:, :, None] - 1, 0))

    def of_windows(values: Tensor) -> Tensor:
        values = ops.cast(values, "int32")[:, None, :]
        taken = ops.take_along_axis(
            ops.broadcast_to(values, (num_rows, num_windows, length)), index, axis=2
        )
        taken = ops.where(is_inside | is_end, taken, 0)
        return ops.reshape(taken, (-1, ops.shape(place)[0]))

    outputs = run(of_windows(tokens), of_windows(segments), ops.reshape(in_window + 2, (-1,)))
    outputs = ops.reshape(outputs, (num_rows, num_windows, outputs.shape[-1]))
    return pooled(outputs, is_window, long_texts)


def _room_and_step(max_len: int) -> tuple[int, int]:
    """Return the number of a text's tokens in a window, and from one window to the next."""
    room = max_len - 2
    return room, room - room // 3
