"""Base class of models with dictionary inputs, and the keys of these inputs.

B batch, T tokens, P predicted positions.
"""

import abc
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias, get_args

import keras

from keras_bert_d2l.checks import (
    check_choice,
    check_integer,
    check_list,
    check_positive,
    check_that,
    did_you_mean,
    shown,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.layers.base import NestedLayer
from keras_bert_d2l.layers.encoder import BERTEncoder, Remat
from keras_bert_d2l.models.compiling import (
    SplitLoss,
    Training,
    check_parts,
    fitting_loss,
    fitting_metrics,
    split_step,
    split_test_step,
)
from keras_bert_d2l.models.data_checks import CheckedModel, check_has_labels
from keras_bert_d2l.models.losses import Loss, Optimizer
from keras_bert_d2l.models.partial_training import LORA_LAYERS, add_lora, dense_layers, merge_lora
from keras_bert_d2l.types import ConfigDict, Option, PathLike, Tensor

_HUGGING_FACE = (
    "These are names of Hugging Face: `input_ids` is `tokens` here, `token_type_ids` is `segments` "
    "(0 for a single text), and `labels` is the argument `y`, or the second element of a dataset."
)
TextTokenizer: TypeAlias = Any  # a `Tokenizer` of `text`, which models do not import


def check_keys(batch: Mapping[str, Tensor], known: Sequence[str]) -> None:
    """Raise `ValueError` if a batch has unknown keys, or no `tokens`."""
    unknown = sorted(set(batch) - set(known))
    advice = did_you_mean(unknown[0], known) if unknown else ""
    if not {"input_ids", "token_type_ids", "labels"}.isdisjoint(unknown):
        advice = _HUGGING_FACE
    if unknown or "tokens" not in batch:
        wrong = f"the unknown key {shown(unknown[0])}" if unknown else "no 'tokens'"
        raise ValueError(
            f"A batch for this model may have the keys {tuple(known)}, and must have 'tokens'. "
            f"Received: {wrong} in {shown(sorted(batch))}. {advice}".rstrip()
        )


def check_tokenizer(tokenizer: object) -> None:
    """Raise `ValueError` if an object is not a tokenizer."""
    is_right = callable(tokenizer) and hasattr(tokenizer, "vocab")
    check_that(is_right, "tokenizer", "a Tokenizer", tokenizer, "See `Tokenizer(vocab)`.")


def check_vocab_size(tokenizer: TextTokenizer, config: BERTConfig) -> None:
    """Raise `ValueError` unless a tokenizer fits the model: size, and `pad_id` if it is skipped."""
    if tokenizer is None:
        raise ValueError(
            "Strings need a tokenizer. Received: a model without one. Set `model.tokenizer = "
            "Tokenizer(Vocab.from_file(path))`. A checkpoint has a tokenizer if its folder "
            "contains the vocabulary of the model, vocab.txt or tokenizer.json."
        )
    check_tokenizer(tokenizer)
    expected, received = config.num_tokens or config.vocab_size, len(tokenizer.vocab)
    if received != expected:
        raise ValueError(
            f"The tokenizer's vocabulary must have the {expected} tokens that the model was made "
            f"for. Received: a tokenizer with {received} tokens; use the model's own vocabulary."
        )
    skips_padding = config.first_position_id > 0 or config.mask_from == "tokens"
    if skips_padding and tokenizer.vocab.pad_id != config.pad_id:
        raise ValueError(
            f"The padding token of the vocabulary must have the id {config.pad_id}, the model's "
            f"`pad_id`, because the model skips it. Received: {tokenizer.vocab.pad_id}; use the "
            "model's own vocabulary, or a configuration with its `pad_id`."
        )


class BatchModel(NestedLayer, CheckedModel, abc.ABC):
    """A model that takes batches as dictionaries of int32 features.

    Attributes:
        tokenizer: The tokenizer that the model is used with, or `None`. A `.keras` file and
            `save_pretrained` keep it.
    """

    built: bool  # set by keras.Model
    encoder: BERTEncoder
    features: tuple[str, ...]  # inputs of an exported model
    micro_batches = 1  # set by `compile`
    split_loss: SplitLoss | None = None
    missing_heads: frozenset[str] = frozenset()  # only a `BERTModel` may lack some
    tokenizer: TextTokenizer = None
    gives_logits = True
    is_task = False

    def __setattr__(self, name: str, value: object) -> None:
        if name != "tokenizer":
            super().__setattr__(name, value)
            return
        if value is not None:
            check_tokenizer(value)
        self.__dict__[name] = value  # not tracked, so that Keras does not export it

    @property
    def random_heads(self) -> list[str]:
        """The `missing_heads` that are read: not the pooler without the next-sentence head."""
        is_read = getattr(self, "nsp", None) is not None
        return sorted(self.missing_heads - (set() if is_read else {"pooler"}))

    def export(self, filepath: PathLike, format: str = "tf_saved_model", **options: Option) -> None:
        """Export the model with token ids as inputs, as `keras.Model.export` does.

        Without an `input_signature`, the inputs are int32 and named as in a batch; Keras would
        make them floats named `args_0`. To export a model that takes strings, use
        `export_saved_model`.

        Raises:
            ValueError: The checkpoint that the model was loaded from lacked a head.
        """
        if self.random_heads:
            raise ValueError(
                "`export` includes all heads, but the checkpoint of this model lacked "
                f"{self.random_heads}, which are random. Use `export_saved_model`, which "
                "omits them, or train them first."
            )
        if options.get("input_signature") is None:
            one_per_row = dict.fromkeys(("valid_lens", "prompt_lens"), (None,))
            shapes = {name: one_per_row.get(name, (None, None)) for name in self.features}
            options["input_signature"] = [
                {name: keras.InputSpec("int32", x, name=name) for name, x in shapes.items()}
            ]
        super().export(filepath, format, **options)

    @property
    def unread_layers(self) -> list[keras.layers.Layer]:
        """The layers whose output no loss reads."""
        return []

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        """The weights that are trained: not those of `unread_layers`."""
        unread = {id(weight) for layer in self.unread_layers for weight in layer.weights}
        unread -= {id(weight) for weight in self.encoder.weights}  # a tied embedding
        return [weight for weight in super().trainable_variables if id(weight) not in unread]

    trainable_weights = trainable_variables

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        """The other weights, and the state of random generators."""
        trained = {id(weight) for weight in self.trainable_variables}
        return [variable for variable in self.variables if id(variable) not in trained]

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        """The other weights."""
        trained = {id(weight) for weight in self.trainable_variables}
        return [weight for weight in self.weights if id(weight) not in trained]

    def saved_state(self) -> ConfigDict:
        """Return what a saved model keeps besides the arguments of its class, for JSON."""
        keeps = hasattr(self.tokenizer, "get_config")
        return {
            "quantized": self.quantized_policies,
            "frozen_weights": self.frozen_weights,
            "tokenizer": self.tokenizer.get_config() if keeps else None,
        }

    @classmethod
    def from_saved(cls, config: ConfigDict, create: Callable[..., Self]) -> Self:
        """Create a model from its arguments and the result of `saved_state` in `config`.

        Files of earlier versions lack some of it.
        """
        quantized, frozen = config.pop("quantized", {}), config.pop("frozen_weights", ())
        tokenizer = config.pop("tokenizer", None)
        model = create(**config)
        model.restore_inner(frozen, quantized)
        if tokenizer is not None:
            # Models do not import `text`, so they find the class by its name, as Keras would.
            of_text = importlib.import_module("keras_bert_d2l.text.tokenizer.tokenizer")
            model.tokenizer = of_text.Tokenizer.from_config(tokenizer)
        return model

    def enable_lora(
        self, rank: int, lora_alpha: float | None = None, lora_layers: Sequence[str] = LORA_LAYERS
    ) -> None:
        """Freeze the model and train LoRA weights for some of its dense layers.

        A task model only freezes its encoder: the head and the pooler remain trainable. Call it
        once, before `compile`. `save_adapter` saves what is trained, and `merge_lora` ends it.

        Saving the model merges the LoRA weights into the kernels. The model loaded from a
        `save_pretrained` folder or a `.keras` file has the same outputs, has no LoRA and is not
        compiled.

        Source: Hu et al. 2021 (LoRA).

        Args:
            rank: Rank of the LoRA weights.
            lora_alpha: The LoRA term is scaled by `lora_alpha / rank`. `None`: by 1.
            lora_layers: Names of the layers, or ends of their paths. In every block: `"W_q"`,
                `"W_k"`, `"W_v"`, `"W_o"`, `"dense1"` and `"dense2"`. A `BERTModel` also has
                `"pooler"`, `"mlm/mlp/dense"`, `"logits"` (unless it is tied) and
                `"nsp/dense"`.

        Raises:
            ValueError: `rank` or `lora_alpha` is out of range, a layer does not exist, the model
                already has LoRA, or it has heads that its checkpoint lacked, which LoRA would
                freeze.
        """
        check_integer("rank", rank, 1)
        if lora_alpha is not None:
            check_positive("lora_alpha", lora_alpha)
        check_list("lora_layers", lora_layers, "layer names")
        layers = dense_layers(self._parts_for_lora(), lora_layers)
        self.add_lora_to(dict.fromkeys(layers, (rank, lora_alpha)))

    def add_lora_to(self, layers: Mapping[keras.layers.Layer, tuple[int, float | None]]) -> None:
        """Do what `enable_lora` does, with a rank and a `lora_alpha` for each layer."""
        add_lora(self._parts_for_lora(), layers)
        self._discard_graphs()

    def merge_lora(self) -> None:
        """Add the LoRA updates to the kernels, remove LoRA, and make all weights trainable.

        The outputs stay the same. Compile the model again before training it.
        """
        for layer in self.lora_layers:
            merge_lora(layer)
        for weight in self.weights:
            weight.trainable = True
        self._discard_graphs()

    def _discard_graphs(self) -> None:
        """Make Keras trace the model again, because a graph keeps its products as they were."""
        self.train_function = self.test_function = self.predict_function = None

    def _parts_for_lora(self) -> list[keras.layers.Layer]:
        """Return the layers that LoRA freezes and adapts."""
        return [self.encoder]

    @property
    def lora_layers(self) -> list[keras.layers.Layer]:
        """The dense and embedding layers that have LoRA."""
        return [x for x in self._flatten_layers() if getattr(x, "lora_enabled", False)]

    @property
    def has_lora(self) -> bool:
        """Whether the model has LoRA."""
        return bool(self.lora_layers)

    @abc.abstractmethod
    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        """Return the losses and metrics that `compile` uses by default."""

    def compile(
        self,
        optimizer: Optimizer = "rmsprop",
        loss: Loss | None = None,
        *,
        class_weights: Mapping[str | int, float] | None = None,
        micro_batches: int = 1,
        remat: Remat = "none",
        **options: Option,
    ) -> None:
        """Configure training as `keras.Model.compile` does, with the model's loss by default.

        The model outputs logits, and Keras's losses and metrics take them as such: `from_logits`
        need not be set, and `"accuracy"`, `AUC`, `F1Score` and so on have the same values as after
        a softmax or sigmoid, with one column per label. A loss that does not fit the labels is an
        error. Functions and classes of your own get the labels and the logits as they are.

        Args:
            optimizer: As in Keras.
            loss: As in Keras. `None`: the model's loss and, if no metrics are given, its metrics.
                They ignore labels of -100, and are exact over the complete dataset.
            class_weights: Weight of each label, by name or id, in the default loss; 1 for labels
                not listed.
            micro_batches: Split each training batch into this many parts and process one after
                another, which takes less memory. The step is the same as with the whole batch,
                except for the dropout. A loss of text embeddings compares all texts of the batch,
                so each part is embedded twice (GradCache). Only with the TensorFlow backend.
            remat: `"blocks"` keeps only the input of each block for the backward pass, which
                computes the block again: much less memory for up to a third more computation. The
                step is the same, with the same dropout.
            **options: Other keyword arguments of `keras.Model.compile`. With TensorFlow,
                `jit_compile` is `False` by default for task models, because XLA would recompile for
                every new batch length.

        Raises:
            ValueError: The loss or a metric does not fit the labels, `class_weights` names an
                unknown label or does not apply, `remat` is unknown, the loss or a metric cannot be
                split, or the optimizer would accumulate gradients with other weights.
        """
        weights = None if class_weights is None else self.weights_of_classes(class_weights)
        own = Training(*self.default_training(weights))
        if loss is None:
            loss = own.loss
            if options.get("metrics") is None and options.get("weighted_metrics") is None:
                options["weighted_metrics"] = own.metrics
        loss = fitting_loss(loss, own.loss, self.labels_are, self.gives_logits)
        if loss != own.loss and weights is not None:
            raise ValueError("`class_weights` requires the default loss. Received: another `loss`.")
        if loss == own.loss and options.get("loss_weights") is None:
            options["loss_weights"] = own.loss_weights
        if self.is_task and keras.backend.backend() == "tensorflow":
            options.setdefault("jit_compile", False)
        check_integer("micro_batches", micro_batches, 1)
        check_choice("remat", remat, get_args(Remat))
        self.split_loss = SplitLoss.of(loss, options.get("loss_weights"))
        is_mean, metrics = self.split_loss is not None, options.get("metrics")
        has_vectors = self.labels_are == "groups" or getattr(loss, "compares_rows", False)
        has_vectors = has_vectors and not is_mean
        check_parts(is_mean, has_vectors, micro_batches, optimizer, loss, metrics)
        self.micro_batches = micro_batches
        self.encoder.remat = remat
        self._lacks_loss_trackers = (
            is_mean and micro_batches == 1 and keras.backend.backend() == "tensorflow"
        )
        for name in ("metrics", "weighted_metrics"):
            given = options.get(name)
            given = [given] if isinstance(given, str | keras.metrics.Metric) else given
            if isinstance(own.loss, Mapping) and given in (["accuracy"], ["acc"]):
                given = dict.fromkeys(own.loss, given)
            options[name] = fitting_metrics(given, self.labels_are)
        # Without a loss, Keras adds no loss trackers, which would see only parts of batches.
        is_in_parts = is_mean and micro_batches > 1
        super().compile(optimizer, None if is_in_parts else loss, **options)
        self.loss = loss

    # If variables are created while TensorFlow traces the first step, it traces the step twice.
    # Keras calls these two methods before that.
    def make_train_function(self, force: bool = False) -> None:
        if keras.backend.backend() == "tensorflow" and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        self._create_loss_trackers()
        super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> None:
        self._create_loss_trackers()
        super().make_test_function(force)

    def _create_loss_trackers(self) -> None:
        """Compute the losses once, because Keras then creates the mean of each head's loss."""
        if self._lacks_loss_trackers and isinstance(self.loss, Mapping):
            labels = {head: keras.ops.zeros(1, "int32") for head in self.loss}
            logits = {head: keras.ops.zeros((1, 1)) for head in self.loss}
            self.distribute_strategy.run(self.compute_loss, (None, labels, logits, None, False))
            self.reset_metrics()
        self._lacks_loss_trackers = False

    def compute_loss(
        self,
        x: Tensor = None,
        y: Tensor = None,
        y_pred: Tensor = None,
        sample_weight: Tensor = None,
        training: bool = True,
    ) -> Tensor:
        check_has_labels(y)
        if training and self.missing_heads:  # in a graph, this runs only while it is traced
            losses = self.loss if isinstance(self.loss, Mapping) else dict.fromkeys(y_pred, True)
            trained = {head for head, loss in losses.items() if loss is not None}
            self.missing_heads -= trained | ({"pooler"} if "nsp" in trained else set())
        if self.split_loss is None or self.micro_batches == 1:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        return self.split_loss(y, y_pred, sample_weight)

    def train_step(self, *arguments: Any) -> Any:
        if self.micro_batches == 1:
            return super().train_step(*arguments)
        return split_step(self, *arguments)

    def test_step(self, *arguments: Any) -> Any:
        if self.micro_batches == 1 or self.split_loss is not None:
            return super().test_step(*arguments)
        return split_test_step(self, *arguments)

    def get_compile_config(self) -> ConfigDict | None:
        if self.has_lora:  # a saved model has no LoRA, so its trainable variables differ
            return None
        config = super().get_compile_config()
        if config and self.micro_batches > 1:
            config["loss"] = keras.saving.serialize_keras_object(self.loss)
            config["micro_batches"] = self.micro_batches
        if config:
            config["remat"] = self.encoder.remat
        return config

    def compile_from_config(self, config: ConfigDict) -> None:
        # Keras skips this step for models that override `compile`. These models take the same
        # arguments as `keras.Model.compile`, so the saved arguments can be passed on.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)
