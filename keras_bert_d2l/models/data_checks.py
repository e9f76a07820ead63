"""Base class of models that check their data before they compute anything.

B batch, T tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_bert_d2l.checks import IGNORED, check_range, check_that, is_in_graph, shown, value_errors
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.inputs import check_shapes, check_values, holds_text, is_dataset
from keras_bert_d2l.models.compiling import ONE_HOT_LOSSES, Labels
from keras_bert_d2l.models.losses import (
    CRFLoss,
    Results,
    WeightedBinaryCrossEntropy,
    WeightedCrossEntropy,
)
from keras_bert_d2l.types import Option, Tensor


class CheckedModel(keras.Model):
    """A model whose data is checked: arrays immediately, other data batch by batch.

    A step that XLA or JAX compiles could not check anything. Datasets are checked by their
    pipeline, in parallel to the training step. Data loaders other than `tf.data` datasets and
    Python generators are not checked.
    """

    bert_config: BERTConfig
    labels_are: Labels = "ids"

    @property
    def max_row_len(self) -> int:
        """Maximum number of tokens in a row."""
        return self.bert_config.max_len

    def num_classes(self, length: Tensor) -> dict[str, Tensor]:
        """Return the number of classes of each output whose labels are class ids.

        Args:
            length: Number of tokens per row, T.

        Returns: numbers by the name of the output; the name is "" if there is only one output.
        """
        return {}

    def check_batch(self, x: Tensor, y: Tensor = None) -> None:
        """Raise `ValueError` if ids, lengths, positions or labels are out of range."""
        if not isinstance(x, Mapping) or "tokens" not in x:
            return  # `call` reports what is missing
        shapes = {name: _shape(feature) for name, feature in x.items()}
        check_shapes(shapes, self.max_row_len)
        length = shapes["tokens"][1]
        check_values(x, length, self.bert_config)
        for head, number in self.num_classes(length).items():
            loss = self.loss.get(head) if isinstance(self.loss, Mapping) else self.loss
            labels = y.get(head) if isinstance(y, Mapping) else y
            limits: dict[object, Tensor] = {
                WeightedCrossEntropy: number - 1,
                CRFLoss: number - 1,
                WeightedBinaryCrossEntropy: 1,
                keras.losses.SparseCategoricalCrossentropy: number - 1,
            }
            if isinstance(loss, ONE_HOT_LOSSES) and labels is not None:
                expected = f"one-hot, with {number} columns, for {type(loss).__name__}"
                advice = "For class ids, compile with loss='sparse_categorical_crossentropy'."
                check_that(_shape(labels)[-1] == number, "labels", expected, labels, advice)
            if type(loss) in limits and labels is not None:
                name = f"{head} labels" if head else "labels"
                advice = f"{IGNORED} marks a missing label."
                are_ids = type(loss) is not WeightedBinaryCrossEntropy  # it takes shares, too
                check_range(name, labels, 0, limits[type(loss)], advice, IGNORED, are_ids)

    def checked_data(self, x: Tensor, y: Tensor = None) -> Tensor:
        """Check arrays, or return a dataset or a generator that checks its batches."""
        if isinstance(x, Iterator):
            return (self._checked_batch(batch) for batch in x)
        if isinstance(x, keras.utils.PyDataset):
            first = x[0][0] if isinstance(x[0], tuple) else x[0]
            is_right = not isinstance(first, list | np.ndarray) or not holds_text(first)
            check_that(is_right, "x", "a list, a tf.data.Dataset or a generator for strings", x)
        if holds_text(x):
            self.token_batch(x)
        if isinstance(x, Mapping):
            self.check_batch(x, y)
        if not is_dataset(x):
            return x
        import tensorflow as tf

        @tf.autograph.experimental.do_not_convert  # nothing to convert
        def checked(*batch: Tensor) -> Tensor:
            return self._checked_batch(batch if isinstance(x.element_spec, tuple) else batch[0])

        data = x.map(checked, tf.data.AUTOTUNE)
        if x.options().autotune.enabled is None:
            # At the end of a pass, TensorFlow 2.21 waits for the tuning thread, which may sleep for
            # up to a minute.
            options = tf.data.Options()
            options.autotune.enabled = False
            data = data.with_options(options)
        return data

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the outputs for token ids or, of a task model, for strings."""
        if arguments and holds_text(arguments[0]):
            arguments = (self.token_batch(arguments[0])[0], *arguments[1:])
        return super().__call__(*arguments, **options)

    def token_batch(
        self, x: Tensor, y: Tensor = None, sample_weight: Tensor = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return one batch of strings, with its labels and weights if any, as token ids."""
        raise ValueError(
            f"A {type(self).__name__} takes token ids. Received: strings. Convert them by its "
            "`tokenizer`, before any functional model. Train a BERTModel on texts by `pretrain` or "
            "on the batches of `pretraining_dataset`, and ask it by `fill_mask`."
        )

    def class_weight_of_ids(self, class_weight: Any) -> dict[int, float] | None:
        """Return Keras's `class_weight` for all ids, given those of some names or ids."""
        if class_weight is not None and self.labels_are != "classes":
            raise ValueError(
                "`class_weight` of Keras weights a text by one label. Received: class_weight="
                f"{shown(class_weight)}; pass class_weights={{label: weight}} to `compile`."
            )
        if class_weight is None:
            return None
        return dict(enumerate(self.weights_of_classes(class_weight)))

    def weights_of_classes(self, by_label: Mapping[str | int, float]) -> list[float]:
        """Return the weight of every label, in the order of the labels' ids."""
        raise ValueError(f"`class_weights` requires labels, which a {type(self).__name__} lacks.")

    def _checked_batch(self, batch: Tensor) -> Tensor:
        x, *rest = unpacked(batch)
        if holds_text(x):
            self.token_batch(x)
        self.check_batch(x, rest[0])
        return (x,) if rest[0] is None else keras.utils.pack_x_y_sample_weight(x, *rest)

    def one_batch(
        self, x: Tensor, y: Tensor = None, sample_weight: Tensor = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return a batch as Keras takes it; raise `ValueError` if it is out of range."""
        batch = self.token_batch(x, y, sample_weight) if holds_text(x) else (x, y, sample_weight)
        self.check_batch(*batch[:2])
        return batch

    def fit(
        self,
        x: Tensor = None,
        y: Tensor = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        validation_data: Tensor = None,
        **options: Option,
    ) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does; values out of range raise `ValueError`."""
        with value_errors():
            if isinstance(validation_data, tuple | list):
                self._checked_batch(tuple(validation_data))
            elif validation_data is not None:
                validation_data = self.checked_data(validation_data)
            x, options["validation_data"] = self.checked_data(x, y), validation_data
            options["class_weight"] = self.class_weight_of_ids(options.get("class_weight"))
            return super().fit(x, y, batch_size, epochs, **options)

    def evaluate(
        self, x: Tensor = None, y: Tensor = None, batch_size: int | None = None, **options: Option
    ) -> Results:
        """Evaluate as `keras.Model.evaluate` does; values out of range raise `ValueError`."""
        with value_errors():
            if not options.get("_use_cached_eval_dataset"):  # during `fit`, which has checked it
                x = self.checked_data(x, y)
            return super().evaluate(x, y, batch_size, **options)

    def predict(
        self, x: Tensor, batch_size: int | None = None, **options: Option
    ) -> Tensor | dict[str, Tensor]:
        """Predict as `keras.Model.predict` does; values out of range raise `ValueError`."""
        with value_errors():
            return super().predict(self.checked_data(x), batch_size, **options)

    def train_on_batch(
        self,
        x: Tensor,
        y: Tensor = None,
        sample_weight: Tensor = None,
        class_weight: Any = None,
        **options: Option,
    ) -> Results:
        """Train as `keras.Model.train_on_batch` does, with the checks of `fit`."""
        batch, by_id = self.one_batch(x, y, sample_weight), self.class_weight_of_ids(class_weight)
        return super().train_on_batch(*batch, by_id, **options)

    def test_on_batch(
        self, x: Tensor, y: Tensor = None, sample_weight: Tensor = None, **options: Option
    ) -> Results:
        """Evaluate as `keras.Model.test_on_batch` does, with the checks of `evaluate`."""
        return super().test_on_batch(*self.one_batch(x, y, sample_weight), **options)

    def predict_on_batch(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        """Predict as `keras.Model.predict_on_batch` does, with the checks of `predict`."""
        return super().predict_on_batch(self.one_batch(x)[0])


def check_has_labels(y: Tensor) -> None:
    """Raise `ValueError` if there are no labels."""
    check_that(y is not None, "y", "the labels, which datasets have in each batch, as (x, y)", y)


def unpacked(batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features, labels and weights of a batch; a list of strings has only features."""
    if isinstance(batch, list) and all(isinstance(text, str) for text in batch):
        return batch, None, None
    return tuple(keras.utils.unpack_x_y_sample_weight(batch))


def check_finite(name: str, values: object) -> None:
    """Raise a `ValueError` unless all values of a list or an array are finite numbers.

    Tensors and other objects are not checked.
    """
    if not isinstance(values, list | tuple | np.ndarray):
        return
    array = np.asarray(values)
    check_that(array.dtype.kind in "biuf", name, "numbers", array.tolist())
    for index in np.argwhere(~np.isfinite(array))[:1]:
        raise ValueError(
            f"`{name}` must be finite. Received: {array[tuple(index)]} at index {index[0]}. "
            "Correct it, or remove the example."
        )


def _shape(x: Tensor) -> Sequence[Tensor]:
    """Return the sizes of a tensor: numbers, or scalar tensors if they are unknown in a graph."""
    if not is_in_graph(x):
        return np.shape(x)
    import tensorflow as tf

    return [tf.shape(x)[axis] if size is None else size for axis, size in enumerate(x.shape)]
