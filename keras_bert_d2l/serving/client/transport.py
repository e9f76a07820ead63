"""Transport between a client and a model server: the interface shared by REST and gRPC.

Both raise the same exceptions: `ConnectionError` (no server), `TimeoutError`, `LookupError` (no
such model or version), `ValueError` (the server rejects the request), otherwise `RuntimeError`.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from keras_bert_d2l.serving.protocol.interface import Arrays, Interface, Specs

REFUSED, NOT_FOUND, UNAVAILABLE, TIMED_OUT = 400, 404, 503, 504


class Metadata(NamedTuple):
    """A server's description of a model.

    Attributes:
        version: The served version.
        signatures: Inputs and outputs of its signatures by name.
    """

    version: int
    signatures: dict[str, Interface]


class Transport(Protocol):
    """A connection to a model server."""

    def status(self) -> dict[int, str]:
        """Return the state of each version, such as `"AVAILABLE"`."""

    def metadata(self) -> Metadata:
        """Return the served version and its signatures."""

    def predict(self, signature: str, inputs: Arrays, outputs: Specs) -> dict[str, np.ndarray]:
        """Call a signature and return its `outputs`."""

    def close(self) -> None:
        """Close the connections."""


def failure(status: int, url: str, reason: object, code: str | None = None) -> Exception:
    """Return the exception for an HTTP status.

    Args:
        status: The HTTP status.
        url: URL of the server.
        reason: The server's message, or the error that occurred.
        code: Name of the gRPC status.
    """
    if status == UNAVAILABLE:
        return ConnectionError(
            f"The model server at {url} is not running or is too busy ({reason}). Start a server, "
            "for example with `keras-bert-d2l serve saved_models/NAME`, or check the address and "
            "port."
        )
    if status in (408, TIMED_OUT):
        return TimeoutError(
            f"The server at {url} did not respond in time ({reason}). Increase `timeout` (and any "
            "time limit set on the server), or send fewer texts per request (`batch_size`)."
        )
    what = f"{url} returned {code or status}: {reason}"
    if status in (REFUSED, 413):
        return ValueError(f"The server rejected the request. {what}")
    if status == NOT_FOUND:
        return LookupError(f"The server does not have this model or version. {what}")
    return RuntimeError(f"The server failed, or is not a model server. {what}")


def check_outputs(answer: object, outputs: Specs) -> None:
    """Raise `RuntimeError` if a response does not have the outputs of its signature."""
    if not isinstance(answer, Iterable) or set(answer) != set(outputs):
        raise RuntimeError(
            f"The server did not return the expected outputs: {', '.join(outputs)}. It may have "
            "loaded a different version since the last request. Try again."
        )
