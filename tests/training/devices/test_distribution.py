"""Several devices and several processes."""

import re

import keras
import pytest

from keras_bert_d2l.training.devices import distribution
from keras_bert_d2l.training.devices.distribution import (
    check_batch_size,
    distributed,
    gathered,
    make_strategy,
    num_replicas,
    process,
    reporting_lost_processes,
)


def test_the_mirrored_strategy_uses_all_devices():
    assert make_strategy("mirrored").num_replicas_in_sync == 2  # set in tests/conftest.py


def test_the_batch_size_must_be_a_multiple_of_the_number_of_devices():
    check_batch_size(4, 2)
    check_batch_size(5, 1)
    with pytest.raises(ValueError, match=r"batch_size=5 for 2 devices"):
        check_batch_size(5, 2)


def test_strategies_reject_other_backends(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="Received: the backend 'jax'"):
        make_strategy("mirrored")


def test_several_devices_need_jax():
    with distributed(None):
        assert num_replicas(None) == 1
    with pytest.raises(RuntimeError, match=r"Received: the backend 'tensorflow'; .*'mirrored'"):
        distributed("data").__enter__()


def test_several_processes_need_jax(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    with pytest.raises(RuntimeError, match="JAX_NUM_PROCESSES=2 and the backend 'tensorflow'"):
        distribution.join()


def test_tensorflow_trains_in_one_process():
    assert process() == (0, 1)
    assert gathered(0.1, 0.2).tolist() == [[0.1, 0.2]]


def fail(error):
    with reporting_lost_processes(lambda: "Resume it"):
        raise error


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_a_failed_communication_reports_a_lost_process(kind, monkeypatch):
    error = kind("UNKNOWN: Gloo AllGather failed: Connection closed by peer")
    with pytest.raises(kind, match="Gloo"):
        fail(error)
    monkeypatch.setattr(distribution, "process", lambda: (0, 2))
    with pytest.raises(ChildProcessError, match="has ended.*Resume it.*Gloo AllGather failed"):
        fail(error)


def test_other_errors_of_a_process_are_unchanged(monkeypatch):
    monkeypatch.setattr(distribution, "process", lambda: (0, 2))
    for error in (ValueError("`steps` must be 1"), RuntimeError("RESOURCE_EXHAUSTED: memory")):
        with pytest.raises(type(error)) as raised:
            fail(error)
        assert raised.value is error


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("JAX_NUM_PROCESSES", "two", "JAX_NUM_PROCESSES must be an integer.*'two'"),
        ("JAX_PROCESS_ID", "2", "process_id < num_processes. Got process_id=2.*Start them with"),
    ],
)
def test_variables_that_do_not_describe_a_process_of_the_jax_backend_are_rejected(
    variable, value, message, fresh_process
):
    pytest.importorskip("jax")
    # In a process where JAX has already computed something, it raises RuntimeError instead.
    code = """
        from keras_bert_d2l.training.devices.distribution import join

        try:
            join()
        except ValueError as error:
            print(error)
    """
    variables = {
        "JAX_COORDINATOR_ADDRESS": "localhost:1",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "0",
        "JAX_LOCAL_DEVICE_IDS": "0",
        "KERAS_BACKEND": "jax",
    }
    assert re.search(message, fresh_process(code, **{**variables, variable: value}))
