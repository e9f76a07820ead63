"""What the development server needs of a model, whichever library runs it, and how it asks."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from keras_bert_d2l.serving.protocol import Arrays, Interface, encode, find_interface, to_arrays
from keras_bert_d2l.serving.server.limits import Limits


class TokenCounter(NamedTuple):
    """What is known about the tokens of a model.

    Attributes:
        lengths: Returns the number of tokens of each text, including special tokens. The texts are
            `bytes`.
        special_ids: Ids of the tokens before and after a text, and for padding.
        max_len: Number of tokens that the model reads. It truncates longer texts.
    """

    lengths: Callable[[np.ndarray], np.ndarray]
    special_ids: tuple[int, int, int]
    max_len: int


class Served(Protocol):
    """A model on the server.

    Attributes:
        name: Name of the model's folder.
        version: Number of the version; 1 if its folder has no number.
        interfaces: Inputs and outputs of the signatures by name.
        max_len: Length to which the model truncates and pads texts, if it is known.
    """

    name: str
    version: int
    interfaces: dict[str, Interface]
    max_len: int | None

    @property
    def counter(self) -> TokenCounter | None:
        """The tokens of a model with a tokenizer of this package."""

    def ask(self, signature: str, inputs: Arrays) -> Arrays:
        """Call a signature and return its outputs.

        Args:
            signature: Name of the signature.
            inputs: Arrays with the dtypes and shapes of its inputs.

        Raises:
            ValueError: The model rejects the values.
        """


def ask(model: Served, signature: str, columns: Mapping[str, object], limits: Limits) -> Arrays:
    """Call a signature within the limits of a request, and return its outputs.

    Args:
        model: The model.
        signature: Name of the signature.
        columns: Nested lists by name.
        limits: The limits.

    Raises:
        TooLargeError: The request or its response exceeds a limit.
        ValueError: The columns do not match the signature.
    """
    specs = find_interface(model.interfaces, signature).inputs
    limits.check_rows(columns, specs)
    inputs = to_arrays(columns, specs, encode)
    limits.check_tokens(inputs, model.max_len)
    outputs = model.ask(signature, inputs)
    limits.check_outputs(outputs)
    return outputs
