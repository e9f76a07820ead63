import json

import keras
import pytest

from keras_bert_d2l.training.devices.distribution import (
    check_batch_size,
    distributed,
    make_strategy,
    num_replicas,
    scope_of,
)
from keras_bert_d2l.training.shared_options import axis_sizes


def test_the_mirrored_strategy_uses_all_devices():
    assert make_strategy("mirrored").num_replicas_in_sync == 2  # set in tests/conftest.py


def test_without_a_strategy_the_scope_is_empty():
    with scope_of(make_strategy(None)):
        pass


def test_the_batch_size_must_be_a_multiple_of_the_number_of_devices():
    check_batch_size(4, 2)
    check_batch_size(5, 1)
    with pytest.raises(ValueError, match=r"batch_size=5 for 2 devices"):
        check_batch_size(5, 2)


@pytest.mark.slow
def test_a_missing_tpu_is_reported_in_one_line():
    with pytest.raises(
        RuntimeError, match=r"^Cannot connect to the TPU 'local': .*TPU VM"
    ) as error:
        make_strategy("tpu")
    assert "\n" not in str(error.value)


def test_strategies_reject_other_backends(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="Received: the backend 'jax'"):
        make_strategy("mirrored")


@pytest.mark.parametrize(
    ("devices", "sizes"),
    [
        ("data", (None, 1)),
        ("data=2,model=3", (2, 3)),
        ("model=4,data=2", (2, 4)),
        ("model=2", (1, 2)),
    ],
)
def test_the_sizes_of_the_axes_are_read(devices, sizes):
    assert axis_sizes(devices) == sizes


@pytest.mark.parametrize(
    "devices", ["all", "data=2,pipeline=2", "data=2,data=4", "model", "model=0", "data=2;", ""]
)
def test_unknown_axes_and_sizes_are_rejected(devices):
    with pytest.raises(ValueError, match=r"`devices` must be 'data', or sizes.*Received: devices="):
        axis_sizes(devices)


def test_several_devices_need_jax():
    with distributed(None):
        assert num_replicas(None) == 1
    with pytest.raises(RuntimeError, match=r"Received: the backend 'tensorflow'; .*'mirrored'"):
        distributed("data").__enter__()


@pytest.mark.parametrize("config", ["", "no JSON", '{"cluster": []}', '{"cluster": {"worker": 1}}'])
def test_other_values_of_tf_config_are_ignored(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with distributed(None):
        pass


def test_several_workers_in_tf_config_are_rejected(monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "evaluator": ["d:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster}))
    with pytest.raises(RuntimeError, match="TF_CONFIG with 3 workers.*keras-bert-d2l launch"):
        distributed(None).__enter__()
