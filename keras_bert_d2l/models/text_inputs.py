"""Strings in every form that Keras takes, and the preprocessor that makes batches of them.

B texts, R rows, T tokens.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import keras
import numpy as np

from keras_bert_d2l.checks import check_share, check_that, is_in_graph, shown, shown_names, wrong
from keras_bert_d2l.layers.inputs import holds_text, is_dataset
from keras_bert_d2l.models.batch_model import TextTokenizer, check_vocab_size
from keras_bert_d2l.models.data_checks import check_has_labels
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_bert_d2l.models.bert import BERTModel
    from keras_bert_d2l.models.tasks.text_model import TextModel

FEATURES = ("tokens", "segments", "valid_lens")
Batch: TypeAlias = Mapping[str, Tensor]
Texts: TypeAlias = Any  # strings `(B,)` or ragged words `(B, None)`, or a mapping of these


def without_pandas(x: Any) -> Any:
    """Return a pandas column as an array, other columns as lists, and anything else unchanged."""
    if isinstance(x, Mapping):
        return {name: without_pandas(value) for name, value in x.items()}
    if isinstance(x, Sequence) and not isinstance(x, str | bytes | list | tuple):
        return list(x)
    return x.to_numpy() if hasattr(x, "to_numpy") else x


def labels_in_order(y: Any, labels: Sequence[str]) -> Any:
    """Return the columns of a data frame or a dictionary in the order of the labels they are named.

    Anything else is returned unchanged, also columns without names.

    Raises:
        ValueError: The columns have other names.
    """
    names = list(y) if isinstance(y, Mapping) else list(getattr(y, "columns", ()))
    if len(names) < 2 or not labels or not all(isinstance(name, str) for name in names):
        return y
    check_that(sorted(names) == sorted(labels), "y", f"columns named {shown_names(labels)}", names)
    if isinstance(y, Mapping):
        return np.stack([np.asarray(y[name]) for name in labels], axis=1)
    return y[list(labels)]


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


def endless(dataset: "tf.data.Dataset", options: dict[str, Any], steps: str) -> "tf.data.Dataset":
    """Repeat a dataset without end, and let Keras's option `steps` end each pass, unless it is set.

    Keras starts an iterator before each pass over a finite dataset, and another one after it. To
    start one takes half a second if it tokenizes. Without an end, one is enough for all passes.
    """
    if options.get(steps):
        return dataset
    options[steps] = int(dataset.cardinality())
    return dataset.repeat()


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


def one_batch(batch: Batch | tuple[Any, ...]) -> "tf.data.Dataset":
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


class Preprocessor:
    """Converts strings to token ids, as `fit`, `predict` and exports of a task model do.

    A `BERTModel` or task model with a tokenizer has one, `model.preprocessor`. It works eagerly, in
    a `tf.function` and in `tf.data.Dataset.map`, after batching. In a graph, labels must be ids.

    Args:
        model: The model, which says how long rows may be.
        tokenizer: Converts strings to token ids.
        max_len: Maximum number of tokens in a row. `None`: that of the model.

    Call arguments:
        x: Strings `(B,)`, `{"texts": ..., "texts_b": ...}` for pairs, or what else `fit` of the
            model takes.
        y: Labels, as for `fit`.
        sample_weight: Weights, `(B,)`.

    Returns: a batch `{"tokens": (R, T), "segments": (R, T), "valid_lens": (R,)}`, int32. With
        labels, the tuple of the batch and the labels, and with weights also of these. R is B,
        unless long texts are split into several rows.

    Raises:
        ValueError: The strings or the labels are not what the model takes.

    Example:

    ```python
    import keras_bert_d2l as kb
    import tensorflow as tf

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    model = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=kb.Tokenizer(vocab))
    model.preprocessor(["what a film"])["tokens"]
    dataset = tf.data.Dataset.from_tensor_slices((["what a film", "a bore"], [1, 0]))
    for batch, labels in dataset.batch(2).map(model.preprocessor):
        print(batch["tokens"].shape, labels)
    ```
    """

    keys: tuple[str, ...] = ("texts", "texts_b")  # of strings in a dictionary
    features: tuple[str, ...] = FEATURES
    has_windows = False  # whether a long text has several rows
    form = 'a list, or for pairs {"texts": [...], "texts_b": [...]}'

    def __init__(
        self, model: "TextModel | BERTModel", tokenizer: TextTokenizer, max_len: int | None = None
    ) -> None:
        self.model, self.tokenizer, self._max_len = model, tokenizer, max_len
        self._traced: Callable[[Texts], Batch] | None = None

    def max_len(self, num_texts: int = 1) -> int:
        """Return the maximum number of tokens in the row of one text, or of the 2 of a pair."""
        if self._max_len is not None:
            return self._max_len
        return self.model.max_row_len if num_texts == 1 else self.model.bert_config.max_len

    def __call__(self, x: Any, y: Any = None, sample_weight: Tensor | None = None) -> Any:
        texts = x
        parts = keras.tree.flatten(x)
        if any(is_in_graph(getattr(part, "flat_values", part)) for part in parts):
            batch = self._rows_of(texts)
        else:
            check_vocab_size(self.tokenizer, self.model.bert_config)
            x, y, sample_weight = self.model.plain(x, y, sample_weight)
            texts = self.checked(x, y)
            check_sizes([texts, *(part for part in (y, sample_weight) if part is not None)])
            batch = self._eager_rows(texts)
        rest = [part for part in (y, sample_weight) if part is not None]
        features = {name: batch[name] for name in self.features}
        return (features, *self.targets(texts, batch, *rest)) if rest else features

    def of_equal_length(self, x: Any) -> Batch:
        """Return the batch of a call in a graph, padded to the maximum length."""
        batch = self._rows_of(x)
        return self.padded(
            {name: batch[name] for name in self.features}, self.max_len(len(self.keys))
        )

    def padded(self, batch: Batch, length: Any) -> Batch:
        """Pad the features of a batch whose rows have at most `length` tokens."""
        import tensorflow as tf

        rank = batch["tokens"].shape.rank
        more = [[0, 0]] * (rank - 1) + [[0, length - tf.shape(batch["tokens"])[-1]]]
        pad_id = {"tokens": self.tokenizer.vocab.pad_id}
        return {
            name: tf.pad(x, more, constant_values=pad_id.get(name, 0))
            if x.shape.rank == rank
            else x
            for name, x in batch.items()
        }

    def checked(self, x: Any, y: Tensor | None = None) -> Texts:
        """Convert in-memory strings to tensors; raise `ValueError` if the task cannot use them."""
        texts = as_tensors(flat(x))
        if any(side.shape.rank != 1 for side in self._sides(texts).values()):
            raise self._wrong_form(shown(x))
        return texts

    def rows(self, *texts: Any, **options: Any) -> Batch:
        """Return the rows of texts, or of pairs of texts, `(B, T)`; T is that of the longest row.

        Args:
            *texts: Strings, `(B,)` each.
            **options: `truncation`, as for `Tokenizer`; other ones in subclasses.

        Returns: also `num_tokens`, the number of tokens of each text or pair before it was
            truncated, `(B,)`.
        """
        max_len = self.max_len(len(texts))
        rows: Batch = self.tokenizer.rows(*texts, max_len=max_len, pad=False, **options)
        return rows

    def targets(
        self, texts: Texts, batch: Batch, labels: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the labels, and the weights if any, that belong to the rows `batch`."""
        return labels, *weights

    def _rows_of(self, texts: Texts) -> Batch:
        """Return the `rows` of string tensors, or of a dictionary of them."""
        sides = self._sides(texts)
        if any(side.shape.rank == 0 for side in sides.values()):
            raise ValueError(
                "A preprocessor converts batches. Received: single strings. Batch the dataset "
                "first: `dataset.batch(32).map(model.preprocessor)`."
            )
        return self.rows(*(flat(sides[name]) for name in self.keys if name in sides))

    def _sides(self, texts: Texts) -> Mapping[str, Any]:
        """Return strings by key; raise `ValueError` if one is missing or unknown."""
        sides = texts if isinstance(texts, Mapping) else {self.keys[0]: texts}
        if not set(self.keys) - {"texts_b"} <= set(sides) <= set(self.keys):
            is_map = isinstance(texts, Mapping)
            raise self._wrong_form(f"the keys {sorted(texts)}" if is_map else "no dictionary")
        return sides

    def _wrong_form(self, received: str) -> ValueError:
        name = type(self.model).__name__
        return ValueError(f"A {name} takes strings as {self.form}. Received: {received}.")

    def _eager_rows(self, texts: Texts) -> Batch:
        """Return rows, for a few short texts without a graph, which takes a second to trace."""
        import tensorflow as tf

        if not self.has_windows and self.tokenizer.is_quick(*self._sides(texts).values()):
            return self._rows_of(texts)
        if self._traced is None:
            self._traced = tf.function(self._rows_of, reduce_retracing=True, autograph=False)
        return self._traced(texts)
