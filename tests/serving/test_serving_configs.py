"""Tests that the files in examples/serving are valid for TensorFlow Serving and Prometheus."""

import pathlib

import pytest
import yaml
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "serving"
INT64 = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
BOOL = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL
WRAPPED = ".google.protobuf.Int64Value"
# Fields of the TensorFlow Serving messages that tensorflow-serving-api does not include:
# servables/tensorflow/session_bundle_config.proto and config/monitoring_config.proto.
MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": WRAPPED,
        "batch_timeout_micros": WRAPPED,
        "max_enqueued_batches": WRAPPED,
        "num_batch_threads": WRAPPED,
        "pad_variable_length_inputs": BOOL,
    },
    "PrometheusConfig": {"enable": BOOL, "path": STRING},
    "MonitoringConfig": {"prometheus_config": ".test.PrometheusConfig"},
}


@pytest.fixture(scope="module")
def messages():
    """Return the classes of `MESSAGES` by name."""
    file = descriptor_pb2.FileDescriptorProto(name="test.proto", package="test", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            kind = {"type_name": kind} if isinstance(kind, str) else {"type": kind}
            message.field.add(name=field, number=number, label=1, **kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"test.{name}"))
        for name in MESSAGES
    }


def test_the_model_config_uses_the_folder_mounted_by_compose():
    text = (FOLDER / "models.config").read_text(encoding="utf-8")
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == (
        "mine",
        "/models/mine",
        "tensorflow",
    )
    assert model.model_version_policy.latest.num_versions == 1


def test_batching_and_monitoring_use_only_existing_fields(messages):
    text = (FOLDER / "batching.config").read_text(encoding="utf-8")
    batching = text_format.Parse(text, messages["BatchingParameters"]())
    assert batching.max_batch_size.value == 32
    assert batching.pad_variable_length_inputs
    text = (FOLDER / "monitoring.config").read_text(encoding="utf-8")
    monitoring = text_format.Parse(text, messages["MonitoringConfig"]()).prometheus_config
    prometheus = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = prometheus["scrape_configs"]
    assert monitoring.enable
    assert job["metrics_path"] == monitoring.path
    assert job["static_configs"] == [{"targets": ["serving:8501"]}]


def test_compose_mounts_only_existing_files():
    compose = yaml.safe_load((FOLDER / "docker-compose.yml").read_text(encoding="utf-8"))
    services = compose["services"]
    assert services["serving"]["image"].startswith("tensorflow/serving:2.")
    mounts = {}
    for service in services.values():
        for volume in service["volumes"]:
            source, target, mode = volume.split(":")
            assert (FOLDER / source).exists()
            assert mode == "ro"
            mounts[target] = source
    options = (option.partition("=")[2] for option in services["serving"]["command"])
    named = [option for option in options if option.startswith("/")]
    assert len(named) == 3
    assert set(named) <= mounts.keys()
