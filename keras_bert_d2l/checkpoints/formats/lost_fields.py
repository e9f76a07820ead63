"""What another program's configuration keeps of a `BERTConfig`."""

import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from keras_bert_d2l.config import BERTConfig

# Fields that say how to train, and do not change the outputs of trained weights.
_OF_TRAINING = (
    "dropout",
    "attention_dropout",
    "embedding_dropout",
    "ffn_dropout",
    "block_dropout",
)


def check_kept(
    config: BERTConfig, read_back: BERTConfig, program: str, untold: Collection[str] = ()
) -> None:
    """Compares an architecture with what another program's file makes of it.

    The `initializer` is of no account: trained weights have their values.

    Args:
        config: The architecture.
        read_back: What is read from the file that was made of it.
        program: Whose file it is, for people.
        untold: Fields that the weights tell, and not the file.

    Raises:
        ValueError: Another model comes back; the message names the fields. Where only dropout
            differs, which changes no output, this is a warning.
    """
    ours, theirs = config.to_dict(), read_back.to_dict()
    if config.attention_dropout == config.dropout:
        ours["attention_dropout"] = None
    lost = [n for n in ours if ours[n] != theirs[n] and n not in ("initializer", *untold)]
    refused = [name for name in lost if name not in _OF_TRAINING]
    if refused:
        raise ValueError(
            f"The format of {program} cannot express this model, it knows only "
            f"{_listed(refused, theirs)}. Received: {_listed(refused, ours)}. Choose another "
            "format, or build the model with these values."
        )
    if lost:
        warnings.warn(
            f"The format of {program} does not keep {_listed(lost, ours)}: the model that is read "
            f"back has {_listed(lost, theirs)}, with the same outputs until it is trained on.",
            stacklevel=4,
        )


def _listed(names: Iterable[str], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={values[name]!r}" for name in names)
