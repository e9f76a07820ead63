"""Client for a model server: TensorFlow Serving, or the development server, by REST.

B: rows in a request.
"""

import contextlib
import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import urllib3
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from keras_bert_d2l.checks import check_integer, check_that
from keras_bert_d2l.printing import printable
from keras_bert_d2l.serving.protocol import (
    DEFAULT_SIGNATURE,
    Interface,
    find_interface,
    interfaces,
    to_array,
    to_arrays,
    to_json,
)

_Read = TypeVar("_Read")
_PARSING = (AttributeError, LookupError, TypeError, ValueError, RecursionError, json_format.Error)
_REJECTED = ValueError, "The server rejected the request."
_LATE = TimeoutError, "Increase `timeout`, or send fewer texts per request (`batch_size`)."
_FAILURES: dict[int, tuple[type[Exception], str]] = {  # by HTTP status
    **dict.fromkeys((400, 413), _REJECTED),
    **dict.fromkeys((408, 504), _LATE),
    404: (LookupError, "The server does not have this model or version."),
    503: (ConnectionError, "The server is too busy, or not running: `keras-bert-d2l serve PATH`."),
}


class Metadata(NamedTuple):
    """The served version of a model, and the inputs and outputs of its signatures by name."""

    version: int
    signatures: dict[str, Interface]


class ServingClient:
    """Client for a model on TensorFlow Serving or on `keras-bert-d2l serve`.

    The client reads the signatures from the server once and checks each request against them
    before sending it. The outputs of a signature are the answers of the model, such as the `label`
    and the `scores` of a classifier. A client is thread-safe.

    Args:
        url: Server address, such as `"http://127.0.0.1:8501"`.
        model: Name of the model on the server.
        version: Version to query. Defaults to the newest version on the server.
        timeout: Timeout per request in seconds.
        batch_size: Maximum number of rows per request. Larger inputs are split.

    Raises:
        ValueError: An argument is out of range.

    All methods that call the server raise `ConnectionError` if no server responds, `TimeoutError`
    if it responds too late, `LookupError` if the server has no such model or version,
    `ValueError` if a value does not match the signature (before anything is sent) or the server
    rejects it, and `RuntimeError` if the server fails.

    Example:

    ```python
    import keras_bert_d2l as kb
    from keras_bert_d2l.serving.server.local_server import LocalServer, running
    from keras_bert_d2l.serving.server.served_model import ServedModel

    vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text"])
    config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab))
    model = kb.BERTModel.from_bert_config(config)
    folder = kb.export_saved_model(model, "saved_models/demo", tokenizer=kb.Tokenizer(vocab))

    # Instead of `running`, you can start `keras-bert-d2l serve saved_models/demo`.
    with running(LocalServer(ServedModel(folder))) as url:
        with kb.ServingClient(url, "demo") as client:
            vectors = client.predict({"text": ["a text", "a"]}, "embed")["embedding"]
            print(vectors.shape)  # (2, 128)
            print(client.predict({"text": ["a [MASK]"]}, "fill_mask")["tokens"][0, 0])
    ```
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: int | None = None,
        *,
        timeout: float = 60.0,
        batch_size: int = 32,
    ) -> None:
        is_url = str(url).startswith(("http://", "https://"))
        check_that(is_url, "url", "an address that starts with http:// or https://", url)
        check_that(bool(model), "model", "the name of the model on the server", model)
        check_that(timeout > 0, "timeout", "above 0", timeout)
        check_integer("batch_size", batch_size, 1)
        self._url = f"{url.rstrip('/')}/v1/models/{urllib.parse.quote(model, safe='')}"
        if version is not None:
            self._url += f"/versions/{version}"
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout, maxsize=16)
        self._batch_size = batch_size
        self._known: Metadata | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def metadata(self) -> Metadata:
        """Return the served version and the inputs and outputs of its signatures."""
        known = self._known = self._request("/metadata", _metadata)
        return known

    def predict(
        self, inputs: Mapping[str, object], signature_name: str = DEFAULT_SIGNATURE
    ) -> dict[str, np.ndarray]:
        """Call any signature.

        Args:
            inputs: One (nested) list or array per input of the signature. The first dimension is
                the number of rows B. An input without dimensions is sent with all of them. Strings
                are `str`, or `bytes` with any content.
            signature_name: Name of the signature.

        Returns: arrays by name. Strings are `str`, or `bytes` if they are not UTF-8. If several
            requests were sent, outputs of different sizes are padded with zeros or empty strings.
        """
        specs, outputs = find_interface((self._known or self.metadata()).signatures, signature_name)
        arrays = to_arrays(inputs, specs)
        sizes = {x.shape[:1] for name, x in arrays.items() if specs[name].shape != ()}
        if len(sizes) != 1 or not sizes.isdisjoint({(), (0,)}):
            received = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise ValueError(
                f"All inputs must have the same number of rows, at least one. Received: {received}."
            )

        def read(document: dict[str, Any]) -> dict[str, np.ndarray]:
            answer = document["outputs"]
            if len(outputs) == 1:  # a single output has no name
                answer = dict.fromkeys(outputs, answer)
            return {name: to_array(answer[name], spec) for name, spec in outputs.items()}

        answers = []
        [(num_rows,)] = sizes
        for start in range(0, num_rows, self._batch_size):
            end = start + self._batch_size
            columns = {k: to_json(x[start:end] if x.ndim else x) for k, x in arrays.items()}
            body = {"signature_name": signature_name, "inputs": columns}
            try:
                answers.append(self._request(":predict", read, body))
            except (ValueError, LookupError, RuntimeError):
                self._known = None  # the server may have loaded a version with other signatures
                raise
        return {name: _joined([one[name] for one in answers]) for name in outputs}

    def _request(
        self,
        ending: str,
        read: Callable[[dict[str, Any]], _Read],
        body: Mapping[str, object] | None = None,
    ) -> _Read:
        """Send a request, and return what `read` makes of the JSON of the response.

        Without a `body`, the method is GET.
        """
        url = self._url + ending
        try:
            reply = self._pool.request("POST" if body else "GET", url, json=body)
        except urllib3.exceptions.HTTPError as error:
            is_late = isinstance(error, urllib3.exceptions.ReadTimeoutError)
            raise _failure(504 if is_late else 503, url, f"did not respond: {error}") from error
        if reply.status != 200:
            # The way TensorFlow Serving escapes its messages is not always valid JSON.
            reason = reply.data[:500].decode("utf-8", "replace")
            with contextlib.suppress(*_PARSING):
                reason = str(json.loads(reply.data)["error"])
            raise _failure(reply.status, url, f"returned {reply.status}: {printable(reason)}")
        try:
            return read(json.loads(reply.data))
        except _PARSING as error:
            raise RuntimeError(
                f"{url} did not respond like a model server: {error!r:.200}. Check the address. If "
                "the server has just loaded a different version, try again."
            ) from error


def _failure(status: int, url: str, reason: str) -> Exception:
    """Return the exception for an HTTP status."""
    failed = RuntimeError, "The server failed, or is not a model server."
    kind, message = _FAILURES.get(status, failed)
    return kind(f"{message} {url} {reason}")


def _metadata(document: dict[str, Any]) -> Metadata:
    definitions = document["metadata"]["signature_def"]["signature_def"]
    found = {
        name: json_format.ParseDict(one, meta_graph_pb2.SignatureDef(), ignore_unknown_fields=True)
        for name, one in definitions.items()
    }
    return Metadata(int(document["model_spec"]["version"]), interfaces(found))


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate arrays along axis 0, padding the other axes, and decode UTF-8."""
    found = arrays[0]
    if arrays[1:] and found.ndim:
        shape = np.max([array.shape for array in arrays], axis=0)
        widths = [[(0, 0), *((0, n) for n in shape[1:] - x.shape[1:])] for x in arrays]
        fill = b"" if found.dtype == object else 0
        padded = (np.pad(x, w, constant_values=fill) for x, w in zip(arrays, widths, strict=True))
        found = np.concatenate([*padded])
    return np.vectorize(_text, [object])(found) if found.dtype == object else found


def _text(value: bytes) -> str | bytes:
    with contextlib.suppress(UnicodeDecodeError):
        return value.decode("utf-8")
    return value
