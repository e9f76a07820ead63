"""`finetune_files`: fine-tune a checkpoint on data files."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_bert_d2l.checkpoints.detection import open_checkpoint
from keras_bert_d2l.checkpoints.formats.checkpoint import describe_task, task_fields
from keras_bert_d2l.checkpoints.loading import heads_of, load_pretrained, load_task, without_head
from keras_bert_d2l.checkpoints.surgery import with_config
from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.contract.registry import check_option, task_named
from keras_bert_d2l.data.tasks.examples import TaskExamples, check_alike, how_many, split_examples
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.inference.evaluation import check_examples
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import showing_stages
from keras_bert_d2l.training.devices.computation import choose_precision, seeded
from keras_bert_d2l.training.devices.distribution import distributed, is_first, process
from keras_bert_d2l.training.finetuning.finetune import FinetuningResult, train_run
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.training.run.callbacks import Printer, Verbose
from keras_bert_d2l.training.run.run_folder import RunFolder, opened_run
from keras_bert_d2l.types import Option, PathLike


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
        run_dir: The run folder. It must be new or empty, unless
            `resume` is set.
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
    opened = opened_run(
        run, TaskRunOptions, options, resume=resume, is_complete=bool(options), say=say
    )
    with (
        opened as (run, settings, is_resumed),
        distributed(settings.devices),
        showing_stages(bool(verbose) and is_first()),
    ):
        if process()[1] > 1:
            check_option(settings.task, "devices", f"{process()[1]} processes")
        settings, model, train, dev = load_run(settings, say)
        if not is_resumed:
            settings.to_yaml(run.options_file)
            write_checksums(run.path)
        return train_run(run, model, train, dev, settings, say, is_resumed, callbacks)


def load_run(
    settings: TaskRunOptions, say: Printer
) -> tuple[TaskRunOptions, TaskModel, TaskExamples, TaskExamples]:
    """Load what a run trains.

    Returns: the options with the chosen precision, the model, and the training and development
        data.
    """
    train, dev = read_data(settings, say)
    if settings.precision == "auto":
        config = open_checkpoint(settings.model, verify=False).config
        num_tokens = settings.batch_size * (settings.max_len or config.max_len)
        precision = choose_precision(config, num_tokens, jit=settings.jit)
        settings = dataclasses.replace(settings, precision=precision)
    model = load_model(settings, train, dev, say)
    for examples in (train, dev):
        check_examples(model, examples)
    if settings.mine_negatives:
        train = task_named(settings.task).with_negatives(model, train, settings.batch_size, say)
    return settings, model, train, dev


def read_data(
    options: TaskRunOptions, say: Callable[[str], None]
) -> tuple[TaskExamples, TaskExamples]:
    """Read the training and development data of a run.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file does not fit the task, it has too few labels to learn from, or one file
            contains pairs of texts and the other single texts.
    """
    train = _read(options, options.train)
    if len(train.label_names) == 1 and not options.multi_label:
        raise ValueError(
            f"{train.source}: training requires at least two labels. Received: "
            f"{train.label_names[0]!r} in {how_many(len(train), 'example')}."
        )
    if options.dev is not None:
        dev = _read(options, options.dev)
        check_alike(train, dev)
        return train, dev
    train, dev = split_examples(train, options.held_out)
    say(
        f"No development data given: {len(dev):,} of {len(train) + len(dev):,} training examples "
        "are held out as development data, selected by a hash of their text."
    )
    return train, dev


def _read(options: TaskRunOptions, path: str) -> TaskExamples:
    columns = ("text", "text_b", "negative", "choices", "label", "id")
    names = (*columns, "multi_label", "separator", "header", "quotes")
    of_reader = {name: getattr(options, name) for name in names}
    return read_examples(options.task, path, **of_reader, labeled=True)


def load_model(
    options: TaskRunOptions, train: TaskExamples, dev: TaskExamples, say: Callable[[str], None]
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
            fields |= task.model_fields(train, dev, options.multi_label, say)
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
    if options.dropout is not None:
        raise ValueError(
            f"`dropout` requires a BERT without a task. Received: dropout={options.dropout} and a "
            f"{type(model).__name__}; omit it, or start from the BERT that it was fine-tuned from."
        )
    is_same_task = isinstance(model, task_named(options.task).model)
    for name in ("long_texts", "pooling") if is_same_task else ("long_texts",):
        given, own = getattr(options, name), getattr(model, name)
        if given not in (None, own):
            raise ValueError(
                f"`{name}` must match the checkpoint, {own!r}, or be omitted. Received: "
                f"{name}={given!r}."
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
