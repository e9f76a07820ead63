"""Transport between a client and a model server: what REST and gRPC have in common.

Both raise the same exceptions: `ConnectionError` (no server), `TimeoutError`, `LookupError` (no
such model or version), `ValueError` (the server refuses the request), else `RuntimeError`.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from keras_bert_d2l.serving.protocol.interface import Arrays, Interface, Specs

REFUSED, NOT_FOUND, UNAVAILABLE, TIMED_OUT = 400, 404, 503, 504


class Metadata(NamedTuple):
    """A server's description of a model.

    Attributes:
        version: The version that answers.
        signatures: Inputs and outputs of its signatures by name.
    """

    version: int
    signatures: dict[str, Interface]


class Transport(Protocol):
    """A connection to a model server."""

    def status(self) -> dict[int, str]:
        """Return the state of each version, such as `"AVAILABLE"`."""

    def metadata(self) -> Metadata:
        """Return the version that answers, and its signatures."""

    def predict(self, signature: str, inputs: Arrays, outputs: Specs) -> dict[str, np.ndarray]:
        """Return the answer of a signature, which has `outputs`."""

    def close(self) -> None:
        """Close the connections."""


def failure(status: int, url: str, reason: object, code: str | None = None) -> Exception:
    """Return the exception for an HTTP status.

    Args:
        status: The status.
        url: URL of the server.
        reason: The server's message, or the error that occurred.
        code: gRPC's name of the status.
    """
    if status == UNAVAILABLE:
        return ConnectionError(
            f"No model server answers at {url}, or it is too busy ({reason}). Start one, for "
            "example with `keras-bert-d2l serve saved_models/NAME`, or check the address and the "
            "port."
        )
    if status == TIMED_OUT:
        return TimeoutError(
            f"The server at {url} did not answer in time ({reason}). Raise `timeout`, and the "
            "limit that the server itself may have, or send fewer texts at once (`batch_size`)."
        )
    what = f"{url} answers {code or status}: {reason}"
    if status in (REFUSED, 413):
        return ValueError(f"The server refuses the request. {what}")
    if status == NOT_FOUND:
        return LookupError(f"The server has no such model, or not this version. {what}")
    return RuntimeError(f"The server fails, or is not a model server. {what}")


def check_outputs(answer: object, outputs: Specs) -> None:
    """Raise `RuntimeError` if an answer does not have the outputs of its signature."""
    if not isinstance(answer, Iterable) or set(answer) != set(outputs):
        raise RuntimeError(
            f"The server should answer with {', '.join(outputs)}, but does not: it may have loaded "
            "another version meanwhile. Ask again."
        )
