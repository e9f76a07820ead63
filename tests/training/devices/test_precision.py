import sys
import types

import keras
import pytest
import tensorflow as tf
import yaml

from keras_bert_d2l import pretrain
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.training.devices import precision
from keras_bert_d2l.training.devices.precision import choose_precision

WIDE = BERTConfig.preset("mini", vocab_size=100)


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that this machine has a GPU with the given compute capability."""

    def pretend(*capability):
        details = {"compute_capability": capability}
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["GPU:0"])
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)

    return pretend


@pytest.mark.parametrize(
    ("speedup", "expected"), [(0.6, "float32"), (1.1, "float32"), (1.9, "mixed_bfloat16")]
)
def test_bfloat16_must_be_clearly_faster(speedup, expected, monkeypatch):
    monkeypatch.setattr(precision, "bfloat16_speedup", lambda *sizes: speedup)
    lines = []
    assert choose_precision(WIDE, 512, say=lines.append) == expected
    assert lines == [
        f"Precision: {expected}, because bfloat16 is {speedup} times as fast here as float32"
    ]


def test_the_measurement_takes_both_dtypes_with_the_sizes_of_the_model(monkeypatch):
    clock, sizes, function = types.SimpleNamespace(now=0.0), [], tf.function

    def timed(**options):
        """Compile a function whose calls take two seconds, or one with bfloat16."""

        def compiled(step):
            run = function(step, **options)

            def call(x, dy):
                clock.now += 1.0 if x.dtype == tf.bfloat16 else 2.0
                sizes.append((*x.shape, dy.shape[1]))
                return run(x, dy)

            return call

        return compiled

    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(precision, "time", clock)
    monkeypatch.setattr(tf, "function", timed)
    assert precision.bfloat16_speedup(256, 1024, 512) == 2.0
    assert precision.bfloat16_speedup(1024, 4096, 10**6) == 2.0
    assert set(sizes) == {(512, 256, 1024), (256, 1024, 4096)}  # not a million rows


@pytest.mark.parametrize(
    ("capability", "expected"), [((7, 5), "float32"), ((8, 0), "mixed_bfloat16")]
)
def test_a_gpu_is_not_measured(capability, expected, gpu, monkeypatch):
    gpu(*capability)
    monkeypatch.delattr(precision, "bfloat16_speedup")
    assert choose_precision(WIDE, 512, say=lambda line: None) == expected


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
    assert choose_precision(WIDE, 512, say=lambda line: None) == expected


def test_xla_and_small_models_stay_in_float32(monkeypatch):
    monkeypatch.delattr(precision, "bfloat16_speedup")
    assert choose_precision(WIDE, 512, jit=True, say=lambda line: None) == "float32"
    small = BERTConfig.preset("tiny", num_hiddens=64, vocab_size=100)
    assert choose_precision(small, 512, say=lambda line: None) == "float32"


@pytest.mark.long
def test_a_run_keeps_the_precision_that_was_measured(text, options, tmp_path, monkeypatch):
    measured = {"bert_config": WIDE, "steps": 1, "evaluate_every": 1, "precision": "auto"}
    monkeypatch.setattr(precision, "bfloat16_speedup", lambda *sizes: 2.0)
    result = pretrain(text, tmp_path / "run", **options | measured)
    assert result.model.dtype_policy.name == "mixed_bfloat16"
    assert yaml.safe_load((tmp_path / "run/run.yaml").read_text())["precision"] == "mixed_bfloat16"
    monkeypatch.setattr(precision, "bfloat16_speedup", lambda *sizes: 0.5)
    resumed = pretrain(text, tmp_path / "run", resume=True, **options | measured)
    assert resumed.model.dtype_policy.name == "mixed_bfloat16"
    with pytest.raises(ValueError, match="precision='mixed_bfloat16' and resumes with its own"):
        pretrain(text, tmp_path / "run", resume=True, precision="float32")
