"""Requests that TensorFlow Serving asks itself before it answers others, as a file in the version.

The first answer of a freshly loaded model takes far longer than the next ones; the server reads
`assets.extra/tf_serving_warmup_requests` and gives those before the version is available
(tensorflow.org/tfx/serving/saved_model_warmup).
"""

import pathlib
from collections.abc import Mapping

import tensorflow as tf

from keras_bert_d2l.serving.signatures.requests import Signature

WARMUP_FILE = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")


def write_warmup(folder: pathlib.Path, name: str, signatures: Mapping[str, Signature]) -> bool:
    """Writes a request for each signature, if tensorflow-serving-api is installed.

    Args:
        folder: The folder of a SavedModel.
        name: The model's name for the server.
        signatures: The signatures by name.

    Returns: whether the file was written.
    """
    try:
        from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2
    except ModuleNotFoundError:
        return False
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
    return True
