"""Fine-tuning from files: a checkpoint and the data of a task in, the folder of a run out."""

import contextlib
import dataclasses
import os
import pathlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Unpack

import keras

from keras_bert_d2l.checkpoints.formats.task_fields import describe_task, task_fields
from keras_bert_d2l.checkpoints.loading import heads_of, load_pretrained
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.splitting import check_alike, split_examples
from keras_bert_d2l.inference.evaluation.compatibility import TASK_MODELS, check_examples
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.training.callbacks import TrainingInterrupted
from keras_bert_d2l.training.finetuning.finetune import (
    CURVES,
    RESUME_HINT,
    FinetuningResult,
    check_new,
    finetune,
)
from keras_bert_d2l.training.finetuning.options import (
    FinetuningOptions,
    TaskRunArguments,
    TaskRunOptions,
)
from keras_bert_d2l.training.finetuning.state import has_state
from keras_bert_d2l.training.pretraining.run_folder import (
    BEST,
    OPTIONS_FILE,
    RunFolder,
    checkpoint_folder,
)
from keras_bert_d2l.training.seeding import seeded
from keras_bert_d2l.training.verbosity import Verbose, printer


def finetune_files(
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Unpack[TaskRunArguments],
) -> FinetuningResult:
    """Reads the data of a task and a checkpoint, and calls `finetune`.

    A checkpoint of the task goes on with its head and its labels; to a BERT a new head is added,
    for the labels of the training data. The run folder gets `run.yaml` beside what `finetune`
    writes, so that a run that was stopped goes on by its folder alone.

    Args:
        run_dir: The folder of the run, new or empty; with `resume` that of the run.
        resume: Whether to go on with the run in `run_dir`, with the options that it has.
        callbacks: Further Keras callbacks.
        verbose: As in `keras.Model.fit`.
        **options: The fields of `TaskRunOptions`, of which `task`, `model` and `train` have no
            defaults; with `resume` none is needed.

    Returns: the model and the figures.

    Raises:
        ValueError: An option is unknown, out of its range or contradicts another one, the data
            are not of the task or not of the model, or `resume` finds other options or data.
        FileExistsError: `run_dir` holds anything, but `resume` is not set.
        FileNotFoundError: The data, the checkpoint or the run is missing.
        TrainingInterrupted: A `KeyboardInterrupt`, after Ctrl-C.

    Example:

    ```python
    finetune_files("runs/reviews", task="classify", model="minilm", train="reviews.tsv")
    ```
    """
    run, say = pathlib.Path(run_dir), printer(verbose)
    if resume:
        settings = _options_of(run, dict(options))
    else:
        check_new(run)
        settings = TaskRunOptions.from_dict(options)
    train, dev = read_data(settings, say)
    model = load_model(settings, train, dev, say)
    for examples in (train, dev):
        check_examples(model, examples)
    if not resume:
        run.mkdir(parents=True, exist_ok=True)
        settings.to_yaml(run / OPTIONS_FILE)
    fields = dataclasses.fields(FinetuningOptions)
    try:
        result = finetune(
            model,
            train,
            dev,
            run,
            resume=resume and has_state(run),
            callbacks=callbacks,
            verbose=verbose,
            **{field.name: getattr(settings, field.name) for field in fields},
        )
    except TrainingInterrupted as error:
        how = f"keras-bert-d2l finetune --resume {shlex.quote(os.fspath(run))}"
        where = str(error).removesuffix(RESUME_HINT)
        raise TrainingInterrupted(f"{where} Go on with: {how}") from error
    epoch, monitor = result.metrics["best_epoch"], result.metrics["monitor"]
    say(
        f"Best epoch: {epoch}, {monitor.removeprefix('val_')} "
        f"{result.metrics['best'][monitor]:.4f} on the development data. The model is in "
        f"{run / BEST}, its learning curves in {run / CURVES}."
    )
    return result


def read_data(
    options: TaskRunOptions, say: Callable[[str], None]
) -> tuple[TaskExamples, TaskExamples]:
    """Returns the training and the development data of a run.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is not of the task, there is nothing to learn from it, or one file has
            pairs of texts and the other one single texts.
    """
    train = _read(options, options.train)
    if options.task in ("classify", "tag") and len(train.label_names) < 2 - options.multi_label:
        named = ", ".join(map(repr, train.label_names)) or "no label"
        raise ValueError(
            f"{train.source}: there must be two labels or more to tell apart. Received: {named} "
            f"in {how_many(len(train), 'example')}."
        )
    if options.dev is not None:
        dev = _read(options, options.dev)
        check_alike(train, dev)
        return train, dev
    train, dev = split_examples(train, options.held_out)
    say(
        f"No development data are named: {len(dev):,} of the {len(train) + len(dev):,} training "
        "examples are held out for it, chosen by a hash of their text."
    )
    return train, dev


def _read(options: TaskRunOptions, path: str) -> TaskExamples:
    return read_examples(
        options.task,
        path,
        text=options.text,
        text_b=options.text_b,
        label=options.label,
        id=options.id,
        multi_label=options.multi_label,
        separator=options.separator,
        header=options.header,
        labeled=True,
    )


def load_model(
    options: TaskRunOptions, train: TaskExamples, dev: TaskExamples, say: Callable[[str], None]
) -> TaskModel:
    """Returns the model that a run begins with.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: It is damaged, or a BERT that is not fit for the task.
    """
    with _policy(options.precision), seeded(options.seed):
        kind = TASK_MODELS[options.task]
        folder = checkpoint_folder(options.model)
        model, tokenizer, _ = load_pretrained(folder, heads=heads_of(kind))
        if not isinstance(model, TaskModel):
            fields: dict[str, Any] = {}
            if options.task in ("classify", "tag"):
                fields["labels"] = _labels(train, dev, say)
            if options.task == "classify":
                fields["multi_label"] = options.multi_label
            model = kind(model, tokenizer=tokenizer, **fields)
            say(f"A new head: {describe_task(task_fields(model) or {}):.200}")
        if options.lora is not None:
            model.enable_lora(options.lora)  # which draws numbers, too
        elif options.freeze_encoder or options.freeze_blocks is not None:
            model.freeze_encoder(options.freeze_blocks)
    return model


def _labels(train: TaskExamples, dev: TaskExamples, say: Callable[[str], None]) -> tuple[str, ...]:
    """The labels of the training data, and of tags also those of the development data.

    A tag set has rare tags, which a small file may lack; of texts a further label is a mistake.
    """
    further = sorted(set(dev.label_names) - set(train.label_names))
    if train.task != "tag" or not further:
        return train.label_names
    say(
        f"The development data have labels that the training data lack, and that cannot be "
        f"learned: {', '.join(further):.200}."
    )
    return (*train.label_names, *further)


def _options_of(run: pathlib.Path, given: dict[str, Any]) -> TaskRunOptions:
    """The options of a run, which are those that are given, where any are."""
    file = run / OPTIONS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"{os.fspath(run)!r} holds no run that could be resumed: it has no {OPTIONS_FILE}."
        )
    if RunFolder(run).holds_run():
        raise ValueError(
            f"{os.fspath(run)!r} is a run of pretraining: go on with it by `keras-bert-d2l "
            f"pretrain --resume {run}`, or fine-tune its model with --model {run} --run-dir FOLDER."
        )
    settings = TaskRunOptions.from_dict(TaskRunOptions.read_yaml(file))
    for name, value in given.items():
        if settings.normal_form(name, value) != getattr(settings, name):
            raise ValueError(
                f"The run {os.fspath(run)!r} has {name}={getattr(settings, name)!r} and goes on "
                f"with its own options. Received: {name}={value!r}; leave it out, or begin a new "
                "run in another folder."
            )
    return settings


@contextlib.contextmanager
def _policy(precision: str) -> Iterator[None]:
    """Sets the dtype policy in which models are made, and puts it back."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
