"""The training loop of pretraining: steps, evaluations and checkpoints."""

import dataclasses
import math
import pathlib
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.replaced_tokens import ReplacedTokenDetection
from keras_bert_d2l.progress import Stage, stage
from keras_bert_d2l.training.devices import check_batch_size, gathered, is_first
from keras_bert_d2l.training.loop import TrainingLoop
from keras_bert_d2l.training.optimization.optimizers import make_schedule
from keras_bert_d2l.training.pretraining.data import MaskedWords, RunBatches, describe
from keras_bert_d2l.training.pretraining.options import PARTS, Phase, PretrainingOptions
from keras_bert_d2l.training.run.callbacks import (
    NextTokenMetrics,
    Printer,
    Progress,
    RunLog,
    StopAtNonFiniteLoss,
    Throughput,
)
from keras_bert_d2l.training.run.run_folder import RunFolder

_TIMED_STEPS = 10  # the first one traces the graph and does not count
_EVALUATION_COST = 0.5  # of a batch, compared with a training step; with saving
# With `minutes`: how many evaluations there are, and their share of the time, at most.
_MAX_EVALUATIONS, _EVALUATION_SHARE = 10, 0.1


@dataclasses.dataclass
class PretrainingProgress(Progress):
    """Progress of a pretraining run.

    Attributes:
        step: As for `Progress`.
        best_loss: Lowest held-out loss on rows of this length, or `None` before the first.
        best_step: The step of the checkpoint in `best/`, or `None` before the first.
        max_len: Tokens per row of the current phase, also of the held-out text.
        planned: With `minutes`, the number of steps and those between evaluations, once planned.
        batch_sizes: Rows per batch in each phase, which do not change with the number of devices.
    """

    best_loss: float | None = None
    best_step: int | None = None
    max_len: int | None = None
    planned: tuple[int, int] | None = None
    batch_sizes: list[int] = dataclasses.field(default_factory=list)


class Trainer(TrainingLoop[BERTModel | ReplacedTokenDetection, PretrainingProgress]):
    """Training loop that pretrains a model: phases of steps, or of the time of a budget.

    Args:
        run: The run folder.
        options: The options of the run.
        model: The compiled model, with its tokenizer. To resume a run, it must have the weights of
            `run.last`.
        store: The text as token ids.
        say: Prints messages and the progress.
        replicas: Number of devices of all processes.
    """

    command = "pretrain"

    def __init__(
        self,
        run: RunFolder,
        options: PretrainingOptions,
        model: BERTModel | ReplacedTokenDetection,
        store: TokenStore,
        say: Printer,
        replicas: int,
    ) -> None:
        super().__init__(run, model, PretrainingProgress(), say)
        self.store, self.replicas = store, replicas
        other = next((name for name in ("nsp", "rtd") if getattr(self.result, name)), None)
        self._heads = ("mlm",) if other is None else ("mlm", other)
        objective = options.objective or ("none" if other is None else "nsp")
        self._batches = RunBatches(options, store, model.tokenizer, objective, replicas)
        self._phases = self._batches.phases
        self.options = options = dataclasses.replace(options, rows=self._batches.rows)
        self._masked_words = MaskedWords(store, model.tokenizer.vocab, options)

    def create(self) -> None:
        """Create the run folder before the first step.

        Raises:
            ValueError: The text is too short for one batch.
        """
        # The largest batches of each length fail before anything is written.
        by_size = sorted(self._phases, key=lambda phase: phase.batch_size)
        for phase in {phase.max_len: phase for phase in by_size}.values():
            self._batches.training(phase)
        self.options.to_yaml(self.run.options_file)
        self.model.bert_config.to_json(self.run.config_file)
        vocab = self.model.tokenizer.vocab
        vocab.to_file(self.run.path / vocab.file_name)
        write_checksums(self.run.path)
        self.progress.batch_sizes = [phase.batch_size for phase in self._phases]
        self.save()

    def restore(self) -> None:
        super().restore()
        pairs = zip(self._phases, self.progress.batch_sizes, strict=True)
        self._phases = [phase._replace(batch_size=size) for phase, size in pairs]
        for phase in self._phases:
            check_batch_size(phase.batch_size, self.replicas)

    def train(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        """Train the remaining steps.

        Raises:
            FloatingPointError: The loss is not finite; the last checkpoints are unchanged.
            TrainingInterrupted: There was a signal to stop; the state is saved.
        """
        self._start = time.monotonic()
        if self.progress.planned is not None:
            self._use_plan(*self.progress.planned)
        self.train_interruptibly(callbacks)
        self._say_what_next()

    def train_rest(self, callbacks: Sequence[keras.callbacks.Callback], log: RunLog) -> None:
        self._say_header()
        step = self.progress.step
        self.recorder.add_start(step, describe(self.model, self.store))
        if not self.run.metrics():
            held_out = self._batches.held_out(self._phases[0])
            with stage("Evaluating the initial weights"):
                metrics = self.model.evaluate(held_out, verbose=0, return_dict=True)
            log.write({f"val_{name}": value for name, value in metrics.items()})
            self.record(self._observe)
            self.recorder.write(step)
        else:  # create the metric variables; `Saving` restores their values
            phase = next(one for one in self._phases if step < one.end)
            self.model.evaluate(self._batches.held_out(phase).take(1), verbose=0)
        self.say_metrics()
        self.check_interrupt()
        if self.options.minutes is not None:
            self._plan(self.options.minutes)
        with stage("Training", self.position()[1]) as work:
            for phase in self._phases:
                # A phase may be completed before the run was resumed; a callback may end the run.
                if self.progress.step < phase.end and not self.model.stop_training:
                    self._fit(phase, callbacks, log, work)

    def _fit(
        self, phase: Phase, callbacks: Sequence[keras.callbacks.Callback], log: RunLog, work: Stage
    ) -> None:
        if self.progress.max_len not in (None, phase.max_len):
            self.say(f"Rows of {phase.max_len} tokens from here on, also in the held-out text")
            self.progress.best_loss = None  # losses on rows of another length do not compare
        self.progress.max_len = phase.max_len
        held_out = self._batches.held_out(phase)
        length = None if self.options.rows == "bucketed" else phase.max_len
        further = [NextTokenMetrics(), log] if phase.causal else [log]
        every = self.all_callbacks(callbacks, work, phase.batch_size, length, *further)
        interval_steps = self.options.steps_between_evaluations
        for interval, count in intervals(self.progress.step, phase.end, interval_steps):
            if self.model.stop_training:  # a callback has ended the run
                return
            done = len(self.run.metrics()) - 1
            epochs = {"initial_epoch": done, "epochs": done + count}
            self._fit_steps(phase, interval, every, validation_data=held_out, **epochs)
        # A graph for the shapes of several phases may sum in another order than one for the next
        # phase alone, which a resumed run would have.
        self.model.train_function = self.model.test_function = None

    def _fit_steps(
        self,
        phase: Phase,
        num_steps: int,
        callbacks: list[keras.callbacks.Callback],
        **options: Any,
    ) -> dict[str, list[float]]:
        history = self.model.fit(
            self._batches.training(phase, self.progress.step),
            steps_per_epoch=num_steps,
            shuffle=False,  # the dataset is already shuffled
            callbacks=callbacks,
            verbose=0,
            **options,
        )
        return history.history

    def is_over(self) -> bool:
        return self.options.minutes is None and self.progress.step >= self.options.total_steps

    def _plan(self, minutes: float) -> None:
        """Train the first steps, plan the others, and report what the time buys.

        Raises:
            TrainingInterrupted: There was a signal to stop. A resumed run starts with these steps.
        """
        phase, options = self._phases[0], self.options
        throughput = Throughput(self.progress, phase.batch_size, phase.max_len)
        check = StopAtNonFiniteLoss(self.progress)
        history = self._fit_steps(phase, _TIMED_STEPS, [check, throughput])
        if self.interrupt.agreed():
            self.progress.step = 0  # as in the saved state
            self.check_interrupt()
        speed = float(gathered(history["sequences/s"][0]).min()) / phase.batch_size  # steps/s
        seconds = float(gathered(time.monotonic() - self._start).max())
        left = max(0.0, (60 * minutes - seconds) * speed)  # in steps
        held_out = int(self._batches.held_out(phase).cardinality()) / options.micro_batches
        evaluation = _EVALUATION_COST * held_out  # in steps
        evaluations = min(max(1, int(_EVALUATION_SHARE * left / evaluation)), _MAX_EVALUATIONS)
        steps = _TIMED_STEPS + max(1, int(left - evaluations * evaluation))
        num_tokens = steps * phase.batch_size * phase.max_len
        epochs = num_tokens / self.store.num_tokens / (1 - options.held_out)
        self.say(
            f"Budget: {minutes:g} minutes are about {steps:,} steps ({speed:.1f} per "
            f"second), {float(f'{num_tokens:.2g}'):,.0f} tokens and {epochs:.1f} epochs"
        )
        self.progress.planned = steps, math.ceil(steps / evaluations)
        self._use_plan(*self.progress.planned)

    def _use_plan(self, steps: int, evaluate_every: int) -> None:
        """Divide this number of steps as the budget was divided."""
        self.options = options = dataclasses.replace(
            self.options, minutes=None, steps=steps, evaluate_every=evaluate_every
        )
        self._phases = [
            phase._replace(start=phase.start * steps // PARTS, end=phase.end * steps // PARTS)
            for phase in self._phases
        ]
        optimizer: Any = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        optimizer._learning_rate = make_schedule(options, *options.schedule_steps)
        self.model.train_function = None  # it contains the schedule

    def position(self) -> tuple[str, int]:
        step, steps = self.progress.step, self.options.total_steps
        if self.options.minutes is not None:  # no steps are planned yet
            return f"step {step:,}", 0
        return f"step {step:,}/{steps:,}", steps - step

    @property
    def result(self) -> BERTModel:
        """The model without its generator."""
        return self.model if isinstance(self.model, BERTModel) else self.model.trained()

    def save_model(self, folder: pathlib.Path) -> None:
        save_pretrained(self.result, folder)

    def keep_best(self) -> None:
        super().keep_best()
        if isinstance(self.model, ReplacedTokenDetection) and is_first():
            save_pretrained(self.model.generator, self.run.path / "generator")

    def variables(self) -> Sequence[keras.Variable]:
        """Return what the checkpoint in `last/` lacks: the dropout seeds.

        With LoRA, they are all variables, because a checkpoint has the updates merged in. So are
        they with a generator, which it lacks.
        """
        if self.model.has_lora or isinstance(self.model, ReplacedTokenDetection):
            return super().variables()
        variables: Sequence[keras.Variable] = self.model.non_trainable_variables
        return variables

    def after_epoch(self, logs: Mapping[str, float]) -> None:
        # `val_loss` would be a mean over batches, although the last batch may be smaller.
        # A model without a next-sentence head only has the first of the two losses.
        loss = logs["val_mlm_cross_entropy"] + logs.get("val_nsp_cross_entropy", 0.0)
        progress = self.progress
        # What the model has to detect becomes harder as the generator learns: the last one counts.
        is_last = "rtd" in self._heads
        if is_last or progress.best_loss is None or loss < progress.best_loss:
            progress.best_loss, progress.best_step = float(loss), progress.step
            self.keep_best()
        self.end_evaluation(self._observe)
        self.say_metrics()
        self.check_interrupt()

    def _observe(self) -> dict[str, object]:
        return {"samples": self._masked_words.predict(self.model)}

    def settings(self) -> dict[str, object]:
        return {"text": self.store.fingerprint}

    def _say_header(self) -> None:
        self.say(f"Rows: {self.options.rows}, {self._phases[-1].batch_size} per step")
        heads = "".join(f"{head.upper() + ' loss':>10}{'accuracy':>10}" for head in self._heads)
        self.say("            training  held-out text")
        self.say(f"{'step':>12}{'loss':>8}{heads}{'tokens/s':>10}")

    def say_metrics(self) -> None:
        """Print a row of the table with the metrics of the last evaluation."""
        metrics = self.run.metrics()[-1]
        names = [
            f"val_{head}_{name}" for head in self._heads for name in ("cross_entropy", "accuracy")
        ]
        loss = f"{metrics['loss']:.3f}" if "loss" in metrics else ""
        speed = f"{metrics['tokens/s']:,.0f}" if "tokens/s" in metrics else ""
        columns = "".join(f"{metrics[name]:>10.3f}" for name in names)
        self.say(f"{metrics['step']:>12,}{loss:>8}{columns}{speed:>10}")

    def _say_what_next(self) -> None:
        run, best = shlex.quote(self.run.name), self.run.best
        text = shlex.quote(f"a {self.model.tokenizer.vocab.special_tokens[-1]} in your text")
        run += "/generator" if "rtd" in self._heads else ""  # which has an MLM head
        self.say(
            f"The best checkpoint is in {best}.\n"
            f"Curves and predictions: {self.run.report}\n"
            "To try the model, or to fine-tune it:\n"
            f"  keras-bert-d2l fill-mask {text} --model {run}\n"
            f"  keras-bert-d2l finetune --help"
        )


def intervals(step: int, steps: int, every: int) -> Iterator[tuple[int, int]]:
    """Divide the remaining steps at the multiples of `every`.

    Args:
        step: Number of completed steps.
        steps: Total number of steps.
        every: Steps between evaluations.

    Yields: the length of an interval, and the number of consecutive intervals of this length.
    """
    to_next = min(-step % every, steps - step)
    left = steps - step - to_next
    for length, count in ((to_next, 1), (every, left // every), (left % every, 1)):
        if length and count:
            yield length, count
