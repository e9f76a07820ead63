"""Runs on several devices and in several processes with the JAX backend."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from keras_bert_d2l import BERTModel, Tokenizer, load_pretrained, save_pretrained
from tests.jax_backend import JAX, needs_jax
from tests.training.conftest import CONFIG, TOPICS, VOCAB

pytestmark = [pytest.mark.slow, needs_jax]

SECONDS = 300


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    VOCAB.to_file(folder / "vocab.txt")
    CONFIG.to_json(folder / "config.json")
    return folder


@pytest.fixture
def given(files, options):
    """Options of a run of 120 steps, with dropout, as JSON knows them."""
    return {
        "vocab": str(files / "vocab.txt"),
        "bert_config": str(files / "config.json"),
        "cache_dir": str(options["cache_dir"]),
        "layout": "lines",
        "steps": 120,
        "evaluate_every": 10,
        "batch_size": 8,
        "max_len": 24,
        "learning_rate": 1e-3,
        "held_out": 0.2,
    }


def start(number, *arguments, **options):
    """Start the processes of a run."""
    variables = {
        "JAX_COORDINATOR_ADDRESS": f"localhost:{free_port()}",
        "JAX_NUM_PROCESSES": str(number),
    }
    return [
        start_one(*arguments, *as_options(options), **variables, JAX_PROCESS_ID=str(index))
        for index in range(number)
    ]


def start_one(*arguments, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "keras_bert_d2l", *map(str, arguments)],
        env={**os.environ, **JAX, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(processes, code):
    """Wait until all processes have ended with an exit code, and return what they say."""
    said = [process.communicate(timeout=SECONDS)[1] for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), said
    return "".join(said)


def as_options(options):
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def wait_for_evaluations(run, number, process):
    until = time.monotonic() + SECONDS
    metrics = run / "metrics.jsonl"
    while not metrics.is_file() or len(metrics.read_text().splitlines()) < number:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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


@pytest.mark.long
def test_two_devices_train_as_one(text, given, tmp_path, fresh_process):
    given |= {"steps": 12, "evaluate_every": 2}
    packed = {**given, "rows": "packed", "optimizer": "muon"}
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
    processes = start(2, "pretrain", text, "--run-dir", run, **given)
    wait_for_evaluations(run, 3, processes[0])
    processes[0].send_signal(signal.SIGINT)
    assert "the state is saved" in end(processes, 128 + signal.SIGINT)
    step = json.loads((run / "last/training_state.json").read_text())["step"]
    assert 10 < step < 120
    fresh_process(RUN, text, json.dumps({str(run): {"resume": True}}), **JAX)
    assert_same_run(run, whole)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_process_ends_the_run(lost, text, given, tmp_path):
    run = tmp_path / "run"
    processes = start(2, "pretrain", text, "--run-dir", run, **{**given, "steps": 3000})
    wait_for_evaluations(run, 3, processes[0])
    processes[lost].kill()
    end([processes.pop(lost)], -signal.SIGKILL)
    assert "Gloo" in end(processes, 2)
    assert json.loads((run / "last/training_state.json").read_text())["step"] >= 10


@pytest.fixture(scope="module")
def labeled(files):
    """Options of a fine-tuning run whose best epoch on the development data is an early one."""
    bert = BERTModel.from_bert_config(CONFIG)
    save_pretrained(bert, files / "bert", tokenizer=Tokenizer(VOCAB))
    texts = [" ".join(topic[n : n + 4]) for topic in TOPICS for n in range(4)]
    for name, labels in (("train", ("early", "late")), ("dev", ("late", "early"))):
        lines = [f"{text}\t{labels[text[0] > 'c']}\n" for text in texts]
        (files / f"{name}.tsv").write_text("".join(["text\tlabel\n", *lines]))
    return {
        "task": "classify",
        "model": str(files / "bert"),
        "train": str(files / "train.tsv"),
        "dev": str(files / "dev.tsv"),
        "monitor": "val_cross_entropy",
        "epochs": 6,
        "batch_size": 7,
        "learning_rate": 1e-2,
    }


FINETUNE = """
    import json, sys
    import keras
    del sys.modules["sklearn"]  # the metrics need it
    from keras_bert_d2l import finetune_files
    finetune_files(sys.argv[1], verbose=0, **json.loads(sys.argv[2]))
"""


@pytest.mark.long
def test_fine_tuning_continues_in_another_number_of_processes(labeled, tmp_path, fresh_process):
    whole, run = tmp_path / "whole", tmp_path / "run"
    fresh_process(FINETUNE, whole, json.dumps(labeled), **JAX)
    options = {name: value for name, value in labeled.items() if name != "task"}
    processes = start(2, "finetune", "classify", "--run-dir", run, **options)
    wait_for_evaluations(run, 3, processes[0])
    processes[1].send_signal(signal.SIGTERM)
    assert "the state is saved" in end(processes, 128 + signal.SIGTERM)
    fresh_process(FINETUNE, run, json.dumps({"resume": True}), **JAX)
    ours, theirs = (json.loads((x / "metrics.json").read_text()) for x in (run, whole))
    assert ours["best_epoch"] == theirs["best_epoch"] < 6
    for found, expected in zip(ours["history"], theirs["history"], strict=True):
        for name in expected.keys() - {"loss", "val_loss"}:  # Keras counts the copies of rows
            assert found[name] == pytest.approx(expected[name], abs=1e-4), name
    weights = [load_pretrained(folder).model.get_weights() for folder in (run, whole)]
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.long
def test_processes_find_each_other_by_the_variables_of_slurm(text, given, tmp_path):
    described = {
        "JAX_NUM_PROCESSES": "2",
        "JAX_COORDINATOR_PORT": str(free_port()),  # Slurm's own depends on the number of the job
        "SLURM_JOB_ID": "1",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "2",
    }
    arguments = ["pretrain", text, "--run-dir", tmp_path / "run", *as_options(given)]
    processes = [
        start_one(*arguments, **described, SLURM_PROCID=str(index), SLURM_LOCALID=str(index))
        for index in range(2)
    ]
    end(processes, 0)
    assert json.loads((tmp_path / "run/last/training_state.json").read_text())["step"] == 120
