"""What XLA compiles, where JAX keeps it, and which attention it computes."""

import dataclasses
import importlib.util

import keras
import pytest
import tensorflow as tf
import yaml

from keras_bert_d2l import BERTConfig, pretrain
from keras_bert_d2l.training.devices import compilation
from keras_bert_d2l.training.devices.compilation import choose_jit, report_attention


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that this machine has an Ampere GPU."""
    details = {"compute_capability": (8, 0)}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["GPU:0"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)


def test_a_step_is_compiled_on_a_gpu_and_not_on_a_cpu(monkeypatch, request):
    lines = []
    assert not choose_jit(fits=True, say=lines.append)
    assert lines == []
    request.getfixturevalue("gpu")
    assert choose_jit(fits=True, say=lines.append)
    assert not choose_jit(fits=False, say=lines.append)
    assert lines[0] == "Compile with XLA: yes, because there is a GPU"
    assert lines[1].startswith("Compile with XLA: no, because")


def test_the_log_of_jax_says_which_attention_is_computed_and_why(monkeypatch):
    lines, obstacles = [], iter([None, None, "the GPU is too old"])
    with_dropout = BERTConfig.preset("tiny", vocab_size=60)
    without = dataclasses.replace(with_dropout, attention_dropout=0.0)
    report_attention(without, "bfloat16", lines.append)  # TensorFlow
    assert lines == []
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    monkeypatch.setattr(compilation, "obstacle", lambda dtype, head_width: next(obstacles))
    for config in (without, with_dropout, without):
        report_attention(config, "bfloat16", lines.append)
    plain = "Attention: with all weights in memory, because"
    assert lines == [
        "Attention: cuDNN's flash attention",
        f"{plain} flash attention requires attention_dropout=0 instead of 0.1",
        f"{plain} the GPU is too old",
    ]


@pytest.mark.long
def test_a_run_keeps_the_choice_of_its_first_machine(text, options, tmp_path, gpu):
    given = {**options, "precision": "float32", "steps": 1, "evaluate_every": 1}
    result = pretrain(text, tmp_path / "run", **given)
    assert result.model.jit_compile
    assert yaml.safe_load((tmp_path / "run/run.yaml").read_text())["jit"] is True
    pretrain(text, tmp_path / "bucketed", rows="bucketed", **given)
    assert yaml.safe_load((tmp_path / "bucketed/run.yaml").read_text())["jit"] is False


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")
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
    variables = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path)}

    def number_of_hits(run):
        return int(fresh_process(code, text, tmp_path / run, **variables))

    before = number_of_hits("first")  # functions that were compiled twice
    kept = {file.name for file in (tmp_path / "keras_bert_d2l" / "compiled").iterdir()}
    assert any(name.startswith("jit_train_step") for name in kept)
    assert number_of_hits("second") > before


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")
def test_users_of_the_jax_backend_can_name_the_folder_of_compiled_steps(
    tmp_path, fresh_process, monkeypatch
):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    code = """
        import jax
        from keras_bert_d2l.training.devices.compilation import prepare_jax
        prepare_jax()
        print(jax.config.jax_compilation_cache_dir)
    """
    variables = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path)}
    default = tmp_path / "keras_bert_d2l" / "compiled"
    assert fresh_process(code, **variables).strip() == str(default)
    variables["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / "own")
    assert fresh_process(code, **variables).strip() == str(tmp_path / "own")
