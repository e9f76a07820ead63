"""What all layers share: saved inner state, activations, layer normalization, initial weights."""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_bert_d2l.block_config import Activation, Initializer, LayerNorm
from keras_bert_d2l.config import check_field
from keras_bert_d2l.types import ConfigDict, LayerOptions, Shape, Tensor

_is_skipped = contextvars.ContextVar("without_initialization", default=False)


class NestedLayer(keras.layers.Layer):
    """Base of layers and models with inner layers: saves which of them are frozen or quantized.

    Keras saves what a layer was built for together with its configuration, as in a `.keras` file.
    """

    @property
    def quantized_policies(self) -> dict[str, str]:
        """The dtype policies of the quantized layers, by the paths of the layers."""
        layers = self._flatten_layers()  # private, but Keras's quantization uses it the same way
        quantized = [layer for layer in layers if layer.quantization_mode]
        return {self._inner_path(layer): layer.dtype_policy.name for layer in quantized}

    @property
    def frozen_weights(self) -> list[str]:
        """The paths of the weights that training does not change."""
        return [self._inner_path(weight) for weight in self.weights if not weight.trainable]

    def restore_inner(self, frozen: Collection[str], quantized: Mapping[str, str]) -> None:
        """Freeze and quantize what was frozen and quantized when the layer was saved."""
        for weight in self.weights:
            if self._inner_path(weight) in frozen:
                weight.trainable = False
        for layer in self._flatten_layers():
            if (path := self._inner_path(layer)) in quantized:
                layer.dtype_policy = quantized[path]

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Trace `call`, because a shape does not include the optional outputs.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_output_shape(self, *shapes: Shape, **named: Shape | None) -> Shape:
        """Return the shape of the output for inputs of these shapes, which `summary` prints."""
        inputs = [keras.KerasTensor(shape) for shape in shapes]
        given = {name: shape for name, shape in named.items() if shape is not None}
        others = {name.removesuffix("_shape"): keras.KerasTensor(x) for name, x in given.items()}
        shape: Shape = self.compute_output_spec(*inputs, **others).shape
        return shape

    def get_build_config(self) -> ConfigDict | None:
        config = super().get_build_config()
        state = {"frozen_weights": self.frozen_weights, "quantized": self.quantized_policies}
        return config and {**config, **state}

    def build_from_config(self, config: ConfigDict) -> None:
        super().build_from_config(config)
        self.restore_inner(config.get("frozen_weights", ()), config.get("quantized", {}))

    def _inner_path(self, part: Any) -> str:
        """Return the path of a layer or weight, without that of this layer."""
        return str(part.path).removeprefix(f"{self.path}/")


def gelu(x: Tensor) -> Tensor:
    """Return the exact Gaussian error linear unit, `x * Phi(x)` (Hendrycks and Gimpel 2016).

    Computed with erf, because Keras's own gelu uses erfc, which has no ONNX operator, and in this
    order, in which TensorFlow fuses it with the product and the bias before it.
    """
    half = ops.cast(0.5, x.dtype)
    return x * (half * (1 + ops.erf(x * ops.cast(1 / math.sqrt(2), x.dtype))))


def gelu_tanh(x: Tensor) -> Tensor:
    """Return the tanh approximation of the Gaussian error linear unit (google-research/bert)."""
    return ops.gelu(x, approximate=True)


def activation_function(activation: Activation) -> Callable[[Tensor], Tensor]:
    """Return the activation function for the configuration's `activation`."""
    own = {"relu": ops.relu, "gelu": gelu, "gelu_tanh": gelu_tanh}
    return own.get(check_field("activation", activation)) or keras.activations.get(activation)


@keras.saving.register_keras_serializable("keras_bert_d2l")
class UnbiasedLayerNormalization(keras.layers.Layer):
    """Layer normalization with the unbiased standard deviation.

    The output is `gamma * (x - mean) / (std + epsilon) + beta`. Unlike in Keras's own layer, the
    variance is divided by D - 1, and epsilon is added outside the square root.

    Source: github.com/codertimo/BERT-pytorch, layer_norm.py.

    Args:
        epsilon: Small number added to the standard deviation.
        **kwargs: `name`, `dtype` and `trainable`, as for every Keras layer.

    Call arguments:
        x: `(..., D)`.

    Output shape: `(..., D)`.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape: Shape) -> None:
        self.gamma = self.add_weight(name="gamma", shape=x_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=x_shape[-1:], initializer="zeros")

    def call(self, x: Tensor) -> Tensor:
        return unbiased_layer_normalization(x, self.gamma, self.beta, epsilon=self.epsilon)


def unbiased_layer_normalization(
    x: Tensor, gamma: Tensor, beta: Tensor, *, epsilon: float
) -> Tensor:
    """Compute `UnbiasedLayerNormalization`, with the arguments of `ops.layer_normalization`."""
    wide = ops.cast(x, "float32")  # as in Keras's own function: squares overflow in float16
    centered = wide - ops.mean(wide, axis=-1, keepdims=True)
    variance = ops.sum(ops.square(centered), axis=-1, keepdims=True) / (x.shape[-1] - 1)
    # The square root has no finite gradient at 0, which occurs if all elements of x are equal.
    std = ops.sqrt(ops.maximum(variance, keras.backend.epsilon() ** 2))
    normal = ops.cast(centered / (std + epsilon), x.dtype)
    return normal * ops.cast(gamma, x.dtype) + ops.cast(beta, x.dtype)


def normalization_of(layer: keras.layers.Layer) -> Callable[..., Tensor]:
    """Return the function of x, gamma, beta and `epsilon` that the layer computes."""
    if isinstance(layer, UnbiasedLayerNormalization):
        return unbiased_layer_normalization
    return ops.layer_normalization


def layer_normalization(
    kind: LayerNorm, epsilon: float, bias_free: bool = False, **options: Unpack[LayerOptions]
) -> keras.layers.Layer:
    """Create the layer for the configuration's `layer_norm` and `layer_norm_epsilon`."""
    check_field("layer_norm_epsilon", epsilon)
    if check_field("layer_norm", kind) == "unbiased":
        return UnbiasedLayerNormalization(epsilon, **options)
    return keras.layers.LayerNormalization(epsilon=epsilon, center=not bias_free, **options)


@contextlib.contextmanager
def without_initialization() -> Iterator[None]:
    """Skip the random initialization of layers built in this context.

    Their weights contain arbitrary numbers. Use it for models whose weights are loaded right
    afterwards: initializing BERT base takes longer than reading its weights. Biases and
    normalization weights are initialized as usual. Call `initialize` for a layer whose kernels are
    missing from the file.
    """
    token = _is_skipped.set(True)
    try:
        yield
    finally:
        _is_skipped.reset(token)


def initialize(layer: keras.layers.Layer) -> None:
    """Initialize the kernels of all dense layers inside a layer."""
    for part in layer._flatten_layers():  # private, but Keras's quantization uses it the same way
        if isinstance(part, keras.layers.Dense):
            part.kernel.assign(part.kernel_initializer(part.kernel.shape, part.kernel.dtype))


@keras.saving.register_keras_serializable("keras_bert_d2l", name="_Drawn")  # as in older files
class SkippableInitializer(keras.initializers.Initializer):
    """An initializer that `without_initialization` turns off, with zeros in the first rows."""

    def __init__(self, initializer: keras.initializers.Initializer, zero_rows: int = 0) -> None:
        self.initializer, self.zero_rows = initializer, zero_rows

    def __call__(self, shape: Shape, dtype: str | None = None) -> Tensor:
        draw, n = _empty if _is_skipped.get() else self.initializer, self.zero_rows
        values = draw(shape, dtype)
        return ops.concatenate([0 * values[:n], values[n:]]) if n else values

    def get_config(self) -> ConfigDict:
        initializer = keras.saving.serialize_keras_object(self.initializer)
        return {"initializer": initializer, "zero_rows": self.zero_rows}

    @classmethod
    def from_config(cls, config: ConfigDict) -> "SkippableInitializer":
        initializer = keras.saving.deserialize_keras_object(config["initializer"])
        return cls(initializer, config.get("zero_rows", 0))


def _empty(shape: Shape, dtype: str | None) -> Tensor:
    """Return a tensor with arbitrary values."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Untouched pages use no memory, so loading does not keep two copies of the weights.
        return tf.raw_ops.Empty(shape=tuple(shape), dtype=dtype, init=False)
    return ops.zeros(shape, dtype)


# "truncated_normal" is a normal distribution with the standard deviation `initializer_range`,
# truncated at two standard deviations (google-research/bert, modeling.py, `create_initializer`).
# "book" is the Keras default of each kind of layer, as in d2l.ai, section 15.8.
def weights_initializer(
    kind: Literal["dense", "embedding", "positions"],
    initializer: Initializer,
    initializer_range: float,
    zero_rows: int = 0,
) -> SkippableInitializer:
    """Return the initializer of weights inside the network, with zeros in the first rows."""
    of_book = {
        "dense": keras.initializers.GlorotUniform,
        "embedding": functools.partial(keras.initializers.RandomUniform, -0.05, 0.05),
        "positions": functools.partial(keras.initializers.RandomNormal, stddev=0.05),
    }[kind]()
    is_book = check_field("initializer", initializer) == "book"
    return SkippableInitializer(
        of_book if is_book else output_initializer(initializer_range), zero_rows
    )


def output_initializer(initializer_range: float) -> SkippableInitializer:
    """Return the initializer for the output kernel of a head.

    Its values are small, so that the initial predictions are close to uniform.
    """
    check_field("initializer_range", initializer_range)
    return SkippableInitializer(keras.initializers.TruncatedNormal(stddev=initializer_range))
