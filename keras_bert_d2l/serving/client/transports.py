"""Arrays to a model server and back, by REST or by gRPC: what is sent, and what went wrong.

The exceptions are the same for both: `ConnectionError` (no server), `TimeoutError`, `LookupError`
(no such model or version), `ValueError` (the server refuses the request), else `RuntimeError`.
"""

import contextlib
import json
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import tensorflow as tf
import urllib3
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from keras_bert_d2l.serving.protocol.rest_json import encode, to_json
from keras_bert_d2l.serving.protocol.tensors import Interface, interfaces, to_array

_CALLERS_FAULT = (400, 413)
_NOT_FOUND, _UNAVAILABLE, _GATEWAY_TIMEOUT = 404, 503, 504
_NO_LIMIT = -1  # of a message's size; gRPC's own is 4 MiB


class Metadata(NamedTuple):
    """What a server says of a model.

    Attributes:
        version: The version that answers.
        signatures: What its signatures take and return, by name.
    """

    version: int
    signatures: dict[str, Interface]


class Transport(Protocol):
    """A way to a model server."""

    def status(self) -> dict[int, str]:
        """Returns the state of each version, such as `"AVAILABLE"`."""

    def metadata(self) -> Metadata:
        """Returns the version that answers, and its signatures."""

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tf.TensorSpec]
    ) -> dict[str, np.ndarray]:
        """Returns the answer of a signature; strings as objects of type `bytes`."""

    def close(self) -> None:
        """Ends the connections."""


class Rest:
    """JSON over HTTP, usually port 8501.

    Args:
        url: Where the server is, such as `"http://127.0.0.1:8501"`.
        model: The model's name for the server.
        version: The version to ask; `None`: the newest.
        timeout: Seconds for an answer.
    """

    def __init__(self, url: str, model: str, version: int | None, timeout: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"`url` must start with http:// or https://. Received: {url!r}.")
        self._server, self._timeout = url.rstrip("/"), timeout
        of_version = "" if version is None else f"/versions/{version}"
        self._url = f"{self._server}/v1/models/{urllib.parse.quote(model, safe='')}{of_version}"
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout, maxsize=16)

    def status(self) -> dict[int, str]:
        document = self._ask("GET", "")
        with self._understanding():
            return {int(one["version"]): one["state"] for one in document["model_version_status"]}

    def metadata(self) -> Metadata:
        document = self._ask("GET", "/metadata")
        with self._understanding():
            definitions = document["metadata"]["signature_def"]["signature_def"]
            found = {
                name: json_format.ParseDict(
                    definition, meta_graph_pb2.SignatureDef(), ignore_unknown_fields=True
                )
                for name, definition in definitions.items()
            }
            return Metadata(int(document["model_spec"]["version"]), interfaces(found))

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tf.TensorSpec]
    ) -> dict[str, np.ndarray]:
        body = {
            "signature_name": signature,
            "inputs": {name: to_json(array) for name, array in inputs.items()},
        }
        document = self._ask("POST", ":predict", body)
        with self._understanding():
            answer = document["outputs"]
            if len(outputs) == 1:  # a single output has no name
                answer = dict.fromkeys(outputs, answer)
            _check_names(answer, outputs)
            return {name: to_array(answer[name], spec, encode) for name, spec in outputs.items()}

    def close(self) -> None:
        self._pool.clear()

    @contextlib.contextmanager
    def _understanding(self) -> Iterator[None]:
        """Tells what cannot be read as the fault of the server, not of the caller."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError, json_format.Error) as error:
            raise RuntimeError(
                f"{self._url} does not answer as a model server does: {error!r:.200}. Check the "
                "address; it may also have loaded another version meanwhile: then ask again."
            ) from error

    def _ask(self, method: str, ending: str, body: Any = None) -> Any:
        reply = self._send(method, self._url + ending, body)
        try:
            document = json.loads(reply.data)
        except ValueError:
            document = None
        if reply.status == 200 and isinstance(document, dict):
            return document
        # TensorFlow Serving escapes its messages in a way that is not always JSON.
        message = document.get("error") if isinstance(document, dict) else None
        told = message or reply.data[:500].decode("utf-8", "replace")
        what = f"{self._url}{ending} answers {reply.status}: {told}"
        if reply.status in _CALLERS_FAULT:
            raise ValueError(f"The server refuses the request. {what}")
        if reply.status == _NOT_FOUND:
            raise LookupError(f"The server has no such model, or not this version. {what}")
        if reply.status == _UNAVAILABLE:
            raise _unreachable(self._server, told)
        if reply.status == _GATEWAY_TIMEOUT:
            raise _late(self._server, told)
        raise RuntimeError(f"The server fails, or is no model server. {what}")

    def _send(self, method: str, url: str, body: Any, again: bool = True) -> Any:
        try:
            return self._pool.request(method, url, json=body)
        except urllib3.exceptions.NewConnectionError as error:  # a TimeoutError, too
            raise _unreachable(self._server, error) from error
        except urllib3.exceptions.TimeoutError as error:
            raise _late(self._server, f"not within {self._timeout:g} s") from error
        except urllib3.exceptions.ProtocolError as error:
            if again:  # a server may close an idle connection in the moment it is used again
                return self._send(method, url, body, again=False)
            raise _unreachable(self._server, error) from error
        except urllib3.exceptions.HTTPError as error:
            raise _unreachable(self._server, error) from error


class GRPC:
    """Protocol buffers over HTTP/2, without encryption, usually port 8500.

    Args:
        url: Where the server is, such as `"127.0.0.1:8500"`.
        model: The model's name for the server.
        version: The version to ask; `None`: the newest.
        timeout: Seconds for an answer.

    Raises:
        ImportError: tensorflow-serving-api is not installed.
    """

    def __init__(self, url: str, model: str, version: int | None, timeout: float) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import (
                model_service_pb2_grpc,
                prediction_service_pb2_grpc,
            )
        except ModuleNotFoundError as error:
            raise ImportError(
                'gRPC needs the protocol buffers: pip install "keras-bert-d2l[serving]".'
            ) from error
        if "://" in url:
            raise ValueError(f"`url` must be HOST:PORT for gRPC. Received: {url!r}.")
        self._url, self._model, self._version, self._timeout = url, model, version, timeout
        limits = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
        self._channel = grpc.insecure_channel(url, [(limit, _NO_LIMIT) for limit in limits])
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def status(self) -> dict[int, str]:
        from tensorflow_serving.apis import get_model_status_pb2 as pb2

        request = pb2.GetModelStatusRequest(model_spec=self._spec())
        response = self._call(self._models.GetModelStatus, request)
        states = pb2.ModelVersionStatus.State
        return {one.version: states.Name(one.state) for one in response.model_version_status}

    def metadata(self) -> Metadata:
        from tensorflow_serving.apis import get_model_metadata_pb2 as pb2

        request = pb2.GetModelMetadataRequest(
            model_spec=self._spec(), metadata_field=["signature_def"]
        )
        response = self._call(self._prediction.GetModelMetadata, request)
        definitions = pb2.SignatureDefMap.FromString(response.metadata["signature_def"].value)
        version = response.model_spec.version.value
        return Metadata(version, interfaces(definitions.signature_def))

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, tf.TensorSpec]
    ) -> dict[str, np.ndarray]:
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest(
            model_spec=self._spec(signature),
            inputs={name: tf.make_tensor_proto(array) for name, array in inputs.items()},
        )
        response = self._call(self._prediction.Predict, request)
        _check_names(response.outputs, outputs)
        return {name: tf.make_ndarray(response.outputs[name]) for name in outputs}

    def close(self) -> None:
        self._channel.close()

    def _spec(self, signature: str = "") -> Any:
        from tensorflow_serving.apis import model_pb2

        spec = model_pb2.ModelSpec(name=self._model, signature_name=signature)
        if self._version is not None:
            spec.version.value = self._version
        return spec

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        import grpc

        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            self._raise(error, grpc.StatusCode)

    def _raise(self, error: Any, codes: Any) -> NoReturn:
        what = f"{self._url} answers {error.code().name}: {error.details()}"
        if error.code() is codes.UNAVAILABLE:
            raise _unreachable(self._url, error.details()) from error
        if error.code() is codes.DEADLINE_EXCEEDED:
            raise _late(self._url, f"not within {self._timeout:g} s") from error
        if error.code() is codes.NOT_FOUND:
            raise LookupError(
                f"The server has no such model, or not this version. {what}"
            ) from error
        if error.code() in (codes.INVALID_ARGUMENT, codes.FAILED_PRECONDITION, codes.OUT_OF_RANGE):
            raise ValueError(f"The server refuses the request. {what}") from error
        raise RuntimeError(f"The server fails. {what}") from error


def _check_names(answer: Any, outputs: Mapping[str, tf.TensorSpec]) -> None:
    if not isinstance(answer, Mapping) or set(answer) != set(outputs):
        raise RuntimeError(
            f"The server should answer with {', '.join(outputs)}, and does not: it may have "
            "loaded another version meanwhile. Ask again."
        )


def _unreachable(url: str, reason: object) -> ConnectionError:
    return ConnectionError(
        f"No model server answers at {url}, or it is too busy ({reason}). Start one, for instance "
        "with `keras-bert-d2l serve saved_models/NAME`, or check the address and the port."
    )


def _late(url: str, reason: str) -> TimeoutError:
    return TimeoutError(
        f"The server at {url} gave no answer in time ({reason}). Raise `timeout`, and the limit "
        "that the server itself may have, or send fewer texts at once (`batch_size`)."
    )
