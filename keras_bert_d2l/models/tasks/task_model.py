"""What the task models have in common: an encoder, a head, and batches of token ids or strings.

B batch, T tokens, D hidden width, C labels.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.initializers import output_initializer
from keras_bert_d2l.models import features
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import strings as text_batches
from keras_bert_d2l.models.tasks.freezing import add_lora, freeze_lower_part, num_frozen_blks

FEATURES = ("tokens", "segments", "valid_lens")
_HALF_PRECISION = ("float16", "bfloat16")


class TaskModel(features.BatchModel):
    """A BERT that answers a question about texts.

    The encoder, and the pooler where the task needs one, are those of `bert` itself: training
    the task trains them, and freezing them freezes them there too. A batch is a dictionary of
    `tokens`, `segments` and `valid_lens`; with a tokenizer, `fit`, `evaluate` and `predict` take
    strings as well, see each task.

    Args:
        bert: The pretrained model.
        head: What the outputs come from.
        dropout: Rate of the dropout before the head.
        tokenizer: Turns strings into batches. It is no part of what Keras saves;
            `save_pretrained` stores it.
        **kwargs: `name` of Keras.

    Attributes:
        encoder: The encoder of `bert`.
        hidden: Its pooler, or `None`.
        head: The layer of the task.
        bert_config: The architecture of `bert`.
        tokenizer: The tokenizer, which may be set later.
    """

    features = FEATURES
    fields: tuple[str, ...] = ()  # the arguments beside `bert` that say what the model computes
    gives_tokens = False  # whether there is an output for every token
    has_pooler = False  # whether the head stands on the pooler of the BERT
    has_head = True  # whether the head has weights
    tokenizer: Any
    # Each task's: from weights of the labels to the arguments of `compile` that go with it.
    default_training: Callable[[Sequence[float] | None], dict[str, Any]]

    def __init__(
        self,
        bert: BERTModel,
        *,
        head: keras.layers.Layer,
        dropout: float = 0.0,
        tokenizer: Any = None,
        **kwargs: Any,
    ) -> None:
        # Lengths may come as floats; autocast to a half-precision one would round 257 to 256.
        super().__init__(autocast=False, dtype=bert.dtype_policy, **kwargs)
        self.bert_config = bert.bert_config
        self.dropout_rate = dropout
        self.has_lora = False
        self.encoder = bert.encoder
        self.hidden = bert.hidden if self.has_pooler else None
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.head = head
        self.tokenizer = tokenizer
        self.build({name: features.feature_shape(name) for name in FEATURES})

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tokenizer":  # not tracked: what Keras exports would hold it
            self.__dict__["tokenizer"] = value
            if value is not None:
                self.__dict__["_traced_text_batch"] = text_batches.traced(self.text_batch)
        else:
            super().__setattr__(name, value)

    def build(
        self, tokens_shape: Any, segments_shape: Any = None, valid_lens_shape: Any = None
    ) -> None:
        if not self.built:
            self.head.build((None, self.bert_config.num_hiddens))
        self.built = True

    def call(
        self,
        tokens: Any,
        segments: Any = None,
        valid_lens: Any = None,
        training: bool | None = None,
    ) -> Any:
        if isinstance(tokens, Mapping):
            features.check_keys(tokens, FEATURES)
            segments, valid_lens = tokens["segments"], tokens.get("valid_lens")
            tokens = tokens["tokens"]
        elif segments is None:
            raise ValueError(
                "`segments` is missing: call the model with (tokens, segments, valid_lens), or "
                "with one dictionary of these."
            )
        encoded_X = self.encoder(tokens, segments, valid_lens, training=training)
        return self.answer(encoded_X, tokens, valid_lens, training)

    def answer(self, encoded_X: Any, tokens: Any, valid_lens: Any, training: bool | None) -> Any:
        """Returns the model's outputs for encoded tokens `(B, T, D)`: here the head's, for all."""
        X = encoded_X if self.hidden is None else self.hidden(encoded_X[:, 0, :])
        return self.head(self.dropout(X, training=training))

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        *,
        class_weights: Mapping[str, float] | None = None,
        jit_compile: bool | str = False,
        **kwargs: Any,
    ) -> None:
        """Configures training as `keras.Model.compile`, with the task's loss as the default.

        Args:
            optimizer: As for Keras.
            loss: As for Keras; `None`: the task's.
            loss_weights: As for Keras.
            metrics: As for Keras.
            weighted_metrics: As for Keras; without these and a loss the task's metrics are taken.
            class_weights: Of the task's loss, by label; a label that is not there has 1.
            jit_compile: As for Keras. Off, as XLA compiles anew for every length of a batch.
            **kwargs: Other arguments of `keras.Model.compile`.

        Raises:
            ValueError: `class_weights` names no label, or goes with a loss or a task for which
                it has no meaning.
        """
        if class_weights is not None and (loss is not None or not hasattr(self, "labels")):
            raise ValueError("`class_weights` is for a task with labels and its default loss.")
        if loss is None:
            weights = None if class_weights is None else self._class_weights(class_weights)
            defaults = self.default_training(weights)
            loss = defaults["loss"]
            loss_weights = loss_weights or defaults.get("loss_weights")
            if metrics is None and weighted_metrics is None:
                weighted_metrics = defaults["weighted_metrics"]
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            jit_compile=jit_compile,
            **kwargs,
        )

    def _class_weights(self, by_label: Mapping[str, float]) -> list[float]:
        unknown = sorted(set(by_label) - set(self.labels))
        if unknown or any(not weight >= 0 for weight in by_label.values()):
            raise ValueError(
                f"`class_weights` must hold numbers of at least 0 for labels of {self.labels}. "
                f"Received: {dict(by_label)}."
            )
        return [float(by_label.get(label, 1.0)) for label in self.labels]

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        validation_data: Any = None,
        sample_weight: Any = None,
        shuffle: bool = True,
        **options: Any,
    ) -> Any:
        """Trains as `keras.Model.fit`; `x` may hold strings and `y` the names of labels."""
        data = self._data(x, y, sample_weight, batch_size, shuffle=shuffle)
        if validation_data is not None:
            size = options.get("validation_batch_size") or batch_size
            validation_data = self._held_out(validation_data, size)
        if text_batches.is_dataset(data["x"]):  # which is shuffled, if at all
            shuffle = False
        return super().fit(
            **data, epochs=epochs, validation_data=validation_data, shuffle=shuffle, **options
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *,
        sample_weight: Any = None,
        **options: Any,
    ) -> Any:
        """Evaluates as `keras.Model.evaluate`; `x` may hold strings, `y` the names of labels."""
        return super().evaluate(**self._data(x, y, sample_weight, batch_size), **options)

    def predict(self, x: Any, batch_size: int | None = None, **options: Any) -> Any:
        """Returns the outputs for all of `x`, as `keras.Model.predict`; `x` may hold strings."""
        if self.gives_tokens and text_batches.holds_text(x):
            self._check_tokenizer()
            # Keras joins the outputs of all batches: they have to be of one length.
            if text_batches.is_dataset(x):
                x = text_batches.tokenized(x, self.text_batch, FEATURES, self.text_targets)
            else:
                batch = text_batches.trimmed(self.text_batch(self.checked_texts(x)))
                x = {name: batch[name] for name in FEATURES}
        data = self._data(x, batch_size=batch_size)
        return super().predict(data["x"], batch_size=data["batch_size"], **options)

    def _data(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int | None = None,
        shuffle: bool = False,
    ) -> dict[str, Any]:
        """Returns the arguments of Keras's `fit` for batches of tokens or of strings."""
        if y is not None:
            y = self.label_ids(y)
        if not text_batches.holds_text(x):
            return {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
        self._check_tokenizer()
        if not text_batches.is_dataset(x):
            texts = self.checked_texts(x, y)
            x = text_batches.batched(texts, y, sample_weight, batch_size or 32, shuffle)
        x = text_batches.tokenized(x, self._traced_text_batch, FEATURES, self.text_targets)
        return {"x": x, "y": None, "sample_weight": None, "batch_size": None}

    def _check_tokenizer(self) -> None:
        if self.tokenizer is None:
            raise ValueError(
                "Strings need a tokenizer. Received: a model without one; set "
                "`model.tokenizer = Tokenizer(vocab)`, or pass batches of token ids."
            )
        text_batches.check_vocab_size(self.tokenizer, self.bert_config)

    def _held_out(self, validation_data: Any, batch_size: int | None) -> Any:
        """Returns the validation data as Keras takes them."""
        if text_batches.is_dataset(validation_data):
            return self._data(validation_data)["x"]
        x, y, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
        data = self._data(x, y, weights, batch_size)
        if text_batches.is_dataset(data["x"]):
            return data["x"]
        return data["x"], data["y"], data["sample_weight"]

    def checked_texts(self, x: Any, y: Any = None) -> Any:
        """Returns strings in memory as tensors; refuses what is not as the task takes it."""
        return text_batches.as_tensors(x)

    def text_batch(self, texts: Any) -> dict[str, Any]:
        """Returns the features for a batch of strings, as many tokens as the model can read."""
        if not isinstance(texts, Mapping):
            texts = {"texts": texts}
        return self.tokenizer(**texts, max_len=self.bert_config.max_len)

    def text_targets(
        self, texts: Any, batch: Mapping[str, Any], labels: Any, *weights: Any
    ) -> tuple[Any, ...]:
        """Returns the labels, and weights where there are, for strings and their `text_batch`."""
        return labels, *weights

    def label_ids(self, y: Any) -> Any:
        """Returns labels as the loss takes them, for names of labels too."""
        return y

    @property
    def frozen_blks(self) -> int | None:
        """How many blocks are frozen with the embeddings below them; `None`: not even these."""
        return num_frozen_blks(self.encoder)

    def freeze_encoder(self, num_blks: int | None = None) -> None:
        """Keeps the encoder, or its lower part, as it is during training.

        To be called before `compile`. The head, the pooler and the blocks above are trained on,
        also where they were frozen before.

        Args:
            num_blks: The embeddings and so many of the lowest blocks are frozen; `None`: the
                whole encoder.

        Raises:
            ValueError: There are not so many blocks, or the encoder has LoRA.
        """
        total = self.bert_config.num_blks
        frozen = total if num_blks is None else num_blks
        if not 0 <= frozen <= total:
            raise ValueError(f"`num_blks` must be in 0..{total}. Received: {num_blks}.")
        freeze_lower_part(self.encoder, frozen)

    def enable_lora(self, rank: int, lora_alpha: float | None = None) -> None:
        """Trains a low-rank addition to the query and value projections, not the encoder itself.

        Source: Hu et al. 2021 (LoRA). It is `keras.layers.Dense.enable_lora` on `W_q` and `W_v`
        of every block, after `freeze_encoder()`; the head and the pooler are trained on. To be
        called before `compile`, and once.

        What is saved has the products added to the kernels: it loads, in `save_pretrained`'s
        folders and in Keras's own file, as a model without LoRA of equal outputs, which is not
        compiled.

        Args:
            rank: Rank of the additions.
            lora_alpha: The additions are scaled by `lora_alpha / rank`; `None`: by 1.
        """
        self.freeze_encoder()
        add_lora(self.encoder, rank, lora_alpha)
        self.has_lora = True

    def get_compile_config(self) -> dict[str, Any] | None:
        # A file has no LoRA: its model has other variables to train than the optimizer's.
        return None if self.has_lora else super().get_compile_config()

    def task_config(self) -> dict[str, Any]:
        """Returns the arguments beside `bert` that are of the model, as JSON has them."""
        values = {name: getattr(self, name) for name in self.fields if name != "dropout"}
        if "dropout" in self.fields:
            values["dropout"] = self.dropout_rate
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "bert_config": self.bert_config.to_dict(),
            "frozen_blks": self.frozen_blks,
            **self.task_config(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        config = dict(config)
        architecture = BERTConfig.from_dict(config.pop("bert_config"))
        dtype = keras.saving.deserialize_keras_object(config.pop("dtype"))
        frozen_blks = config.pop("frozen_blks")
        model = cls(BERTModel.from_bert_config(architecture, dtype=dtype), **config)
        if frozen_blks is not None:
            model.freeze_encoder(frozen_blks)
        return model


def dense_head(bert: BERTModel, num_outputs: int) -> keras.layers.Dense:
    """Returns a new head that starts as a guess."""
    return keras.layers.Dense(
        num_outputs,
        kernel_initializer=output_initializer(),
        dtype=precise_policy(bert),
        name="head",
    )


def precise_policy(bert: BERTModel) -> Any:
    """Returns the dtype policy of outputs: few numbers, which half a precision would blur."""
    half = bert.dtype_policy.compute_dtype in _HALF_PRECISION
    return "float32" if half else bert.dtype_policy


def check_bert(bert: Any, task: type[TaskModel]) -> None:
    """Raises a `ValueError` where `bert` is not fit for a task."""
    if not isinstance(bert, BERTModel):
        raise ValueError(f"`bert` must be a BERTModel. Received: {bert!r:.80}.")
    if task.has_pooler and bert.hidden is None:
        raise ValueError(
            f"A {task.__name__} stands on the pooler of its BERT. Received: a model with "
            "pooler=False; take one with a pooler, or a TextEmbedder, which needs none."
        )
