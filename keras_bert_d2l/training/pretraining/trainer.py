"""A run in progress: a model and a token store in, steps, evaluations and checkpoints out."""

import contextlib
import math
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.store.building import TokenStore
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.callbacks import (
    Checkpoints,
    Progress,
    RunLog,
    Throughput,
    TrainingInterrupted,
    interruptible,
)
from keras_bert_d2l.training.pretraining.options import Phase, PretrainingOptions
from keras_bert_d2l.training.pretraining.run_folder import RunFolder

_EVALUATED_ROWS = 4096  # of the held-out text, at most: evaluation stays short on a large corpus


class Trainer:
    """Trains a compiled model in the folder of a run.

    Args:
        run: The folder.
        options: What to do.
        model: The compiled model; for a run to be resumed with the weights of `run.last`.
        tokenizer: Its tokenizer.
        store: The text as token ids.
        say: Called with a line about what was done.
    """

    def __init__(
        self,
        run: RunFolder,
        options: PretrainingOptions,
        model: BERTModel,
        tokenizer: Tokenizer,
        store: TokenStore,
        say: Callable[[str], None],
    ) -> None:
        self.run = run
        self.options = options
        self.model = model
        self.tokenizer = tokenizer
        self.store = store
        self.say = say
        self.progress = Progress()
        self._heads = ("mlm",) if model.nsp is None else ("mlm", "nsp")
        self._objective = options.objective or ("none" if model.nsp is None else "nsp")
        self._phases = options.phases()
        self._held_out = self._data(self._phases[-1], split="held_out", drop_remainder=False).take(
            math.ceil(_EVALUATED_ROWS / options.batch_size)
        )

    def create(self) -> None:
        """Writes the run folder as it is before the first step."""
        self.run.create(self.model, self.tokenizer)
        self._save_last()
        self.run.write_options(self.options)

    def restore(self) -> None:
        """Takes the state of training from the run folder."""
        self.run.restore(self.model, self.progress, self.store.fingerprint)

    def train(self, callbacks: Sequence[keras.callbacks.Callback], verbose: int) -> None:
        """Does the steps that are left.

        Raises:
            TrainingInterrupted: After Ctrl-C; the state is saved.
        """
        if self.progress.step >= self.options.steps:
            path = os.fspath(self.run.path)
            self.say(f"The run {path!r} is finished: {self.options.steps:,} steps.")
            return
        with (
            contextlib.closing(RunLog(self.run.path, self.progress)) as log,
            interruptible() as interrupt,
        ):
            if not self.run.metrics():
                figures = self.model.evaluate(self._held_out, verbose=0, return_dict=True)
                log.write({f"val_{name}": value for name, value in figures.items()})
            self._say_held_out()
            checkpoints = Checkpoints(self.progress, self._save_last, self._save_best, interrupt)
            try:
                for phase in self._phases:
                    if self.progress.step >= phase.end:  # the run is being resumed
                        continue
                    length = None if self.options.rows == "bucketed" else phase.max_len
                    throughput = Throughput(self.progress, phase.batch_size, length)
                    self._fit(phase, [throughput, log, checkpoints, *callbacks], verbose)
            except TrainingInterrupted as error:
                raise TrainingInterrupted(self._how_to_go_on()) from error
        self._say_held_out()

    def _fit(self, phase: Phase, callbacks: list[keras.callbacks.Callback], verbose: int) -> None:
        every = self.options.evaluate_every or self.options.steps
        for length, count in intervals(self.progress.step, phase.end, every):
            if self.model.stop_training:  # a callback has seen enough
                return
            done, first_step = self.progress.step // every, self.progress.step - phase.start
            self.model.fit(
                self._data(phase, split="train", epochs=None, first_step=first_step),
                steps_per_epoch=length,
                initial_epoch=done,
                epochs=done + count,
                validation_data=self._held_out,
                shuffle=False,  # the data set has done it
                callbacks=callbacks,
                verbose=verbose,
            )

    def _data(self, phase: Phase, **arguments: Any) -> tf.data.Dataset:
        return pretraining_dataset(
            self.store,
            self.tokenizer,
            batch_size=phase.batch_size,
            max_len=phase.max_len,
            seed=self.options.seed,
            held_out=self.options.held_out,
            objective=self._objective,
            masking=self.options.masking,
            rows=self.options.rows,
            short_seq_prob=self.options.short_seq_prob,
            **arguments,
        )

    def _save_last(self) -> None:
        self.run.save_last(self.model, self.tokenizer, self.progress, self.store.fingerprint)

    def _save_best(self) -> None:
        self.run.save_best(self.model, self.tokenizer)

    def _say_held_out(self) -> None:
        figures = self.run.metrics()[-1]
        when = f"after step {figures['step']:,}" if figures["step"] else "before training"
        losses = [
            f"{head.upper()} loss {figures[f'val_{head}_cross_entropy']:.3f}, accuracy "
            f"{figures[f'val_{head}_accuracy']:.3f}"
            for head in self._heads
        ]
        self.say(f"Held out {when}: {'; '.join(losses)}")

    def _how_to_go_on(self) -> str:
        return (
            f"Stopped after step {self.progress.step:,} of {self.options.steps:,}, and saved. "
            f"Go on with: keras-bert-d2l pretrain --resume {shlex.quote(os.fspath(self.run.path))}"
        )


def intervals(step: int, steps: int, every: int) -> Iterator[tuple[int, int]]:
    """Cuts the steps that are left at the multiples of `every`.

    Args:
        step: Steps done.
        steps: Steps to get to.
        every: Steps from one evaluation to the next.

    Yields: the length of an interval, and how many of this length follow each other.
    """
    to_next = min(-step % every, steps - step)
    left = steps - step - to_next
    for length, count in ((to_next, 1), (every, left // every), (left % every, 1)):
        if length and count:
            yield length, count
