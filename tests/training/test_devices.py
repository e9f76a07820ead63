"""Precision, what XLA compiles, where JAX keeps it; several devices and several processes."""

import sys
import types

import keras
import pytest
import tensorflow as tf
import yaml

from keras_bert_d2l import BERTConfig, pretrain
from keras_bert_d2l.training import devices
from keras_bert_d2l.training.devices import (
    check_batch_size,
    choose_precision,
    distributed,
    gathered,
    make_strategy,
    num_replicas,
    process,
)
from tests.jax_backend import JAX, needs_jax

WIDE = BERTConfig.preset("mini", vocab_size=100)


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that this machine has a GPU with the given compute capability."""

    def pretend(*capability):
        details = {"compute_capability": capability}
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU:0"])
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)

    return pretend


@pytest.mark.parametrize(
    ("speedup", "expected"), [(0.6, "float32"), (1.1, "float32"), (1.9, "mixed_bfloat16")]
)
def test_bfloat16_must_be_clearly_faster(speedup, expected, monkeypatch):
    monkeypatch.setattr(devices, "bfloat16_speedup", lambda *sizes: speedup)
    assert choose_precision(WIDE, 512) == expected


def test_the_measurement_takes_both_dtypes_with_the_sizes_of_the_model(monkeypatch):
    sizes, multiply = [], tf.matmul
    monkeypatch.setattr(devices, "_SECONDS", 1e-3)
    monkeypatch.setattr(
        tf, "matmul", lambda a, b, **how: sizes.append((a.dtype, *a.shape)) or multiply(a, b, **how)
    )
    for num_hiddens, rows in ((16, 1024), (256, 1024), (1024, 256)):  # not 10**6 rows
        sizes.clear()
        assert devices.bfloat16_speedup(num_hiddens, 4 * num_hiddens, 10**6) > 0
        assert {(dtype, rows, num_hiddens) for dtype in (tf.float32, tf.bfloat16)} <= {*sizes}


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 5), "float32"), ((8, 0), "mixed_bfloat16")]
)
def test_a_gpu_is_not_measured(capability, expected, gpu, monkeypatch):
    gpu(*capability)
    monkeypatch.delattr(devices, "bfloat16_speedup")
    assert choose_precision(WIDE, 512) == expected


@pytest.mark.parametrize(
    ("platform", "capability", "expected"),
    [
        ("cpu", None, "float32"),
        ("gpu", "7.5", "float32"),
        ("gpu", "12.0", "mixed_bfloat16"),
        ("tpu", None, "mixed_bfloat16"),
    ],
)
def test_with_jax_the_device_decides(platform, capability, expected, monkeypatch):
    device = types.SimpleNamespace(platform=platform, compute_capability=capability)
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(devices=lambda: [device]))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert choose_precision(WIDE, 512) == expected


def test_xla_and_small_models_stay_in_float32(monkeypatch):
    monkeypatch.delattr(devices, "bfloat16_speedup")
    assert choose_precision(WIDE, 512, jit=True) == "float32"
    small = BERTConfig.preset("tiny", num_hiddens=64, vocab_size=100)
    assert choose_precision(small, 512) == "float32"


@pytest.mark.long
def test_a_run_keeps_the_precision_that_was_measured(text, options, tmp_path, monkeypatch):
    measured = {"bert_config": WIDE, "steps": 1, "evaluate_every": 1, "precision": "auto"}
    monkeypatch.setattr(devices, "bfloat16_speedup", lambda *sizes: 2.0)
    result = pretrain(text, tmp_path / "run", **options | measured)
    assert result.model.dtype_policy.name == "mixed_bfloat16"
    assert yaml.safe_load((tmp_path / "run/run.yaml").read_text())["precision"] == "mixed_bfloat16"
    monkeypatch.setattr(devices, "bfloat16_speedup", lambda *sizes: 0.5)
    resumed = pretrain(text, tmp_path / "run", resume=True, **options | measured)
    assert resumed.model.dtype_policy.name == "mixed_bfloat16"
    with pytest.raises(ValueError, match="precision='mixed_bfloat16' and resumes with its own"):
        pretrain(text, tmp_path / "run", resume=True, precision="float32")


@pytest.mark.long
def test_a_run_keeps_the_choice_of_its_first_machine(text, options, tmp_path, gpu):
    gpu(8, 0)
    given = {**options, "precision": "float32", "steps": 1, "evaluate_every": 1}
    result = pretrain(text, tmp_path / "run", **given)
    assert result.model.jit_compile
    assert yaml.safe_load((tmp_path / "run/run.yaml").read_text())["jit"] is True
    pretrain(text, tmp_path / "bucketed", rows="bucketed", **given)
    assert yaml.safe_load((tmp_path / "bucketed/run.yaml").read_text())["jit"] is False


@pytest.mark.long
@needs_jax
def test_the_jax_backend_keeps_compiled_steps_for_the_next_process(
    text, tmp_path, fresh_process, monkeypatch
):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    code = """
        import sys
        import jax
        from keras_bert_d2l import BERTConfig, pretrain
        events = []
        jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
        config = BERTConfig(60, 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=24)
        sizes = {"bert_config": config, "vocab_size": 60, "max_len": 24, "held_out": 0.2}
        pretrain(
            sys.argv[1], sys.argv[2], steps=1, evaluate_every=1, batch_size=4, verbose=0, **sizes
        )
        print(events.count("/jax/compilation_cache/cache_hits"))
    """
    variables = {**JAX, "XDG_CACHE_HOME": str(tmp_path)}

    def number_of_hits(run):
        return int(fresh_process(code, text, tmp_path / run, **variables))

    before = number_of_hits("first")  # functions that were compiled twice
    kept = {file.name for file in (tmp_path / "keras_bert_d2l" / "compiled").iterdir()}
    assert any(name.startswith("jit_train_step") for name in kept)
    assert number_of_hits("second") > before


def test_the_mirrored_strategy_uses_all_devices():
    assert make_strategy("mirrored").num_replicas_in_sync == 2  # set in tests/conftest.py


def test_the_batch_size_must_be_a_multiple_of_the_number_of_devices():
    check_batch_size(4, 2)
    check_batch_size(5, 1)
    with pytest.raises(ValueError, match="number of devices, 2. Received: batch_size=5"):
        check_batch_size(5, 2)


def test_strategies_reject_other_backends(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="Received: the backend 'jax'"):
        make_strategy.__wrapped__("mirrored")


def test_several_devices_need_jax():
    with distributed(None):
        assert num_replicas(None) == 1
    with pytest.raises(RuntimeError, match=r"Received: the backend 'tensorflow'; .*'mirrored'"):
        distributed("data").__enter__()


def test_several_processes_need_jax(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    with pytest.raises(RuntimeError, match="JAX_NUM_PROCESSES=2 and the backend 'tensorflow'"):
        devices.join()
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="JAX_NUM_PROCESSES must be an integer.*'two'"):
        devices.join()


def test_tensorflow_trains_in_one_process():
    assert process() == (0, 1)
    assert gathered(0.1, 0.2).tolist() == [[0.1, 0.2]]
