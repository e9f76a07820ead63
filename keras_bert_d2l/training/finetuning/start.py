"""Load the data and the model of a fine-tuning run on files."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_bert_d2l.checkpoints.detection import open_checkpoint
from keras_bert_d2l.checkpoints.formats.checkpoint import describe_task, task_fields
from keras_bert_d2l.checkpoints.loading import (
    heads_of,
    load_pretrained,
    load_task,
)
from keras_bert_d2l.checkpoints.weights import with_config
from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.data.tasks.examples import TaskExamples, how_many
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.splitting import check_alike, split_examples
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.tasks.task import task_named
from keras_bert_d2l.training.devices.precision import choose_precision
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.training.seeding import seeded


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
    if (
        task_named(options.task).has_label_names
        and len(train.label_names) < 2 - options.multi_label
    ):
        named = ", ".join(map(repr, train.label_names)) or "no label"
        raise ValueError(
            f"{train.source}: training requires at least two labels. Received: {named} "
            f"in {how_many(len(train), 'example')}."
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
    return read_examples(
        options.task,
        path,
        text=options.text,
        text_b=options.text_b,
        negative=options.negative,
        choices=options.choices,
        label=options.label,
        id=options.id,
        multi_label=options.multi_label,
        separator=options.separator,
        header=options.header,
        labeled=True,
    )


def with_precision(options: TaskRunOptions, say: Callable[[str], None]) -> TaskRunOptions:
    """Return the options with the precision chosen for the checkpoint, if it is `"auto"`."""
    if options.precision != "auto":
        return options
    config = open_checkpoint(options.model, verify=False).config
    num_tokens = options.batch_size * (options.max_len or config.max_len)
    precision = choose_precision(config, num_tokens, jit=options.jit, say=say)
    return dataclasses.replace(options, precision=precision)


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
        if not isinstance(model, TaskModel):
            fields: dict[str, Any] = {**long_texts}
            fields |= task.model_fields(train, dev, options.multi_label, say)
            if options.dropout is not None:
                model = with_config(model, model.bert_config.with_dropout(options.dropout))
            if kind.pools:
                fields["pooling"] = options.pooling
            model = kind(model, **fields)
            say(f"New head: {describe_task(task_fields(model) or {}):.200}")
        elif options.dropout is not None:
            raise ValueError(
                "`dropout` requires a BERT without a task. Received: "
                f"dropout={options.dropout} and a {type(model).__name__}; omit it, or start from "
                "the BERT that it was fine-tuned from."
            )
        elif options.long_texts not in (None, model.long_texts):
            raise ValueError(
                f"`long_texts` must match the checkpoint, {model.long_texts!r}, or be omitted. "
                f"Received: long_texts={options.long_texts!r}."
            )
        elif isinstance(model, kind) and options.pooling not in (None, model.pooling):
            raise ValueError(
                f"`pooling` must match the checkpoint, {model.pooling!r}, or be omitted. Received: "
                f"pooling={options.pooling!r}."
            )
        options.add_lora(model)  # within `seeded`, because it draws random numbers
        if options.freeze_encoder or options.freeze_blocks is not None:
            check_choice(
                "freeze_blocks",
                options.freeze_blocks,
                (None, *range(model.bert_config.num_blks + 1)),
            )
            model.freeze_encoder(options.freeze_blocks)
    return model


@contextlib.contextmanager
def _policy(precision: str) -> Iterator[None]:
    """Set the dtype policy for new models, and restore it afterwards."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
