import json
import math
import os
import pty
import signal
import threading
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.progress import Stage
from keras_bert_d2l.training.run.callbacks import (
    Progress,
    RunLog,
    StopAtNonFiniteLoss,
    Throughput,
    TrainingInterrupted,
    TrainingStage,
    interruptible,
)


@pytest.fixture
def fit():
    """Return a function that trains a small model with callbacks: three epochs of four steps."""

    def fit(*callbacks):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        data = np.ones((8, 2)), np.ones((8, 1))
        return model.fit(*data, batch_size=2, epochs=3, callbacks=list(callbacks), verbose=0)

    return fit


def test_throughput_excludes_the_first_step(monkeypatch):
    clock = iter([0.0, 100.0, 101.0, 103.0])  # the first step takes 100 s: it builds the graph
    timer = types.SimpleNamespace(perf_counter=lambda: next(clock))
    monkeypatch.setattr("keras_bert_d2l.training.run.callbacks.time", timer)
    throughput, logs = Throughput(Progress(), batch_size=6, max_len=2), {}
    throughput.on_epoch_begin(0)
    for batch in range(3):
        throughput.on_train_batch_end(batch)
    throughput.on_epoch_end(0, logs)
    assert logs == {"sequences/s": 4.0, "tokens/s": 8.0}
    throughput.max_len, logs = None, {}
    throughput.on_epoch_end(0, logs)
    assert logs == {"sequences/s": 4.0}


def test_the_log_omits_duplicate_losses_and_writes_nan_as_null(tmp_path):
    log = RunLog(tmp_path, Progress())
    log.write({"loss": math.nan, "mlm_loss": 0.5, "val_nsp_loss": 0.5, "mlm_cross_entropy": 0.5})
    log.close()
    written = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert written == {"step": 0, "loss": None, "mlm_cross_entropy": 0.5}


def test_the_log_has_a_json_line_per_evaluation(fit, tmp_path):
    progress = Progress()
    log = RunLog(tmp_path, progress)
    history = fit(Throughput(progress, batch_size=2, max_len=5), log).history
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12]
    assert [line["loss"] for line in lines] == history["loss"]
    assert lines[0]["learning_rate"] == pytest.approx(0.01)


def test_tensorboard_logs_the_same_metrics(tmp_path):
    log = RunLog(tmp_path, Progress(step=5))
    log.write({"loss": 2.5, "val_loss": 3.5})
    log.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    found = {}
    for record in tf.data.TFRecordDataset(str(events)):
        for value in tf.compat.v1.Event.FromString(record.numpy()).summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            found[value.tag] = float(tf.make_ndarray(value.tensor))
    assert found == {"train/loss": 2.5, "held_out/loss": 3.5}


class NotFinite(keras.layers.Layer):
    """Multiplies by NaN from the given training step on, or in each evaluation."""

    def __init__(self, step=math.inf, evaluation=False):
        super().__init__()
        self.step, self.evaluation = step, evaluation
        self.done = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if not training:
            return x * (math.nan if self.evaluation else 1.0)
        self.done.assign_add(1.0)
        return x * keras.ops.where(self.done < self.step, 1.0, math.nan)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (NotFinite(3), "at step 13: the loss is nan"),
        (NotFinite(evaluation=True), "at step 14: the evaluation loss is nan"),
    ],
)
def test_a_loss_that_is_not_finite_stops_the_run(layer, message):
    progress = Progress(step=10)
    model = keras.Sequential([keras.layers.Dense(1), layer])
    model.compile("sgd", "mse")
    data = np.ones((8, 2)), np.ones((8, 1))
    callbacks = [StopAtNonFiniteLoss(progress), Throughput(progress, 2, 5)]
    options = {"validation_data": data, "epochs": 2, "callbacks": callbacks, "verbose": 0}
    with pytest.raises(FloatingPointError, match=message):
        model.fit(*data, batch_size=2, **options)
    assert progress.step < 15


def test_the_stage_of_a_training_shows_position_loss_and_accuracy():
    logs = {"loss": 7.25, "mlm_accuracy": 0.125, "nsp_accuracy": 0.5}
    work = Stage("Training", 100)
    shown = TrainingStage(work, lambda: ("step 4/20", 16))
    for batch in range(4):
        shown.on_train_batch_end(batch, logs)
    assert (work.completed, work.total) == (4, 20)
    assert work.remark == "step 4/20, loss 7.250, accuracy 0.125"
    shown.on_test_begin()
    assert work.remark == "step 4/20, evaluating"


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def sighup_is_not_ignored():
    """Also under `nohup`, whose child processes ignore SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_recorded_and_announced(number, capfd):
    with interruptible() as interrupt:
        interrupt.check("none yet")
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)  # has no further effect
        with pytest.raises(TrainingInterrupted, match="stopped") as error:
            interrupt.check("stopped")
    assert error.value.signal_number == number
    name, said = "Ctrl-C" if number == signal.SIGINT else number.name, capfd.readouterr().err
    assert f"{name}: stopping after this step or evaluation." in said
    assert said.count("stopping") == 1


def test_a_second_ctrl_c_interrupts_the_program(capfd):
    with interruptible():
        signal.raise_signal(signal.SIGINT)
        assert "Press Ctrl-C again to stop immediately" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_previous_handlers_are_restored():
    before = list(map(signal.getsignal, SIGNALS))
    with interruptible():
        assert all(
            signal.getsignal(number) is not old for number, old in zip(SIGNALS, before, strict=True)
        )
    assert list(map(signal.getsignal, SIGNALS)) == before


def test_a_signal_that_the_program_ignores_remains_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under `nohup`
    try:
        with interruptible() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert interrupt.signal_number is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_unchanged_outside_the_main_thread():
    before, events = signal.getsignal(signal.SIGINT), []

    def work():
        with interruptible() as interrupt:
            same = signal.getsignal(signal.SIGINT) is before
            events.append((interrupt.signal_number, same))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert events == [(None, True)]


def test_output_after_sighup_does_not_fail_although_the_terminal_is_closed():
    terminal, side = pty.openpty()
    stdout = os.dup(1)
    os.dup2(side, 1)
    os.close(side)
    os.close(terminal)
    try:
        with interruptible() as interrupt:
            with pytest.raises(OSError, match="Input/output error"):
                os.write(1, b"an error")
            signal.raise_signal(signal.SIGHUP)
            os.write(1, b"discarded")
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    assert interrupt.signal_number == signal.SIGHUP
