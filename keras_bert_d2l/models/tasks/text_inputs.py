"""Data with strings in every form that Keras takes: lists, pandas, arrays, datasets, generators.

B batch.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_bert_d2l.checks import check_share, check_that, shown, wrong
from keras_bert_d2l.layers.inputs import holds_text, is_dataset
from keras_bert_d2l.models.data_checks import check_has_labels
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf

Batch: TypeAlias = Mapping[str, Tensor]
Texts: TypeAlias = Any  # strings `(B,)` or ragged words `(B, None)`, or a mapping of these


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


def tokenized(
    dataset: "tf.data.Dataset", preprocess: Callable[..., Any], dataset_labels: str
) -> "tf.data.Dataset":
    """Convert a dataset of batches of strings to batches of token ids.

    Args:
        dataset: Batches of strings, alone or with labels and weights.
        preprocess: Converts a batch.
        dataset_labels: What the labels must be, for an error message.

    Raises:
        ValueError: The labels are strings.
    """
    import tensorflow as tf

    if not any(part.shape.rank for part in tf.nest.flatten(dataset.element_spec)):
        dataset = dataset.batch(32)  # it has single texts
    spec = dataset.element_spec
    if has_labels(dataset) and getattr(spec[1], "dtype", None) == tf.string:
        raise ValueError(f"The labels of a dataset must be {dataset_labels}. Received: strings.")

    @tf.autograph.experimental.do_not_convert  # conversion would only cost seconds
    def convert(*batch: Tensor) -> Tensor:
        return preprocess(*batch)

    return dataset.map(convert, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _size(part: Tensor) -> int:
    import tensorflow as tf

    return int(part.nrows()) if isinstance(part, tf.RaggedTensor) else int(np.shape(part)[0])
