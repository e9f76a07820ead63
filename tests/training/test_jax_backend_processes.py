"""Runs on several devices and in several processes with the JAX backend."""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from keras_bert_d2l import load_pretrained
from tests.training.conftest import CONFIG, VOCAB

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None,
        reason='needs JAX: pip install "keras-bert-d2l[jax]", or make test-peers',
    ),
]

JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
SECONDS = 120


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    VOCAB.to_file(folder / "vocab.txt")
    CONFIG.to_json(folder / "config.json")
    return folder


@pytest.fixture
def given(files, options):
    """Options of a run of 300 steps, with dropout, as JSON knows them."""
    return {
        "vocab": str(files / "vocab.txt"),
        "bert_config": str(files / "config.json"),
        "cache_dir": str(options["cache_dir"]),
        "layout": "lines",
        "steps": 300,
        "evaluate_every": 20,
        "batch_size": 8,
        "max_len": 24,
        "learning_rate": 1e-3,
        "held_out": 0.2,
    }


def launched(processes, *arguments, **options):
    """Start a run in several processes."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = (sys.executable, "-m", "keras_bert_d2l", "launch", "--processes", processes)
    return subprocess.Popen(
        [*map(str, (*command, "pretrain", *arguments)), *given],
        env={**os.environ, **JAX},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_evaluations(run, number, launcher):
    until = time.monotonic() + SECONDS
    metrics = run / "metrics.jsonl"
    while not metrics.is_file() or len(metrics.read_text().splitlines()) < number:
        assert launcher.poll() is None, launcher.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)


def children(process):
    """Return the ids of the processes that a process has started."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def assert_same_run(run, other):
    lines = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (run, other)]
    for ours, theirs in zip(*(map(json.loads, found) for found in lines), strict=True):
        same = {name for name in theirs if not name.endswith("/s")}
        assert {k: ours[k] for k in same} == pytest.approx({k: theirs[k] for k in same}, abs=1e-5)
    records = [json.loads(line) for line in (run / "report.jsonl").read_text().splitlines()]
    assert len([line for line in records if "samples" in line]) == len(lines[0])
    weights = [load_pretrained(folder / "last").model.get_weights() for folder in (run, other)]
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


RUN = """
    import json, sys
    from keras_bert_d2l import pretrain
    for run, options in json.loads(sys.argv[2]).items():
        pretrain(sys.argv[1], run, verbose=0, **options)
"""


def test_two_devices_train_as_one(text, given, tmp_path, fresh_process):
    given |= {"steps": 20, "evaluate_every": 1}
    packed = {**given, "rows": "packed", "micro_batches": 2, "optimizer": "muon"}
    runs = {
        str(tmp_path / f"{name}-{devices}"): {**options, "devices": devices}
        for name, options in (("padded", given), ("packed", packed))
        for devices in (None, "data")
    }
    flags = "--xla_force_host_platform_device_count=2"
    fresh_process(RUN, text, json.dumps(runs), **JAX, XLA_FLAGS=flags)
    for name in ("padded", "packed"):
        assert_same_run(tmp_path / f"{name}-data", tmp_path / f"{name}-None")


def test_a_run_continues_in_another_number_of_processes(text, given, tmp_path, fresh_process):
    whole, run = tmp_path / "whole", tmp_path / "run"
    fresh_process(RUN, text, json.dumps({str(whole): given}), **JAX)
    launcher = launched(2, text, "--run-dir", run, **given)
    wait_for_evaluations(run, 3, launcher)
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 128 + signal.SIGINT, errors
    assert errors.count("the state is saved") == 1
    step = json.loads((run / "last/training_state.json").read_text())["step"]
    assert 20 < step < 300
    fresh_process(RUN, text, json.dumps({str(run): {**given, "resume": True}}), **JAX)
    assert_same_run(run, whole)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_process_ends_the_run(lost, text, given, tmp_path):
    run = tmp_path / "run"
    launcher = launched(2, text, "--run-dir", run, **{**given, "steps": 3000})
    wait_for_evaluations(run, 3, launcher)
    processes = children(launcher)
    os.kill(sorted(processes)[lost], signal.SIGKILL)
    _, errors = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 2
    assert errors.count("error: ") == 1
    assert "--resume" in errors
    assert json.loads((run / "last/training_state.json").read_text())["step"] >= 20
    assert not any(pathlib.Path(f"/proc/{process}").exists() for process in processes)


def test_only_pretrain_runs_in_several_processes():
    command = [sys.executable, "-m", "keras_bert_d2l", "launch", "finetune"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Received: 'finetune'" in result.stderr
