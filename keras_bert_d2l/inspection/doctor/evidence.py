"""`Evidence`: what the doctor examines, of a run or of data and a model."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.detection import open_checkpoint
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.location import is_run
from keras_bert_d2l.checkpoints.weights.transfer import load_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.inspection.doctor.weights import weights_of
from keras_bert_d2l.inspection.learning_rate.range_test import RangeTest
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.training.finetuning.data import batches_of, prepare
from keras_bert_d2l.training.finetuning.finetune_files import load_run, own_options
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.training.finetuning.trainer import Trainer as FinetuningTrainer
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.pretrain import make_trainer, with_store_options
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.training.run.verbosity import Printer
from keras_bert_d2l.training.seeding import seeded
from keras_bert_d2l.types import PathLike

Options: TypeAlias = PretrainingOptions | TaskRunOptions

_SILENT = Printer(0)
_MISSING = (OSError, ValueError)  # files that a run was made from, and that have changed since


@dataclasses.dataclass
class Evidence:
    """What is known about a training. The checks of what is `None` are skipped.

    Attributes:
        options: The options of the run.
        records: The metrics of each evaluation, as in `metrics.jsonl`.
        warning: The warning about the predictions of the best epoch.
        store: The text.
        examples: The training and the development data.
        batches: The training batches.
        model: The model, compiled if there are batches.
        before: The weights before the training.
        is_new: Whether the model has a new output layer. `None` if it has been trained.
        tested: The range test of learning rates, from the start of the run.
        may_train: Whether the model may be trained to time its steps, which are undone.
        skipped: The groups of checks that cannot run, and why.
    """

    options: Options | None = None
    records: Sequence[Mapping[str, float]] = ()
    warning: str | None = None
    store: TokenStore | None = None
    examples: tuple[TaskExamples, TaskExamples] | None = None
    batches: tf.data.Dataset | None = None
    model: BERTModel | TaskModel | None = None
    before: Mapping[str, np.ndarray] | None = None
    is_new: bool | None = None
    tested: RangeTest | None = None
    may_train: bool = True
    skipped: list[str] = dataclasses.field(default_factory=list)


def of_run(path: PathLike) -> Evidence:
    """Return the evidence of a run. Nothing is written to its folder.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: A file of the run is damaged.
    """
    run = RunFolder(path)
    if not is_run(path):
        raise FileNotFoundError(
            f"{run.name!r} is not a run of `pretrain` or `finetune`: it has no run.yaml. "
            "Pass the folder of a run, or `data` and `model`."
        )
    with contextlib.suppress(BlockingIOError):  # the run is in progress here
        run.download()
    if run.config_file.is_file():
        return _of_pretraining_run(run)
    return _of_finetuning_run(run)


def of_options(options: Options, run: RunFolder | None = None) -> Evidence:
    """Return the evidence of a run before its first step.

    Args:
        options: The options of the run.
        run: A run whose last checkpoint is the model. `None`: the model that the options describe.

    Raises:
        FileNotFoundError: The text, the data or the checkpoint is missing.
        ValueError: An option is invalid, or the data does not fit the task or the model.
    """
    options = dataclasses.replace(options, precision="float32")  # shows the true magnitudes
    unused = run or RunFolder(os.curdir)  # nothing is written
    if isinstance(options, PretrainingOptions):
        options = dataclasses.replace(options, strategy=None, tpu=None)
        checkpoint = None if run is None else run.last
        trainer = make_trainer(options.corpus, unused, options, _SILENT, checkpoint=checkpoint)
        return Evidence(
            store=trainer.store,
            batches=trainer.batches(causal=False),
            model=trainer.model,
            is_new=options.init is None,
        )
    options = dataclasses.replace(options, mine_negatives=False)  # takes long
    _, model, train, dev = load_run(options, _SILENT)
    own = own_options(options)
    data = prepare(model, train, dev, own, _SILENT)
    FinetuningTrainer(unused, own, model, data, {}, _SILENT)  # compiles the model
    return Evidence(
        examples=(train, dev),
        batches=batches_of(data.train, 0),
        model=model,
        is_new=open_checkpoint(options.model, verify=False).task is None,
    )


def _of_pretraining_run(run: RunFolder) -> Evidence:
    options = PretrainingOptions.of_run(run.options_file, {})
    try:
        evidence = of_options(options, run)
    except _MISSING as error:
        evidence = Evidence(model=load_pretrained(run.last, verbose=False).model)
        evidence.skipped.append(f"Text and batches: {error}")
    evidence.options, evidence.records, evidence.is_new = options, run.metrics(), None
    if len(evidence.records) > 1 and options.lora is None:
        evidence.before = _initial_weights(options, BERTConfig.from_json(run.config_file), evidence)
    return evidence


def _initial_weights(
    options: PretrainingOptions, config: BERTConfig, evidence: Evidence
) -> dict[str, np.ndarray] | None:
    if options.init is None:
        with seeded(options.seed):  # as at the start of the run
            return weights_of(BERTModel.from_bert_config(config))
    try:
        return weights_of(load_pretrained(options.init, tokenizer=False, verbose=False).model)
    except _MISSING as error:
        evidence.skipped.append(f"Frozen weights: {error}")
        return None


def _of_finetuning_run(run: RunFolder) -> Evidence:
    evidence = Evidence()
    if run.options_file.is_file():
        options = TaskRunOptions.of_run(run.options_file, {})
        try:
            evidence = of_options(options)
        except _MISSING as error:
            evidence.skipped.append(f"Data, batches and weights: {error}")
        evidence.options, evidence.is_new = options, None
    else:
        evidence.skipped.append("Data, batches and weights: the run was started in Python.")
    evidence.records = run.metrics()
    if run.summary_file.is_file():
        evidence.warning = read_json_object(run.summary_file).get("warning")
    if evidence.model is not None and run.best.is_dir():
        if not _freezes(options):
            evidence.before = weights_of(evidence.model)
        best = native.describe(run.best)
        load_weights(evidence.model, best.table, best.arrays)
    return evidence


def _freezes(options: TaskRunOptions) -> bool:
    return options.freeze_encoder or options.freeze_blocks is not None or options.lora is not None


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
