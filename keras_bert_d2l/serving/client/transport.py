"""The connection between a client and a model server: REST.

It raises `ConnectionError` (no server), `TimeoutError`, `LookupError` (no such model or version),
`ValueError` (the server rejects the request), and otherwise `RuntimeError`.
"""

import contextlib
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import urllib3
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from keras_bert_d2l.checks import shown
from keras_bert_d2l.printing import printable
from keras_bert_d2l.serving.protocol import (
    Arrays,
    Interface,
    Specs,
    encode,
    interfaces,
    to_array,
    to_json,
)

_UNAVAILABLE, _TIMED_OUT = 503, 504


class Metadata(NamedTuple):
    """A server's description of a model.

    Attributes:
        version: The served version.
        signatures: Inputs and outputs of its signatures by name.
    """

    version: int
    signatures: dict[str, Interface]


def _failure(status: int, url: str, reason: object) -> Exception:
    """Return the exception for an HTTP status.

    Args:
        status: The HTTP status.
        url: URL of the server.
        reason: The server's message, or the error that occurred.
    """
    if status == _UNAVAILABLE:
        return ConnectionError(
            f"The model server at {url} is not running or is too busy ({reason}). Start a server, "
            "for example with `keras-bert-d2l serve saved_models/NAME`, or check the address and "
            "port."
        )
    if status in (408, _TIMED_OUT):
        return TimeoutError(
            f"The server at {url} did not respond in time ({reason}). Increase `timeout` (and any "
            "time limit set on the server), or send fewer texts per request (`batch_size`)."
        )
    what = f"{url} returned {status}: {reason}"
    if status in (400, 413):
        return ValueError(f"The server rejected the request. {what}")
    if status == 404:
        return LookupError(f"The server does not have this model or version. {what}")
    return RuntimeError(f"The server failed, or is not a model server. {what}")


class Rest:
    """JSON over HTTP, usually on port 8501.

    Args:
        url: URL of the server, such as `"http://127.0.0.1:8501"`.
        model: Name of the model on the server.
        version: Version to query. `None`: the newest.
        timeout: Timeout per request in seconds.
    """

    def __init__(self, url: str, model: str, version: int | None, timeout: float) -> None:
        if not str(url).startswith(("http://", "https://")):
            raise ValueError(f"`url` must start with http:// or https://. Received: {shown(url)}.")
        self._server, self._timeout = url.rstrip("/"), timeout
        of_version = "" if version is None else f"/versions/{version}"
        self._url = f"{self._server}/v1/models/{urllib.parse.quote(model, safe='')}{of_version}"
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout, maxsize=16)

    def metadata(self) -> Metadata:
        """Return the served version and its signatures."""
        document = self._ask("GET", "/metadata")
        with self._reading():
            definitions = document["metadata"]["signature_def"]["signature_def"]
            found = {
                name: json_format.ParseDict(
                    definition, meta_graph_pb2.SignatureDef(), ignore_unknown_fields=True
                )
                for name, definition in definitions.items()
            }
            return Metadata(int(document["model_spec"]["version"]), interfaces(found))

    def predict(self, signature: str, inputs: Arrays, outputs: Specs) -> dict[str, np.ndarray]:
        """Call a signature and return its `outputs`."""
        columns = {name: to_json(array) for name, array in inputs.items()}
        body = {"signature_name": signature, "inputs": columns}
        document = self._ask("POST", ":predict", body)
        with self._reading():
            answer = document["outputs"]
            if len(outputs) == 1:  # a single output has no name
                answer = dict.fromkeys(outputs, answer)
            return {name: to_array(answer[name], spec, encode) for name, spec in outputs.items()}

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise `RuntimeError` if a response cannot be parsed: the caller is not at fault."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError, json_format.Error) as error:
            raise RuntimeError(
                f"{self._url} did not respond like a model server: {error!r:.200}. Check the "
                "address. If the server has just loaded a different version, try again."
            ) from error

    def _ask(
        self, method: str, ending: str, body: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        reply = self._send(method, self._url + ending, body)
        try:
            document = json.loads(reply.data)
        except (ValueError, RecursionError):
            document = None
        if reply.status == 200 and isinstance(document, dict):
            return document
        # The way TensorFlow Serving escapes its messages is not always valid JSON.
        message = document.get("error") if isinstance(document, dict) else None
        reason = printable(str(message or reply.data[:500].decode("utf-8", "replace")))
        raise _failure(reply.status, self._url + ending, reason)

    def _send(
        self, method: str, url: str, body: Mapping[str, object] | None, retry: bool = True
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.request(method, url, json=body)
        except urllib3.exceptions.NewConnectionError as error:  # a subclass of TimeoutError
            raise _failure(_UNAVAILABLE, self._server, error) from error
        except urllib3.exceptions.TimeoutError as error:
            reason = f"timeout of {self._timeout:g} s"
            raise _failure(_TIMED_OUT, self._server, reason) from error
        except urllib3.exceptions.HTTPError as error:
            # A server may close an idle connection just as it is reused.
            if retry and isinstance(error, urllib3.exceptions.ProtocolError):
                return self._send(method, url, body, retry=False)
            raise _failure(_UNAVAILABLE, self._server, error) from error
