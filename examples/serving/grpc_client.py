"""Ask TensorFlow Serving by gRPC. Needs `pip install tensorflow-serving-api`.

python grpc_client.py 127.0.0.1:8500 mine "one text" "another"
"""

import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def predict(address: str, model: str, texts: list[str]) -> dict[str, object]:
    """Return the outputs of the default signature, as arrays by name."""
    no_limit = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
    with grpc.insecure_channel(address, no_limit) as channel:
        request = predict_pb2.PredictRequest(inputs={"text": tf.make_tensor_proto(texts)})
        request.model_spec.name = model
        response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, 10)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


if __name__ == "__main__":
    print(predict(*sys.argv[1:3], sys.argv[3:]))
