"""Test of the example of gRPC, with a small service like that of TensorFlow Serving."""

import concurrent.futures
import pathlib
import runpy

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "serving" / "grpc_client.py"
TEXTS = ["red [MASK]", "green"]


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, model):
        self.model = model

    def Predict(self, request, context):
        assert request.model_spec.name == "demo"
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        outputs = self.model.ask("serving_default", inputs)
        protos = {name: tf.make_tensor_proto(array) for name, array in outputs.items()}
        return predict_pb2.PredictResponse(outputs=protos)


@pytest.mark.slow
def test_the_example_of_grpc_gets_the_outputs_of_the_model(load, served):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    service = Prediction(load("demo"))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        predict = runpy.run_path(str(EXAMPLE))["predict"]
        found = predict(f"127.0.0.1:{port}", "demo", TEXTS)
    finally:
        server.stop(None).wait()
    right = served("serving_default", text=TEXTS)
    assert found.keys() == right.keys()
    for name, array in right.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-5)
