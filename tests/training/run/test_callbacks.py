import itertools
import json
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.progress import innermost_stage, showing_stages
from keras_bert_d2l.training.run.callbacks import (
    Printer,
    ProgressLine,
    RunLog,
    StopAtNonFiniteLoss,
    Throughput,
)
from keras_bert_d2l.training.run.state import Progress


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
        throughput.on_train_batch_end(batch)
    throughput.on_epoch_end(0, logs)
    assert logs == {"sequences/s": 4.0, "tokens/s": 8.0}
    throughput.max_len, logs = None, {}
    throughput.on_epoch_end(0, logs)
    assert logs == {"sequences/s": 4.0}


def test_the_log_omits_duplicate_losses(tmp_path):
    log = RunLog(tmp_path, Progress())
    log.write({"loss": 1.0, "mlm_loss": 0.5, "val_nsp_loss": 0.5, "mlm_cross_entropy": 0.5})
    log.close()
    written = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert written == {"step": 0, "loss": 1.0, "mlm_cross_entropy": 0.5}


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
        (
            NotFinite(3),
            r"the loss at step 13 is nan\. Last finite loss: \d.*learning rate: 0\.01\.",
        ),
        (NotFinite(1), "the loss at step 11 is nan. Last finite loss: none; learning rate: 0.01."),
        (NotFinite(evaluation=True), "the evaluation loss at step 14 is nan. Last finite loss: "),
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


@pytest.fixture
def lines_of(monkeypatch):
    """Return a function of `verbose` and the width of the terminal that updates and prints."""

    def updates(verbose, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("time.monotonic", itertools.count().__next__)  # a second per call
        say = Printer(verbose)
        logs = {"loss": 7.25, "mlm_accuracy": 0.125, "nsp_accuracy": 0.5}
        batches = tf.data.Dataset.range(4)
        line = ProgressLine(say, lambda: ("step 100,000/1,000,000", 900_000), batches)
        for batch in range(20):
            line.on_train_batch_end(batch, logs)
        say("done")

    return updates


LINE = r"step 100,000/1,000,000, loss 7.250, accuracy 0.125, [\d.]+ steps/s, [\d hmins]+ left"


def test_the_progress_line_fits_into_the_terminal(lines_of, capsys):
    lines_of(1, columns=100)
    *updates, last, end = capsys.readouterr().out.split("\r")
    assert len(updates) == 20
    assert all(re.fullmatch(LINE, update.rstrip()) for update in updates[1:])
    assert (last.strip(), end) == ("", "done\n")
    lines_of(1, columns=60)
    assert max(map(len, capsys.readouterr().out.split("\r"))) == 59


def test_an_evaluation_is_a_stage_that_counts_its_batches():
    states = []

    class Watch(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            work = innermost_stage()
            states.append((work.title, work.state()[0]))

    data = tf.data.Dataset.from_tensor_slices((np.ones((8, 2)), np.ones((8, 1)))).batch(2)
    line = ProgressLine(Printer(0), lambda: ("step 4/12", 8), data)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with showing_stages():
        model.evaluate(data, callbacks=[line, Watch()], verbose=0)
        assert states == [("step 4/12, evaluating", share) for share in (0.25, 0.5, 0.75, 1.0)]
        line.on_test_begin()
        line.close()  # after an error
        assert innermost_stage() is None


def test_redirected_output_gets_a_line_every_30_seconds(lines_of, capsys):
    lines_of(2, columns=60)  # which is not the width of a file
    *lines, end = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert re.fullmatch(LINE, lines[0])
    assert end == "done"
    lines_of(0, columns=60)
    assert capsys.readouterr().out == ""
