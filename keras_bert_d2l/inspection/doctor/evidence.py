"""`Evidence`: what the doctor examines, of a run or of data and a model."""

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.detection import open_checkpoint
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.location import is_run
from keras_bert_d2l.checkpoints.weights import load_weights
from keras_bert_d2l.contract.registry import task_named
from keras_bert_d2l.data.report.measures import count_ids
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.inference.evaluation import evaluate
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training.finetuning.data import batches_of, prepare
from keras_bert_d2l.training.finetuning.finetune_files import load_run
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.training.finetuning.trainer import Trainer as FinetuningTrainer
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.pretrain import make_trainer, with_store_options
from keras_bert_d2l.training.report.run import spread
from keras_bert_d2l.training.run.callbacks import Printer
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.types import PathLike

Options: TypeAlias = PretrainingOptions | TaskRunOptions

_SILENT = Printer(0)
_MISSING = (OSError, ValueError)  # files that a run was made from, and that have changed since
_COUNTED = 64  # batches whose tokens are counted
_ASKED = 100  # development examples
_ROWS = 12  # whole pairs and triplets; enough to find a gradient out of range
Metrics = Mapping[str, float]


@dataclasses.dataclass
class Evidence:
    """What is known about a training. The checks of what is `None` are skipped.

    Attributes:
        options: The options of the run.
        records: The metrics of each evaluation, as in `metrics.jsonl`.
        store: The text.
        examples: The training and the development data.
        batches: The training batches.
        model: The model, compiled if there are batches.
        first_loss: The loss before the first step.
        skipped: The groups of checks that cannot run, and why.
    """

    options: Options | None = None
    records: Sequence[Metrics] = ()
    store: TokenStore | None = None
    examples: tuple[TaskExamples, TaskExamples] | None = None
    batches: tf.data.Dataset | None = None
    model: BERTModel | TaskModel | None = None
    first_loss: float | None = None
    skipped: list[str] = dataclasses.field(default_factory=list)

    @property
    def recent(self) -> list[Metrics]:
        """The records since the row length or the objective of the steps changed last.

        The losses before and after do not compare.
        """
        last = self.records[-1] if self.records else {}
        same = itertools.takewhile(
            lambda x: _row_len(x) in (None, _row_len(last)) and _is_causal(x) == _is_causal(last),
            reversed(self.records),
        )
        return [*same][::-1]

    @property
    def training_losses(self) -> list[float]:
        """The recent training losses, each the mean of many steps."""
        return [record["loss"] for record in self.recent if "loss" in record]

    @property
    def is_early(self) -> bool:
        """Whether the held-out losses of a run say nothing yet about the last steps.

        They measure masked tokens in long rows; the steps may have short rows or next tokens.
        """
        last, options = self.records[-1] if self.records else {}, self.options
        length = _row_len(last)
        return isinstance(options, PretrainingOptions) and (
            _is_causal(last) or (length is not None and length < options.max_len)
        )

    @property
    def held_out_losses(self) -> list[float]:
        """The recent held-out MLM losses of a pretraining run."""
        records = self.recent if isinstance(self.options, PretrainingOptions) else []
        return [] if self.is_early else [record["val_mlm_cross_entropy"] for record in records]

    @functools.cached_property
    def vocab(self) -> Vocab | None:
        """The vocabulary of the text or of the model."""
        if self.store is not None:
            return self.store.tokenizer().vocab
        tokenizer = None if self.model is None else self.model.tokenizer
        return None if tokenizer is None else tokenizer.vocab

    @functools.cached_property
    def batch(self) -> tuple[dict[str, np.ndarray], Any, Any] | None:
        """The features, the labels and the weights of the first batch."""
        if self.batches is None:
            return None
        x, y, weights = keras.utils.unpack_x_y_sample_weight(next(iter(self.batches)))
        return {name: np.asarray(value) for name, value in x.items()}, y, weights

    @functools.cached_property
    def token_counts(self) -> np.ndarray | None:
        """The count of each id in the text, or in some batches of labeled data, `(V,)`.

        Special tokens other than `[UNK]` do not count.
        """
        if self.store is not None:
            return count_ids(self.store.tokens, self.store.vocab_size)
        vocab, batch = self.vocab, self.batch
        if self.batches is None or batch is None or vocab is None or "pred_positions" in batch[0]:
            return None
        counts = np.zeros(len(vocab), np.int64)
        for features, *_ in self.batches.take(_COUNTED):
            counts += np.bincount(np.ravel(features["tokens"]), minlength=len(vocab))
        counts[[vocab.pad_id, vocab.cls_id, vocab.sep_id, vocab.mask_id]] = 0
        return counts

    @functools.cached_property
    def num_answers(self) -> int | None:
        """How many different answers the best model of a run gives on some development data.

        `None` if all right answers are the same.
        """
        if self.examples is None or not self.records:
            return None
        dev = self.examples[1]
        some = dev.subset(spread(dev.in_order_of_labels(), _ASKED))
        found = evaluate(cast(TaskModel, self.model), some)
        show = task_named(some.task).prediction
        pairs = [show(some.subset([n]), one) for n, one in enumerate(found.predictions)]
        right, given = ({getattr(x, y) for x in pairs} for y in ("gold", "predicted"))
        if found.confusion is not None:  # of words, not of whole sentences
            right, given = (set(np.flatnonzero(found.confusion.counts.sum(n))) for n in (1, 0))
        return len(given) if len(right) > 1 else None

    @functools.cached_property
    def gradients(self) -> tuple[float, list[np.ndarray]] | None:
        """The loss and the gradients of all trained weights on a few rows, without dropout."""
        model = self.model
        if model is None or self.batches is None:
            return None
        batch = tf.nest.map_structure(lambda values: values[:_ROWS], next(iter(self.batches)))
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        values = [variable.value for variable in model.trainable_variables]
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = model.compute_loss(x, y, model(x, training=False), weights, training=False)
        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(loss, values, unconnected_gradients=zero)
        model.reset_metrics()
        return float(loss), [tf.convert_to_tensor(one).numpy() for one in found]


def of_run(path: PathLike) -> Evidence:
    """Return the evidence of a run. Nothing is written to its folder.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: A file of the run is damaged.
    """
    if not is_run(path):
        raise FileNotFoundError(
            f"{os.fspath(path)!r} is not a run of `pretrain` or `finetune`: it has no run.yaml. "
            "Pass the folder of a run, or `data` and `model`."
        )
    run, evidence = RunFolder.for_reading(path), Evidence()
    if run.options_file.is_file():
        kind = PretrainingOptions if run.config_file.is_file() else TaskRunOptions
        options = kind.of_run(run.options_file, {})
        weights = run.last if kind is PretrainingOptions else run.best
        if weights.is_dir():
            verify_checksums(weights)  # damage is an error, not missing evidence
        try:
            evidence = of_options(options, run)
        except _MISSING as error:
            evidence.skipped.append(f"Data, batches and weights: {error}")
        evidence.options = options
    else:
        evidence.skipped.append("Data, batches and weights: the run was started in Python.")
    evidence.records = run.metrics()
    return evidence


def of_options(options: Options, run: RunFolder | None = None) -> Evidence:
    """Return the evidence of a run before its first step.

    Args:
        options: The options of the run.
        run: A run whose weights the model gets: the last ones of `pretrain`, the best of
            `finetune`. `None`: the weights before the first step.

    Raises:
        FileNotFoundError: The text, the data or the checkpoint is missing.
        ValueError: An option is invalid, or the data does not fit the task or the model.
    """
    options = dataclasses.replace(options, precision="float32")  # shows the true magnitudes
    unused = run or RunFolder(os.curdir)  # nothing is written
    if isinstance(options, PretrainingOptions):
        options = dataclasses.replace(options, strategy=None)
        checkpoint = None if run is None else run.last
        trainer = make_trainer(options.corpus, unused, options, _SILENT, checkpoint=checkpoint)
        return Evidence(store=trainer.store, batches=trainer.batches(), model=trainer.model)
    options = dataclasses.replace(options, mine_negatives=False)  # takes long
    _, model, train, dev = load_run(options, _SILENT)
    data = prepare(model, train, dev, options, _SILENT)
    FinetuningTrainer(unused, options, model, data, _SILENT)  # compiles the model
    if run is not None and run.best.is_dir():
        best = native.describe(run.best)
        load_weights(model, best.table, best.arrays)
    batches = batches_of(data.train, 0)
    return Evidence(examples=(train, dev), batches=batches, model=model)


def options_for(
    data: PathLike, model: PathLike | None, task: str | None, dev: PathLike | None
) -> Options:
    """Return the options of a run on these files, with the defaults of all others."""
    if task is not None:
        return TaskRunOptions.from_dict({"task": task, "model": model, "train": data, "dev": dev})
    given: dict[str, Any] = {"corpus": data, "init": model}
    if model is not None:
        longest = open_checkpoint(model, verify=False).config.max_len
        given["max_len"] = min(PretrainingOptions.max_len, longest)
    return PretrainingOptions.from_dict(with_store_options(given))


def chance_of(model: BERTModel | TaskModel) -> float | None:
    """Return the loss if all classes are equally likely, or `None` for other losses."""
    of_heads = model.loss if isinstance(model.loss, Mapping) else {"": model.loss}
    are_classes = all(type(loss) is WeightedCrossEntropy for loss in of_heads.values())
    has_positions = isinstance(model, TaskModel) and len(model.outputs) > 1  # of each text's length
    if not are_classes or has_positions:
        return None
    return sum(math.log(number) for number in model.num_classes(model.max_row_len).values())


def _row_len(record: Metrics) -> int | None:
    """Return the tokens per row of the steps before an evaluation, or `None` if it is unknown."""
    return round(record["tokens/s"] / record["sequences/s"]) if "tokens/s" in record else None


def _is_causal(record: Metrics) -> bool:
    """Return whether the steps before an evaluation predicted next tokens, not masked ones."""
    return "next_token_accuracy" in record
