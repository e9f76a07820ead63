"""Saving which weights inside a layer are frozen, and which layers inside it are quantized."""

from collections.abc import Collection, Mapping
from typing import Any

import keras

from keras_bert_d2l.types import ConfigDict, Shape


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
