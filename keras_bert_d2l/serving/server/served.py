"""What the development server needs of a model, and how it asks within the limits of a request."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from keras_bert_d2l.serving.protocol import Arrays, Interface, find_interface, to_arrays

_BYTES_PER_TOKEN = 4  # of ordinary text
_IN_STEPS = ("rerank",)  # signatures that run a few rows at a time, whose tokens need less memory


class TooLargeError(ValueError):
    """A request exceeds a limit of the server. The HTTP status is 413."""


class Limits(NamedTuple):
    """Limits of one request, so that it cannot exhaust the memory of the server.

    Attributes:
        max_rows: Maximum number of rows.
        max_tokens: Maximum number of tokens, including padding.
        max_bytes: Maximum size of the body in bytes.
    """

    max_rows: int = 1024
    max_tokens: int = 2**15
    max_bytes: int = 16 * 2**20


class Served(Protocol):
    """A model on the server, whichever library runs it.

    Attributes:
        name: Name of the model's folder.
        version: Number of the version; 1 if its folder has no number.
        interfaces: Inputs and outputs of the signatures by name.
        prompts: The prompts of the signatures that embed texts, if they are known.
        max_len: Length to which the model truncates and pads texts. `None`: it is not known, or
            the model reads whole texts.
    """

    name: str
    version: int
    interfaces: dict[str, Interface]
    prompts: Mapping[str, str]
    max_len: int | None

    @property
    def count_tokens(self) -> Callable[[Sequence[str]], int] | None:
        """Function that counts the tokens that the model reads of texts.

        They include special tokens. `None`: the tokenizer is not one of this package.
        """

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
        TooLargeError: The request exceeds a limit.
        ValueError: The columns do not match the signature.
    """
    inputs = to_arrays(columns, find_interface(model.interfaces, signature).inputs)
    rows = max((len(x) for x in inputs.values() if x.ndim), default=0)
    _check_size("rows", rows, limits.max_rows, "--max-rows")
    if signature not in _IN_STEPS:
        prompt = model.prompts.get(signature, model.prompts.get("embed", ""))
        size = _num_tokens(inputs, model.max_len, len(prompt.encode()))
        _check_size("tokens, including padding", size, limits.max_tokens, "--max-tokens")
    return model.ask(signature, inputs)


def _num_tokens(inputs: Arrays, max_len: int | None, of_prompt: int) -> int:
    """Return an upper estimate of the number of tokens, with padding, or of other values.

    A text has at most one token per byte, of which a model truncates all beyond `max_len`. For
    models that read whole texts, it is about one per four bytes, and padding does not count. The
    model puts a prompt of `of_prompt` bytes before each text.
    """
    size = max((array.size for array in inputs.values()), default=0)
    texts = [x for x in inputs.values() if x.dtype == object]
    lengths = [[len(text) + of_prompt for text in x.flat] for x in texts]
    if max_len is None:
        return max(size, sum(map(sum, lengths)) // _BYTES_PER_TOKEN)
    return size * max(1, min(max_len, sum(max(row, default=0) for row in lengths)))


def _check_size(what: str, size: int, most: int, option: str) -> None:
    if size > most:
        raise TooLargeError(
            f"A request may have at most {most} {what}. Received: {size}. Send fewer or shorter "
            f"rows, or start the server with a larger `{option}`."
        )
