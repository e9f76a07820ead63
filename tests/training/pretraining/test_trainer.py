import math
import signal

import pytest

from keras_bert_d2l.training.pretraining.checkpoints import Checkpoints
from keras_bert_d2l.training.pretraining.progress import PretrainingProgress
from keras_bert_d2l.training.run.interruption import Interrupt, TrainingInterrupted

HELD_OUT = {"val_mlm_cross_entropy": 2.0, "val_nsp_cross_entropy": 0.5}


class Saves:
    """A stand-in for a trainer that records the calls of `save_last` and `save_best`."""

    def __init__(self):
        self.calls = []
        self.progress = PretrainingProgress()
        self.interrupt = Interrupt()
        self.callback = Checkpoints(self, self.interrupt)
        self.callback.set_params({"steps": 3})

    def do_nothing(self):
        pass

    record = write_report = say_metrics = do_nothing

    def interrupted(self):
        return "stopped"

    def save_last(self, *, metrics=False):
        self.calls.append("last with metrics" if metrics else "last")

    def save_best(self):
        self.calls.append("best")


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
    assert saves.calls == []
    saves.interrupt.signal_number = signal.SIGTERM
    with pytest.raises(TrainingInterrupted, match="stopped") as error:
        saves.callback.on_train_batch_end(1)
    assert error.value.signal_number == signal.SIGTERM
    assert saves.calls == ["last with metrics"]


def test_an_interrupt_at_the_last_step_before_an_evaluation_stops_after_it():
    saves = Saves()
    saves.interrupt.signal_number = signal.SIGTERM
    saves.callback.on_train_batch_end(2)
    assert saves.calls == []
    with pytest.raises(TrainingInterrupted):
        saves.callback.on_epoch_end(0, HELD_OUT)
    assert saves.calls == ["best", "last"]


def test_an_interrupt_during_evaluation_stops_after_the_checkpoint():
    saves = Saves()
    saves.interrupt.signal_number = signal.SIGINT
    with pytest.raises(TrainingInterrupted):
        saves.callback.on_epoch_end(0, HELD_OUT)
    assert saves.calls == ["best", "last"]
