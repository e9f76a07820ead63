import json
import math
import signal
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.training.callbacks import (
    Checkpoints,
    Progress,
    RunLog,
    Throughput,
    TrainingInterrupted,
    interruptible,
)

HELD_OUT = {"val_mlm_cross_entropy": 2.0, "val_nsp_cross_entropy": 0.5}


@pytest.fixture
def fit():
    """A function that trains a small model for three epochs of four steps with callbacks."""

    def fit(*callbacks):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        data = np.ones((8, 2)), np.ones((8, 1))
        return model.fit(*data, batch_size=2, epochs=3, callbacks=list(callbacks), verbose=0)

    return fit


def test_throughput_counts_the_steps_and_adds_the_speed_to_the_log(fit):
    progress = Progress(step=10)
    history = fit(Throughput(progress, batch_size=2, max_len=5)).history
    assert progress.step == 22
    np.testing.assert_allclose(history["tokens/s"], 5 * np.array(history["sequences/s"]))
    assert min(history["sequences/s"]) > 0


def test_throughput_is_rows_by_time_without_the_first_step(monkeypatch):
    clock = iter([0.0, 100.0, 101.0, 103.0])  # the first step takes 100 seconds, it is built
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    throughput, logs = Throughput(Progress(), batch_size=6, max_len=2), {}
    throughput.on_epoch_begin(0)
    for batch in range(3):
        throughput.on_train_batch_end(batch, logs)
    assert logs == {"sequences/s": 4.0, "tokens/s": 8.0}
    throughput.max_len, logs = None, {}
    throughput.on_epoch_end(0, logs)
    assert logs == {"sequences/s": 4.0}


def test_throughput_takes_out_what_the_log_says_twice():
    throughput = Throughput(Progress(), batch_size=2, max_len=5)
    logs = {"loss": 1.0, "mlm_loss": 0.5, "val_nsp_loss": 0.5, "mlm_cross_entropy": 0.5}
    throughput.on_epoch_begin(0)
    throughput.on_epoch_end(0, logs)
    assert logs == {"loss": 1.0, "mlm_cross_entropy": 0.5}


def test_the_log_has_a_line_of_json_for_each_evaluation(fit, tmp_path):
    progress = Progress()
    log = RunLog(tmp_path, progress)
    history = fit(Throughput(progress, batch_size=2, max_len=5), log).history
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12]
    assert [line["loss"] for line in lines] == history["loss"]
    assert lines[0]["learning_rate"] == pytest.approx(0.01)


def test_tensorboard_gets_the_same_figures(tmp_path):
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


def test_a_loss_that_is_not_a_number_is_null_in_the_log(tmp_path):
    log = RunLog(tmp_path, Progress())
    log.write({"loss": math.nan})
    log.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 0, "loss": None}


class Saves:
    """Counts the calls of `last` and `best`."""

    def __init__(self, interrupt=None):
        self.calls = []
        self.progress = Progress()
        self.callback = Checkpoints(
            self.progress,
            lambda: self.calls.append("last"),
            lambda: self.calls.append("best"),
            interrupt or threading.Event(),
        )


def test_the_best_checkpoint_is_that_of_the_lowest_held_out_loss():
    saves = Saves()
    for mlm in (3.0, 2.0, 2.5, math.nan, 2.0, 1.0):
        saves.callback.on_epoch_end(0, {**HELD_OUT, "val_mlm_cross_entropy": mlm})
    assert "".join(call[0] for call in saves.calls) == "blbllllbl"
    assert saves.progress.best_loss == 1.5


def test_an_interrupt_saves_after_the_step_and_stops():
    interrupt = threading.Event()
    saves = Saves(interrupt)
    saves.callback.on_train_batch_end(0)
    assert saves.calls == []
    interrupt.set()
    with pytest.raises(TrainingInterrupted):
        saves.callback.on_train_batch_end(1)
    assert saves.calls == ["last"]


def test_an_interrupt_during_the_evaluation_stops_after_its_checkpoint():
    interrupt = threading.Event()
    saves = Saves(interrupt)
    interrupt.set()
    with pytest.raises(TrainingInterrupted):
        saves.callback.on_epoch_end(0, HELD_OUT)
    assert saves.calls == ["best", "last"]


def test_the_first_ctrl_c_sets_the_event_and_the_second_ends_the_program(capfd):
    with interruptible() as event:
        signal.raise_signal(signal.SIGINT)
        assert event.is_set()
        assert "press Ctrl-C again to stop at once" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_as_before_afterwards():
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_of_the_main_thread_ctrl_c_is_left_alone():
    before, events = signal.getsignal(signal.SIGINT), []

    def work():
        with interruptible() as event:
            events.append((event.is_set(), signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert events == [(False, True)]
