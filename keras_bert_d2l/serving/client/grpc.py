"""gRPC transport: protocol buffers over HTTP/2. Requires tensorflow-serving-api."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import shown
from keras_bert_d2l.serving.client.transport import (
    NOT_FOUND,
    REFUSED,
    TIMED_OUT,
    UNAVAILABLE,
    Metadata,
    failure,
)
from keras_bert_d2l.serving.protocol import Arrays, Specs, interfaces

try:
    import grpc
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        model_pb2,
        predict_pb2,
        prediction_service_pb2_grpc,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        'gRPC needs tensorflow-serving-api: pip install "keras-bert-d2l[serving]".'
    ) from error

Reply = TypeVar("Reply")

_NO_LIMIT = -1  # no message size limit; gRPC's default is 4 MiB
_HTTP_STATUS = {
    grpc.StatusCode.UNAVAILABLE: UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: TIMED_OUT,
    grpc.StatusCode.NOT_FOUND: NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT: REFUSED,
    grpc.StatusCode.FAILED_PRECONDITION: REFUSED,
    grpc.StatusCode.OUT_OF_RANGE: REFUSED,
}
_FAILED = 500


class GRPC:
    """Unencrypted gRPC, usually on port 8500. Implements `Transport`.

    Args:
        url: Address of the server, such as `"127.0.0.1:8500"`.
        model: Name of the model on the server.
        version: Version to query. `None`: the newest.
        timeout: Timeout per request in seconds.
    """

    def __init__(self, url: str, model: str, version: int | None, timeout: float) -> None:
        if "://" in url:
            raise ValueError(f"`url` must be HOST:PORT for gRPC. Received: {shown(url)}.")
        self._url, self._model, self._version, self._timeout = url, model, version, timeout
        limits = ("grpc.max_send_message_length", "grpc.max_receive_message_length")
        self._channel = grpc.insecure_channel(url, [(limit, _NO_LIMIT) for limit in limits])
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def metadata(self) -> Metadata:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec(), metadata_field=["signature_def"]
        )
        response = self._call(self._prediction.GetModelMetadata, request)
        definitions = get_model_metadata_pb2.SignatureDefMap.FromString(
            response.metadata["signature_def"].value
        )
        version = response.model_spec.version.value
        return Metadata(version, interfaces(definitions.signature_def))

    def predict(self, signature: str, inputs: Arrays, outputs: Specs) -> dict[str, np.ndarray]:
        request = predict_pb2.PredictRequest(
            model_spec=self._spec(signature),
            inputs={name: tf.make_tensor_proto(array) for name, array in inputs.items()},
        )
        response = self._call(self._prediction.Predict, request)
        if set(response.outputs) != set(outputs):
            raise RuntimeError(
                f"The server did not return the expected outputs: {', '.join(outputs)}. It may "
                "have loaded a different version since the last request. Try again."
            )
        return {name: tf.make_ndarray(response.outputs[name]) for name in outputs}

    def close(self) -> None:
        self._channel.close()

    def _spec(self, signature: str = "") -> model_pb2.ModelSpec:
        spec = model_pb2.ModelSpec(name=self._model, signature_name=signature)
        if self._version is not None:
            spec.version.value = self._version
        return spec

    def _call(self, method: Callable[..., Reply], request: object) -> Reply:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            code, reason = error.code(), error.details()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                reason = f"timeout of {self._timeout:g} s"
            status = _HTTP_STATUS.get(code, _FAILED)
            raise failure(status, self._url, reason, code.name) from error
