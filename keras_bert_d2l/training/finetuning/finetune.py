"""`finetune` and `finetune_files`: train a task model and keep the best epoch."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras

from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checkpoints.detection import open_checkpoint
from keras_bert_d2l.checkpoints.formats.checkpoint import describe_task, task_fields
from keras_bert_d2l.checkpoints.loading import heads_of, load_pretrained, load_task, without_head
from keras_bert_d2l.checkpoints.surgery import with_config
from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.contract.task import check_option, embedder, task_named
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many, split_examples
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.inference.evaluation import check_examples, library
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import showing_stages
from keras_bert_d2l.training.devices import (
    choose_precision,
    distributed,
    is_first,
    prepare_jax,
    process,
    seeded,
)
from keras_bert_d2l.training.finetuning.data import Data, TaskData
from keras_bert_d2l.training.finetuning.options import OF_CRF, FinetuningOptions, TaskRunOptions
from keras_bert_d2l.training.finetuning.trainer import Trainer
from keras_bert_d2l.training.run.callbacks import Printer, Verbose
from keras_bert_d2l.training.run.run_folder import RunFolder, opened_run
from keras_bert_d2l.types import Option, PathLike, Say


class FinetuningResult(NamedTuple):
    """Result of `finetune`.

    Attributes:
        model: The model, with the weights of the best epoch.
        metrics: The content of `metrics.json`.

    Example:

    ```python
    import keras_bert_d2l as kb

    result = kb.FinetuningResult(model=None, metrics={"best_epoch": 2})
    result.metrics["best_epoch"]
    ```
    """

    model: TaskModel
    metrics: dict[str, Any]


def finetune(
    model: TaskModel,
    train: Data,
    dev: Data,
    run_dir: PathLike,
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Option,
) -> FinetuningResult:
    """Fine-tune a task model and keep the best epoch on the development data.

    The learning rate rises during the warm-up and then falls to 0, as in Devlin et al. 2019. The
    model is evaluated on the development data after each epoch. The run folder contains `best/`, a
    checkpoint for `load_pretrained`; `last/`, the complete training state; the page `report.html`;
    `metrics.json`; `metrics.jsonl` (one line per epoch); and `tensorboard/`.

    Ctrl-C, SIGTERM and SIGHUP save the run and stop it after the current step; a second Ctrl-C
    stops it immediately. A run whose loss is not finite stops as well, and keeps its checkpoints.
    With `resume`, the run continues from there and ends with exactly the weights of an
    uninterrupted run. The state is also saved after each epoch and every five minutes, so a killed
    run resumes from the last save.

    Args:
        model: The task model, with its tokenizer.
        train: Examples, as returned by `read_examples`, or the path, pandas `DataFrame`, `Dataset`
            of Hugging Face or lists that it reads. Use `fit` for your own batches.
        dev: The development data, in any of the forms of `train`.
        run_dir: The run folder. It must be new or empty, unless `resume` is set.
        resume: Continue the run in `run_dir`, or start it if there is none yet. The model must be
            created in the same way, and the options and the data must be the same.
        callbacks: Additional Keras callbacks. Each epoch is a separate call of `fit`. A callback
            that sets `model.stop_training` ends the run; the epoch counts as finished, and
            `resume` continues with the next one. Use `patience` instead of `EarlyStopping`, which
            only counts the epochs within one call of `fit`.
        verbose: 0 for no output. Otherwise, a line per evaluation, and the progress: a bar in a
            terminal, and elsewhere a line every 30 seconds.
        **options: The fields of `FinetuningOptions`. `monitor` is the metric that selects the best
            epoch, for example `"val_f1"`. Higher is better, unless its name ends in loss, entropy
            or error; ties go to the lower `val_loss`. `None` means the default metric of the task.

    Returns: the model with the weights of the best epoch, and the metrics.

    Raises:
        ValueError: An option is unknown or out of range, the examples do not match the model's
            task and labels, the options or the data differ from those of the run to resume, or its
            files are damaged.
        FileExistsError: `run_dir` is not empty, and `resume` is not set.
        FloatingPointError: The loss is not finite.
        BlockingIOError: Another process is using the run.
        ImportError: A package of the extra `[tasks]` is not installed.
        RuntimeError: This is one of several processes.
        TrainingInterrupted: Ctrl-C, SIGTERM or SIGHUP was received. It is a `KeyboardInterrupt`.

    Example:

    ```python
    import keras_bert_d2l as kb

    train = kb.TextExamples(texts=["a good film", "a bore"] * 8, labels=["good", "bad"] * 8)
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good film bore".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = kb.SequenceClassifier(bert, train.label_names, tokenizer=tokenizer)
    kb.finetune(model, train, train, "runs/films", learning_rate=1e-3, epochs=2)
    ```
    """
    check_kind(model, TaskModel)
    options = {"batch_size": task_named(model.task).batch_size, **options}
    settings, run, say = FinetuningOptions.from_dict(options), RunFolder(run_dir), Printer(verbose)
    if process()[1] > 1:
        raise RuntimeError(
            "`finetune` of a model in memory trains in one process. Received: "
            f"{process()[1]} processes. Use `finetune_files`, or one process."
        )
    with run.locked(), showing_stages(bool(verbose)):
        is_resumed = resume and run.exists()
        if not is_resumed:
            run.check_new()
        return _train(run, model, train, dev, settings, say, is_resumed, callbacks)


def finetune_files(
    run_dir: PathLike,
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Option,
) -> FinetuningResult:
    """Fine-tune a checkpoint on data files.

    Reads the data and the checkpoint, then calls `finetune`. A checkpoint of the same task keeps
    its head and its labels. A plain BERT gets a new head for the labels of the training data. In
    addition to the files of `finetune`, the run folder contains `run.yaml` with the options, so
    that an interrupted run can resume.

    Args:
        run_dir: The run folder. It must be new or empty, unless `resume` is set.
        resume: Continue the run in `run_dir` with its own options, or start it if there is none
            yet. With all options, the same call therefore works at any time.
        callbacks: Additional Keras callbacks.
        verbose: As for `finetune`.
        **options: The fields of `TaskRunOptions`. `task`, `model` and `train` are required, except
            with `resume`.

    Returns: the model with the weights of the best epoch, and the metrics.

    Raises:
        ValueError: An option is unknown, out of range or contradicts another option, the data does
            not fit the task or the model, or the options or the data differ from those of the run
            to resume.
        FileExistsError: `run_dir` is not empty, and `resume` is not set.
        FileNotFoundError: The data, the checkpoint or the run is missing.
        FloatingPointError: The loss is not finite.
        BlockingIOError: Another process is using the run.
        RuntimeError: The Keras backend does not support `devices`.
        TrainingInterrupted: Ctrl-C, SIGTERM or SIGHUP was received. It is a `KeyboardInterrupt`.

    Example:

    ```python
    import csv

    import keras_bert_d2l as kb

    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a good film what bore".split()
    bert = kb.BERTModel(len(words), 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    kb.save_pretrained(bert, "bert", tokenizer=kb.Tokenizer(kb.Vocab(words)))
    with open("films.csv", "w", newline="") as file:
        rows = [("text", "label"), *[("a good film", "good"), ("what a bore", "bad")] * 8]
        csv.writer(file).writerows(rows)
    kb.finetune_files(
        "runs/films", task="classify", model="bert", train="films.csv", dev="films.csv", epochs=1
    )
    ```
    """
    run, say = RunFolder(run_dir), Printer(verbose if is_first() else 0)
    opened = opened_run(run, TaskRunOptions, options, resume=resume, say=say)
    with (
        opened as (run, settings, is_resumed),
        distributed(settings.devices),
        showing_stages(bool(verbose) and is_first()),
    ):
        if process()[1] > 1:
            check_option(settings.task, "devices", f"{process()[1]} processes")
        settings, model, train, dev = _load_run(settings, say)
        if not is_resumed:
            settings.to_yaml(run.options_file)
            write_checksums(run.path)
        return _train(run, model, train, dev, settings, say, is_resumed, callbacks)


def _train(
    run: RunFolder,
    model: TaskModel,
    train: Data,
    dev: Data,
    settings: FinetuningOptions,
    say: Printer,
    is_resumed: bool,
    callbacks: Sequence[keras.callbacks.Callback],
) -> FinetuningResult:
    """Start or resume a run whose folder is locked; the other arguments are as for `finetune`."""
    prepare_jax()
    trainer = Trainer(run, settings, model, TaskData(model, train, dev, settings, say), say)
    if is_resumed:
        trainer.restore()
    else:
        trainer.create()
    return FinetuningResult(model, trainer.train(callbacks))


def _load_run(
    settings: TaskRunOptions, say: Printer
) -> tuple[TaskRunOptions, TaskModel, TaskExamples, TaskExamples]:
    """Load what a run trains.

    Returns: the options with the chosen precision, the model, and the training and development
        data.

    Raises:
        FileNotFoundError: A file is missing.
        ImportError: A library that the task's metrics need is not installed.
        ValueError: A file does not fit the task, or it has too few labels to learn from.
    """
    columns = ("text", "text_b", "negative", "choices", "label", "id")
    names = (*columns, "multi_label", "separator", "header", "quotes", "label_names")
    of_reader = {name: getattr(settings, name) for name in names}
    task = settings.task
    if (needed := task_named(task).library) is not None:
        library(needed)  # before anything is read

    def read(path: str) -> TaskExamples:
        return read_examples(task, path, **of_reader, labeled=True)

    train = read(settings.train)
    if len(train.label_names) == 1 and not train.multi_label:
        raise ValueError(
            f"{train.source}: training requires at least two labels. Received: "
            f"{train.label_names[0]!r} in {how_many(len(train), 'example')}."
        )
    if settings.dev is not None:
        dev = read(settings.dev)
    else:
        train, dev = split_examples(train, settings.held_out)
        say(
            f"No development data given: {len(dev):,} of {len(train) + len(dev):,} training "
            "examples are held out as development data, selected by a hash of their text."
        )
    if settings.precision == "auto":
        config = open_checkpoint(settings.model, verify=False).config
        num_tokens = settings.batch_size * (settings.max_len or config.max_len)
        precision = choose_precision(config, num_tokens, jit=settings.jit)
        settings = dataclasses.replace(settings, precision=precision)
    model = load_model(settings, train, dev, say)
    if settings.mine_negatives:
        check_examples(model, train)
        miner: TaskModel = model
        if settings.embedder is not None:
            miner = load_task(embedder(), settings.embedder).model
        size = settings.batch_size
        train, dev = task_named(task).with_negatives(miner, train, dev, size, say)
    return settings, model, train, dev


def load_model(
    options: TaskRunOptions, train: TaskExamples, dev: TaskExamples, say: Say
) -> TaskModel:
    """Load the model that a run starts from.

    Raises:
        FileNotFoundError: The checkpoint does not exist.
        ValueError: The checkpoint is damaged or does not fit the task.
    """
    with _policy(options.precision), seeded(options.seed):
        task = task_named(options.task)
        kind = task.model
        long_texts: Any = {} if options.long_texts is None else {"long_texts": options.long_texts}
        if not kind.has_head:  # with the pooling that the folder defines
            model = load_task(kind, options.model, **long_texts).model
        else:
            model = load_pretrained(options.model, heads=heads_of(kind, options.pooling)).model
        if isinstance(model, kind) and set(train.label_names) - set(getattr(model, "labels", ())):
            model = without_head(model)  # the labels of the data are others
        if isinstance(model, TaskModel):
            _check_own_options(options, model)
        else:
            fields: dict[str, Any] = {**long_texts}
            fields |= task.model_fields(train, dev, say)
            fields |= {name: True for name in OF_CRF if getattr(options, name)}
            if options.dropout is not None:
                model = with_config(model, model.bert_config.with_dropout(options.dropout))
            if kind.pools:
                fields["pooling"] = options.pooling
            model = kind(model, **fields)
            say(f"New head: {describe_task(task_fields(model) or {}):.200}")
        options.add_lora(model)  # within `seeded`, because it draws random numbers
        if options.freeze_encoder or options.freeze_blocks is not None:
            number, shared = model.bert_config.num_blks, model.bert_config.shared_blocks
            possible = (0, number) if shared else range(number + 1)
            check_choice("freeze_blocks", options.freeze_blocks, (None, *possible))
            model.freeze_encoder(options.freeze_blocks)
    return model


def _check_own_options(options: TaskRunOptions, model: TaskModel) -> None:
    """Raise `ValueError` for options that contradict a checkpoint of a task."""
    own = {"dropout": None, "long_texts": model.long_texts}
    if isinstance(model, task_named(options.task).model):
        own["pooling"] = model.pooling
    config = model.task_config()
    own |= {name: config.get(name) for name in OF_CRF if getattr(options, name)}
    for name, value in own.items():
        if getattr(options, name) not in (None, value):
            raise ValueError(
                f"`{name}` of the fine-tuned {type(model).__name__} must stay {value!r}: omit it, "
                f"or start from a BERT without a task. Received: {name}={getattr(options, name)!r}."
            )


@contextlib.contextmanager
def _policy(precision: str) -> Iterator[None]:
    """Set the dtype policy for new models, and restore it afterwards."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
