"""Runs on several devices and in several processes with the JAX backend."""

import json
import os
import pathlib
import re
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


def launched(processes, *arguments, command="pretrain", **options):
    """Start a run in several processes."""
    return launch("--processes", processes, command, *arguments, *as_options(options))


def launch(*arguments, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "keras_bert_d2l", "launch", *map(str, arguments)],
        env={**os.environ, **JAX, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def as_options(options):
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def wait_for_evaluations(run, number, launcher):
    until = time.monotonic() + SECONDS
    metrics = run / "metrics.jsonl"
    while not metrics.is_file() or len(metrics.read_text().splitlines()) < number:
        assert launcher.poll() is None, launcher.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.05)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def children(process):
    """Return the ids of the processes that a process has started."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def is_running(process):
    """Return whether a process exists that has not ended; its new parent may not know yet."""
    try:
        return (
            pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


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
    assert 10 < step < 120
    fresh_process(RUN, text, json.dumps({str(run): {"resume": True}}), **JAX)
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
    assert json.loads((run / "last/training_state.json").read_text())["step"] >= 10
    assert not any(pathlib.Path(f"/proc/{process}").exists() for process in processes)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_a_killed_launcher_leaves_a_saved_run_and_no_processes(text, given, tmp_path):
    run = tmp_path / "run"
    launcher = launched(2, text, "--run-dir", run, **{**given, "steps": 30_000})
    wait_for_evaluations(run, 2, launcher)
    processes = children(launcher)
    assert len(processes) == 2
    launcher.kill()
    _, errors = launcher.communicate(timeout=SECONDS)  # until the first process has ended
    assert "the state is saved" in errors
    until = time.monotonic() + SECONDS
    while any(map(is_running, processes)):
        assert time.monotonic() < until
        time.sleep(0.05)


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
        "batch_size": 8,
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
    launcher = launched(2, "classify", "--run-dir", run, command="finetune", **options)
    wait_for_evaluations(run, 3, launcher)
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 128 + signal.SIGINT, errors
    assert errors.count("the state is saved") == 1
    fresh_process(FINETUNE, run, json.dumps({"resume": True}), **JAX)
    ours, theirs = (json.loads((x / "metrics.json").read_text()) for x in (run, whole))
    assert ours["best_epoch"] == theirs["best_epoch"] < 6
    for found, expected in zip(ours["history"], theirs["history"], strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    weights = [load_pretrained(folder).model.get_weights() for folder in (run, whole)]
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["slurm", "variables"])
def test_a_signal_for_one_process_of_a_cluster_stops_all(kind, text, given, tmp_path):
    port = free_port()
    described = [
        {
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(index),
            "SLURM_LOCALID": str(index),
            "JAX_COORDINATOR_PORT": str(port),  # Slurm's own depends on the number of the job
        }
        if kind == "slurm"
        else {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": str(index),
        }
        for index in range(2)
    ]
    arguments = ["pretrain", text, "--run-dir", tmp_path / "run"]
    arguments += as_options({**given, "steps": 3000})
    processes = [launch(*arguments, **variables) for variables in described]
    wait_for_evaluations(tmp_path / "run", 2, processes[0])
    processes[1].send_signal(signal.SIGTERM)
    for process in processes:
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + signal.SIGTERM, errors
        assert "the state is saved" in errors
    step = json.loads((tmp_path / "run/last/training_state.json").read_text())["step"]
    assert 10 <= step < 3000


def environment_without_others(index):
    variables = {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": str(index)}
    variables["JAX_COORDINATOR_ADDRESS"] = f"localhost:{free_port()}"
    return {**os.environ, **JAX, **variables}


@pytest.mark.long
@pytest.mark.parametrize("index", [0, 1])
def test_a_process_without_the_others_ends_with_an_error(index):
    code = (
        "from keras_bert_d2l.cli.commands import launch\n"
        "launch._CONNECTION_SECONDS = 3\n"
        "launch.launch('pretrain', 'a.txt')\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=environment_without_others(index),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert process.returncode == 2
    assert process.stderr.count("error: ") == 1
    assert "Not all processes of the run have connected within 3 seconds" in process.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate",), "Received: 'evaluate'"),
        (("finetune", "tag", "--peek"), "--peek does not train; omit `launch`"),
        (("pretrain", "a.txt"), "`--processes` on this machine.*JAX_COORDINATOR_ADDRESS"),
    ],
)
def test_what_cannot_be_launched_is_an_error(arguments, message):
    process = launch(*arguments)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert re.search(message, errors)
