"""The callback that saves a pretraining run."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import keras

from keras_bert_d2l.training.run.interruption import Interrupt
from keras_bert_d2l.training.run.state import restore_metrics

if TYPE_CHECKING:
    from keras_bert_d2l.training.pretraining.trainer import Trainer


class Checkpoints(keras.callbacks.Callback):
    """Callback that saves the last and best state of a run: after evaluations and on signals.

    Args:
        trainer: Writes the checkpoints and stores the lowest held-out loss so far.
        interrupt: The signal that stops the run, if there was one.

    Raises:
        TrainingInterrupted: There was a signal; the state is saved.
    """

    def __init__(self, trainer: "Trainer", interrupt: Interrupt) -> None:
        super().__init__()
        self.trainer, self.interrupt = trainer, interrupt

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        restore_metrics(self.trainer.run, self.trainer.model)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        is_last = batch == self.params["steps"] - 1  # the state is saved after the evaluation
        if self.interrupt.agreed() and not is_last:
            self.trainer.save_last(metrics=True)
            self.interrupt.check(self.trainer.interrupted())

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        # `val_loss` would be a mean over batches, although the last batch may be smaller.
        # A model without a next-sentence head only has the first of the two losses.
        logs = logs or {}
        loss = logs["val_mlm_cross_entropy"] + logs.get("val_nsp_cross_entropy", 0.0)
        progress = self.trainer.progress
        if progress.best_loss is None or loss < progress.best_loss:
            progress.best_loss, progress.best_step = float(loss), progress.step
            self.trainer.save_best()
        self.trainer.record()
        self.trainer.save_last()
        self.trainer.write_report()
        self.trainer.say_metrics()
        self.interrupt.check(self.trainer.interrupted())
