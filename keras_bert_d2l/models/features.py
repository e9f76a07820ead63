"""The features of a batch: their shapes, and the keys that a model takes.

B batch, T tokens, P predicted positions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras


def shape(feature: str) -> tuple[None, ...]:
    """Returns `(B,)` for `valid_lens` and `(B, T)` or `(B, P)` for the others, all unknown."""
    return (None,) if feature == "valid_lens" else (None, None)


def input_signature(features: Sequence[str]) -> list[dict[str, keras.InputSpec]]:
    """Returns what `keras.Model.export` takes for a batch: int32 inputs with its names."""
    return [
        {name: keras.InputSpec(shape=shape(name), dtype="int32", name=name) for name in features}
    ]


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
