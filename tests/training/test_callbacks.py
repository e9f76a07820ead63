import json
import math
import signal
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.training.callbacks import RunLog, Throughput, interruptible
from keras_bert_d2l.training.state import Progress


@pytest.fixture
def fit():
    """Return a function that trains a small model with callbacks: three epochs of four steps."""

    def fit(*callbacks):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        data = np.ones((8, 2)), np.ones((8, 1))
        return model.fit(*data, batch_size=2, epochs=3, callbacks=list(callbacks), verbose=0)

    return fit


def test_throughput_counts_steps_and_logs_the_speed(fit):
    progress = Progress(step=10)
    history = fit(Throughput(progress, batch_size=2, max_len=5)).history
    assert progress.step == 22
    np.testing.assert_allclose(history["tokens/s"], 5 * np.array(history["sequences/s"]))
    assert min(history["sequences/s"]) > 0


def test_throughput_excludes_the_first_step(monkeypatch):
    clock = iter([0.0, 100.0, 101.0, 103.0])  # the first step takes 100 s: it builds the graph
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    throughput, logs = Throughput(Progress(), batch_size=6, max_len=2), {}
    throughput.on_epoch_begin(0)
    for batch in range(3):
        throughput.on_train_batch_end(batch, logs)
    assert logs == {"sequences/s": 4.0, "tokens/s": 8.0}
    throughput.max_len, logs = None, {}
    throughput.on_epoch_end(0, logs)
    assert logs == {"sequences/s": 4.0}


def test_throughput_removes_duplicate_losses_from_the_logs():
    throughput = Throughput(Progress(), batch_size=2, max_len=5)
    logs = {"loss": 1.0, "mlm_loss": 0.5, "val_nsp_loss": 0.5, "mlm_cross_entropy": 0.5}
    throughput.on_epoch_begin(0)
    throughput.on_epoch_end(0, logs)
    assert logs == {"loss": 1.0, "mlm_cross_entropy": 0.5}


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


def test_a_nan_loss_is_logged_as_null(tmp_path):
    log = RunLog(tmp_path, Progress())
    log.write({"loss": math.nan})
    log.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 0, "loss": None}


def test_the_first_ctrl_c_sets_the_event_and_the_second_interrupts_the_program(capfd):
    with interruptible() as event:
        signal.raise_signal(signal.SIGINT)
        assert event.is_set()
        assert "Press Ctrl-C again to stop immediately" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_ctrl_c_handler_is_restored():
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_the_ctrl_c_handler_is_unchanged_outside_the_main_thread():
    before, events = signal.getsignal(signal.SIGINT), []

    def work():
        with interruptible() as event:
            events.append((event.is_set(), signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert events == [(False, True)]
