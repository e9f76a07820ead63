"""TextModel: a model whose `fit`, `evaluate` and `predict` take strings.

B batch.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import keras
import numpy as np

from keras_bert_d2l.checks import check_bool, check_that, check_type
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.inputs import holds_text
from keras_bert_d2l.models import text_inputs
from keras_bert_d2l.models.batch_model import BatchModel, check_vocab_size
from keras_bert_d2l.models.data_checks import check_finite, unpacked
from keras_bert_d2l.models.losses import Results
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.types import Option, Tensor


class TextModel(BatchModel):
    """Base class of models that take strings wherever Keras takes data.

    Attributes:
        preprocessor: Converts strings to what the model takes. `None`, as without a tokenizer, for
            a model that is only given token ids.
        temperature: Divisor of the logits in all probabilities, which `calibrate` fits.
        calibrated: The attributes that `calibrate` sets, with the values that training resets.
    """

    bert_config: BERTConfig
    preprocessing: type[Preprocessor] = Preprocessor
    gives_tokens = False  # whether there is an output for every token
    dataset_labels = "numbers"  # what the labels in a dataset of strings must be
    temperature = 1.0
    calibrated: ClassVar[Mapping[str, object]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "preprocessor":
            if value is not None:
                check_type("preprocessor", value, Preprocessor, "Or set `tokenizer`.")
            self.tokenizer = None if value is None else value.tokenizer
            self.__dict__["_preprocessor"] = value
            return
        super().__setattr__(name, value)
        if name == "tokenizer":
            made = None if value is None else self.preprocessing(self, value)
            self.__dict__["_preprocessor"] = made

    @property
    def preprocessor(self) -> Preprocessor | None:
        """Converts strings to token ids; see `Preprocessor`."""
        return self.__dict__.get("_preprocessor")

    def uncalibrate(self) -> None:
        """Reset what `calibrate` has set."""
        for name, value in self.calibrated.items():
            setattr(self, name, value)

    def tempered(self, logits: Tensor) -> Tensor:
        """Return logits divided by the temperature."""
        return logits if self.temperature == 1 else logits / self.temperature

    @property
    def is_order_free(self) -> bool:
        """Whether the loss does not depend on the order of the examples."""
        return True

    def fit(
        self,
        x: object = None,
        y: object = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        validation_data: object = None,
        sample_weight: Tensor | None = None,
        shuffle: bool | None = None,
        **options: Option,
    ) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does; `x` may contain strings and `y` label names.

        Texts and arrays are shuffled by default, unless the loss depends on their order. The keys
        of `class_weight` may be label names or ids. A model that was calibrated is no longer: the
        temperature becomes 1, and the thresholds `None`.
        """
        self.uncalibrate()
        text_inputs.check_labels_given(x, y, sample_weight)
        if validation_data is None and options.get("validation_split") and text_inputs.are_texts(x):
            parts, share = (x, y, sample_weight), options.pop("validation_split")
            (x, y, sample_weight), validation_data = text_inputs.held_out(parts, share)
        shuffle = self.is_order_free if shuffle is None else shuffle
        data = self._data(x, y, sample_weight, batch_size, shuffle=shuffle)
        if text_inputs.are_texts(x):
            data["x"] = text_inputs.endless(data["x"], options, "steps_per_epoch")
        if validation_data is not None:
            size = options.get("validation_batch_size") or batch_size
            texts = unpacked(validation_data)[0]
            validation_data = self._held_out(validation_data, size)
            if text_inputs.are_texts(texts):
                validation_data = text_inputs.endless(validation_data, options, "validation_steps")
        if text_inputs.is_dataset(data["x"]):  # has been shuffled already, if requested
            shuffle = False
        return super().fit(
            **data, epochs=epochs, validation_data=validation_data, shuffle=shuffle, **options
        )

    def evaluate(
        self,
        x: object = None,
        y: object = None,
        batch_size: int | None = None,
        *,
        sample_weight: Tensor | None = None,
        **options: Option,
    ) -> Results:
        """Evaluate as `keras.Model.evaluate` does; `x` may contain strings and `y` label names."""
        text_inputs.check_labels_given(x, y, sample_weight)
        data = self._data(x, y, sample_weight, batch_size)
        if text_inputs.are_texts(x):
            data["x"] = text_inputs.endless(data["x"], options, "steps")
        return super().evaluate(**data, **options)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        *,
        probabilities: bool = False,
        **options: Option,
    ) -> Tensor | dict[str, Tensor]:
        """Predict as `keras.Model.predict` does; `x` may contain strings.

        The outputs are logits, or with `probabilities=True` probabilities: the softmax of the
        logits divided by the temperature, or with `multi_label` their sigmoid.

        Raises:
            ValueError: The model has no logits, for `probabilities=True`, or as in Keras.
        """
        if check_bool("probabilities", probabilities):
            expected = f"False for a {type(self).__name__} without single labels"
            is_right = self.labels_are not in ("scores", "groups", "tags")
            check_that(is_right, "probabilities", expected, probabilities)
            function = keras.ops.sigmoid if self.labels_are == "rows" else keras.ops.softmax
            logits = keras.tree.map_structure(self.tempered, self.predict(x, batch_size, **options))
            return keras.tree.map_structure(lambda x: np.asarray(function(x)), logits)
        x = self._from_generator(text_inputs.without_pandas(x))
        if holds_text(x):
            preprocess, size = self._needed_preprocessor(), batch_size or 32
            # Keras concatenates the outputs of all batches, so they must have the same length.
            if text_inputs.is_dataset(x):
                if self.gives_tokens:
                    x = text_inputs.tokenized(x, preprocess.of_equal_length, self.dataset_labels)
            elif self.gives_tokens or text_inputs.num_texts(x) <= size:
                x = self.token_batch(x)[0]
                if len(x["valid_lens"]) <= size:  # a pipeline would take 0.3 s to build
                    self.check_batch(x)
                    return keras.Model.predict(self, text_inputs.one_batch(x), **options)
        data = self._data(x, batch_size=batch_size)
        return super().predict(data["x"], batch_size=data["batch_size"], **options)

    def one_batch(
        self, x: Tensor, y: Tensor = None, sample_weight: Tensor = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return super().one_batch(*self.plain(x, y, sample_weight))

    def token_batch(
        self, x: Tensor, y: Tensor = None, sample_weight: Tensor = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if isinstance(x, keras.KerasTensor):
            return super().token_batch(x)
        made = self._needed_preprocessor()(x, y, sample_weight)
        made = made if isinstance(made, tuple) else (made,)
        if keras.backend.backend() != "tensorflow":
            made = keras.tree.map_structure(np.asarray, made)
        return (*made, *[None] * (3 - len(made)))

    def _needed_preprocessor(self) -> Preprocessor:
        check_vocab_size(self.tokenizer, self.bert_config)
        return self.__dict__["_preprocessor"]

    def plain(
        self, x: object, y: object = None, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any, Any]:
        """Return data without pandas, and with ids for label names."""
        x, sample_weight = map(text_inputs.without_pandas, (x, sample_weight))
        y = text_inputs.labels_in_order(y, getattr(self, "labels", ()))
        y = text_inputs.without_pandas(y)
        check_finite("sample_weight", sample_weight)
        if isinstance(sample_weight, list | tuple):
            sample_weight = np.asarray(sample_weight)
        if isinstance(y, np.ndarray) and (y.ndim > 1 or y.dtype == object) and holds_text(x):
            y = y.tolist()  # for example a pandas column of lists
        return x, None if y is None else self.label_ids(y), sample_weight

    def _check_order(self, y: Any, batch_size: int, shuffle: bool) -> None:
        """Raise `ValueError` if a loss depends on an order that a pass would not have."""

    def _checked_batch(self, batch: Tensor) -> Tensor:
        return super()._checked_batch(self.plain(*unpacked(batch)))

    def _from_generator(self, x: Any) -> Any:
        """Return a dataset for a generator of strings, and anything else unchanged."""
        if not isinstance(x, Iterator) or (first := next(x, None)) is None:
            return x  # Keras reports that there are no batches
        x = itertools.chain([first], x)
        return text_inputs.generated(map(self._texts, x)) if holds_text(unpacked(first)[0]) else x

    def _texts(self, batch: Any) -> list[Any]:
        """Return the texts of a batch, with their labels and weights if any."""
        x, y, sample_weight = self.plain(*unpacked(batch))
        rest = itertools.takewhile(lambda part: part is not None, (y, sample_weight))
        parts = [self._needed_preprocessor().checked(x, y), *rest]
        text_inputs.check_sizes(parts)
        return parts

    def _data(
        self,
        x: object,
        y: object = None,
        sample_weight: Tensor | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
    ) -> dict[str, Tensor]:
        """Return the data arguments of Keras's `fit`, with strings replaced by token ids."""
        # With JAX, Keras takes a batch of a dataset before it trains, which a generator would lose.
        as_iterator = isinstance(x, Iterator) and keras.backend.backend() != "tensorflow"
        x, y, sample_weight = self.plain(self._from_generator(x), y, sample_weight)
        self._check_order(y, batch_size or 32, shuffle)
        if not holds_text(x):
            return {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        preprocess = self._needed_preprocessor()
        batches: Any = x
        if not text_inputs.is_dataset(x):
            x = preprocess.checked(x, y)
            batches = text_inputs.batched(x, y, sample_weight, batch_size or 32, shuffle)
        if batches is x or len(batches) != 1:
            data = text_inputs.tokenized(batches, preprocess, self.dataset_labels)
        else:  # a pipeline would take a second to build
            made = tuple(x for x in self.token_batch(x, y, sample_weight) if x is not None)
            data = text_inputs.one_batch(made if len(made) > 1 else made[0])
        return {
            "x": iter(data) if as_iterator else data,
            "y": None,
            "sample_weight": None,
            "batch_size": None,
        }

    def _held_out(self, validation_data: object, batch_size: int | None) -> object:
        """Return the validation data in a format that Keras accepts."""
        x, y, weights = unpacked(validation_data)
        text_inputs.check_labels_given(x, y, weights)
        data = self._data(x, y, weights, batch_size)
        return data["x"] if data["y"] is None else (data["x"], data["y"], data["sample_weight"])

    def label_ids(self, y: object) -> Tensor:
        """Convert labels or label names to the ids the loss expects."""
        return y
