"""Warm-up requests for TensorFlow Serving, stored with an exported version.

The first request to a newly loaded model takes far longer than later ones. The server therefore
runs the requests in `assets.extra/tf_serving_warmup_requests` before it makes a version
available. Source: tensorflow.org/tfx/serving/saved_model_warmup.
"""

import pathlib
from collections.abc import Mapping

import tensorflow as tf

from keras_bert_d2l.serving.signatures.signature import Signature

WARMUP_FILE = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")


def write_warmup(folder: pathlib.Path, name: str, signatures: Mapping[str, Signature]) -> None:
    """Write one request per signature, if tensorflow-serving-api is installed.

    Args:
        folder: Folder of a SavedModel.
        name: Name of the model on the server.
        signatures: The signatures by name.
    """
    try:
        from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2
    except ModuleNotFoundError:
        return
    file = folder / WARMUP_FILE
    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for signature_name, signature in signatures.items():
            request = predict_pb2.PredictRequest(
                model_spec=model_pb2.ModelSpec(name=name, signature_name=signature_name),
                inputs={
                    spec.name: tf.make_tensor_proto(array, spec.dtype)
                    for spec, array in zip(signature.specs, signature.example, strict=True)
                },
            )
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())
