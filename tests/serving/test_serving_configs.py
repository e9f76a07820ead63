"""Tests that the files in examples/serving are valid for TensorFlow Serving and Prometheus."""

import pathlib
import re

import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "serving"
# Fields of BatchingParameters and MonitoringConfig, whose messages tensorflow-serving-api does not
# include: servables/tensorflow/session_bundle_config.proto and config/monitoring_config.proto.
BATCHING = {
    "max_batch_size { value: 32 }",  # the `batch_size` of clients
    "batch_timeout_micros { value: 1000 }",
    "num_batch_threads { value: 2 }",
    "max_enqueued_batches { value: 64 }",
    "pad_variable_length_inputs: true",
}
MONITORING = 'prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }'


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


def test_batching_and_monitoring_use_only_existing_fields():
    text = re.sub("#.*\n", "", (FOLDER / "batching.config").read_text(encoding="utf-8"))
    assert set(text.splitlines()) - {""} == BATCHING
    text = re.sub("#.*\n", "", (FOLDER / "monitoring.config").read_text(encoding="utf-8"))
    assert " ".join(text.split()) == MONITORING
    prometheus = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = prometheus["scrape_configs"]
    assert job["metrics_path"] == "/monitoring/prometheus/metrics"
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
