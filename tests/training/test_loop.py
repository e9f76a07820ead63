import math
import signal
from types import SimpleNamespace

import pytest

from keras_bert_d2l.training import loop
from keras_bert_d2l.training.loop import Saving, TrainingLoop
from keras_bert_d2l.training.pretraining.trainer import PretrainingProgress, Trainer
from keras_bert_d2l.training.run.interruption import Interrupt, TrainingInterrupted

HELD_OUT = {"val_mlm_cross_entropy": 2.0, "val_nsp_cross_entropy": 0.5}


class Saves:
    """A stand-in for the loop of `pretrain` that records what it saves."""

    command, _observe = "pretrain", None
    run = SimpleNamespace(how_to_resume=str)
    after_epoch, check_interrupt = Trainer.after_epoch, TrainingLoop.check_interrupt

    def __init__(self):
        self.calls = []
        self.progress = PretrainingProgress()
        self.interrupt = Interrupt()
        self.callback = Saving(self, self.interrupt)
        self.callback.set_params({"steps": 3})
        self.callback._saved_at = math.inf

    def after_step(self, logs, *, is_last):
        self.calls.append("step")

    def say_metrics(self):
        pass

    def position(self):
        return "step 1/3", 2

    def save(self, *, metrics=False):
        self.calls.append("last with metrics" if metrics else "last")

    def keep_best(self):
        self.calls.append("best")

    def end_evaluation(self, observe):
        self.save()


def test_the_best_checkpoint_is_saved_at_the_lowest_held_out_loss():
    saves = Saves()
    for step, mlm in enumerate((3.0, 2.0, 2.5, math.nan, 2.0, 1.0)):
        saves.progress.step = step
        saves.callback.on_epoch_end(0, {**HELD_OUT, "val_mlm_cross_entropy": mlm})
    assert "".join(call[0] for call in saves.calls) == "blbllllbl"
    assert (saves.progress.best_loss, saves.progress.best_step) == (1.5, 5)


def test_an_interrupt_saves_and_stops_after_the_step():
    saves = Saves()
    saves.callback.on_train_batch_end(0)
    assert saves.calls == ["step"]
    saves.interrupt.signal_number = signal.SIGTERM
    with pytest.raises(TrainingInterrupted, match="Stopped at step 1/3; .* pretrain") as error:
        saves.callback.on_train_batch_end(1)
    assert error.value.signal_number == signal.SIGTERM
    assert saves.calls == ["step", "step", "last with metrics"]


def test_a_long_interval_is_saved_in_between(monkeypatch):
    saves = Saves()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    saves.callback._saved_at = 600.0
    for step in range(3):
        saves.callback.on_train_batch_end(step)
    assert saves.calls == ["step", "last with metrics", "step", "step"]
    assert saves.callback._saved_at == 1000.0


def test_an_interrupt_at_the_last_step_before_an_evaluation_stops_after_it():
    saves = Saves()
    saves.interrupt.signal_number = signal.SIGTERM
    saves.callback.on_train_batch_end(2)
    assert saves.calls == ["step"]
    with pytest.raises(TrainingInterrupted):
        saves.callback.on_epoch_end(0, HELD_OUT)
    assert saves.calls == ["step", "best", "last"]
