"""The features of a batch: their shapes, the keys that a model takes, and what such models share.

B batch, T tokens, P predicted positions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras


def shape(feature: str) -> tuple[None, ...]:
    """Returns `(B,)` for `valid_lens` and `(B, T)` or `(B, P)` for the others, all unknown."""
    return (None,) if feature == "valid_lens" else (None, None)


def check_keys(batch: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses a batch with a key that the model does not know, or without tokens or segments."""
    unknown = sorted(set(batch) - set(known))
    missing = [name for name in ("tokens", "segments") if name not in batch]
    if unknown or missing:
        wrong = f"the unknown key {unknown[0]!r}" if unknown else f"no {missing[0]!r}"
        raise ValueError(
            f"A batch for this model has the keys {tuple(known)}, of which all but the first two "
            f"may be left out. Received {wrong} in {sorted(batch)}."
        )


class BatchModel(keras.Model):
    """A model that takes batches as dictionaries of int32 features."""

    built: bool  # of keras.Model
    features: tuple[str, ...]  # what an exported model takes

    def export(
        self,
        filepath: Any,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Exports as `keras.Model.export`, from token ids to the model's outputs.

        Without an `input_signature` the inputs are int32 and have the names of a batch; Keras
        would make them floats called `args_0`. `export_saved_model` writes a model for strings.
        """
        if input_signature is None:
            specs = {
                name: keras.InputSpec(shape=shape(name), dtype="int32", name=name)
                for name in self.features
            }
            input_signature = [specs]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras skips this for a model that overrides `compile`; the arguments it has kept are
        # those of `keras.Model.compile`, so that they serve here too.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)
