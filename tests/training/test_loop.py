"""When a run saves its training state, and what the state holds."""

import math
import signal
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, WarmupLinearDecay
from keras_bert_d2l.training import loop
from keras_bert_d2l.training.loop import Saving, TrainingLoop, compile_for_run
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.trainer import PretrainingProgress, Trainer
from keras_bert_d2l.training.run.callbacks import Interrupt, Progress, TrainingInterrupted
from keras_bert_d2l.training.run.run_folder import RunFolder

HELD_OUT = {"val_mlm_cross_entropy": 2.0, "val_nsp_cross_entropy": 0.5}


class Saves:
    """A stand-in for the loop of `pretrain` that records what it saves."""

    command, _observe, _heads = "pretrain", None, ("mlm", "nsp")
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


CONFIG = BERTConfig(20, 8, 12, num_heads=2, num_blks=1, dropout=0.1, max_len=8)


def trained(options, steps, seed=0):
    """Return a compiled model after some steps."""
    keras.utils.set_random_seed(seed)
    model = BERTModel.from_bert_config(CONFIG, dtype=options.precision)
    options.add_lora(model)
    compile_for_run(model, options, WarmupLinearDecay(1e-3, 1, 10), run_eagerly=True)
    tokens = np.random.default_rng(0).integers(0, 20, (2, 6), "int32")
    positions = np.array([[1, 2]] * 2)
    features = {"tokens": tokens, "segments": 0 * tokens, "pred_positions": positions}
    for _ in range(steps):
        model.train_on_batch(features, {"mlm": tokens[:, 1:3], "nsp": tokens[:, 0] % 2})
    return model


def state(model):
    return [keras.ops.convert_to_numpy(x) for x in (*model.variables, *model.optimizer.variables)]


class Stateful(TrainingLoop):
    """A loop that only saves and restores its state."""

    is_over = position = train_rest = None

    def settings(self):
        return {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"optimizer": "adamw", "precision": "mixed_float16"},
        pytest.param({"optimizer": "muon", "precision": "mixed_bfloat16"}, marks=pytest.mark.long),
        {"optimizer": "adamw", "precision": "float32", "lora": 2, "init": "a"},
    ],
)
def test_all_variables_are_restored_bit_for_bit(given, tmp_path):
    options = PretrainingOptions(corpus="a", **given)
    model, other = trained(options, steps=1), trained(options, steps=0, seed=1)
    saved = state(model)
    assert any((a != b).any() for a, b in zip(saved, state(other), strict=True))
    Stateful(RunFolder(tmp_path), model, Progress(step=1), print).save()
    restored = Stateful(RunFolder(tmp_path), other, Progress(), print)
    restored.restore()
    assert restored.progress.step == 1
    for expected, found in zip(saved, state(other), strict=True):
        np.testing.assert_array_equal(found, expected)
