"""Data of a fine-tuning run: batches for each epoch, evaluation scores and what is recorded."""

import dataclasses
import functools
import math
import textwrap
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, TypeAlias, cast

import tensorflow as tf

from keras_bert_d2l.checks import check_row_len
from keras_bert_d2l.contract.registry import check_option, task_named
from keras_bert_d2l.data.tasks.examples import TaskExamples, check_alike, how_many
from keras_bert_d2l.data.tasks.readers.text_file import InMemory
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.inference.evaluation import (
    Confusion,
    Evaluation,
    as_examples,
    check_examples,
    evaluate,
)
from keras_bert_d2l.models.losses import Loss
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import stage
from keras_bert_d2l.text_arguments import TruncationWarning
from keras_bert_d2l.training.devices.distribution import process, undistributed
from keras_bert_d2l.training.finetuning.options import FinetuningOptions
from keras_bert_d2l.training.report.run import spread
from keras_bert_d2l.types import PathLike

Batches: TypeAlias = tf.data.Dataset | Callable[[int], tf.data.Dataset]
_NUM_SAMPLES, _NUM_CONFUSIONS = 10, 20
_MAX_CHARACTERS = 300  # of a text
_MAX_LABELS = 12  # of a confusion matrix that fits on a page


class Scores(NamedTuple):
    """What is found out about a model on the development data.

    Attributes:
        metrics: The metrics by name.
        warning: A warning about the predictions, if there is a reason.
        observe: Returns what the report of the run shows about the predictions.
    """

    metrics: Mapping[str, float]
    warning: str | None = None
    observe: Callable[[], dict[str, object]] = dict


@dataclasses.dataclass(frozen=True)
class TaskData:
    """Training and development data of a fine-tuning run, with its metrics.

    Attributes:
        train: The training batches of each epoch.
        dev: The development batches.
        score: Computes named metrics of a model on the development data.
        monitors: Metrics that can select the best epoch, in order of preference.
        loss: The loss that suits the data. `None`: the default of the model.
        facts: Facts about the data to write to `metrics.json`.
        fingerprint: Hashes of the data, which must be the same when a run resumes.
    """

    train: Batches
    dev: tf.data.Dataset
    score: Callable[[TaskModel], Scores]
    monitors: tuple[str, ...]
    facts: dict[str, object]
    fingerprint: list[str]
    loss: Loss | None = None

    def on_devices(self, replicas: int) -> Self:
        """Return the data for a model on several devices, over which batches can be divided.

        Each of several processes gets its own rows of every batch.
        """
        if replicas == 1:
            return self

        def divided(batches: tf.data.Dataset) -> tf.data.Dataset:
            return part(divisible(batches, replicas), *process())

        def score(model: TaskModel) -> Scores:
            with undistributed():  # predictions have batches of any size
                return self.score(model)

        return dataclasses.replace(
            self,
            train=lambda epoch: divided(batches_of(self.train, epoch)),
            dev=divided(self.dev),
            score=score,
        )


def divisible(batches: tf.data.Dataset, number: int) -> tf.data.Dataset:
    """Fill batches up to multiples of a number, with copies of the last row of weight 0.

    Args:
        batches: Batches `(features, labels)` or `(features, labels, weights)`.
        number: The number.
    """

    def fill(features: Any, labels: Any, weights: Any = None) -> Any:
        rows = tf.shape(tf.nest.flatten(features)[0])[0]
        copies = -rows % number
        is_row = tf.range(rows + copies) < rows

        def extended(x: tf.Tensor) -> tf.Tensor:
            return tf.concat([x, tf.repeat(x[-1:], copies, axis=0)], 0)

        def masked(x: tf.Tensor) -> tf.Tensor:
            shape = tf.concat([[-1], tf.ones(tf.rank(x) - 1, tf.int32)], 0)
            return extended(x) * tf.cast(tf.reshape(is_row, shape), x.dtype)

        weights = tf.ones(rows) if weights is None else weights
        features, labels = tf.nest.map_structure(extended, (features, labels))
        return features, labels, tf.nest.map_structure(masked, weights)

    return batches.map(fill, tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def part(batches: tf.data.Dataset, index: int, count: int) -> tf.data.Dataset:
    """Return part `index` of `count` equal parts of each batch."""

    def own(x: tf.Tensor) -> tf.Tensor:
        rows = tf.shape(x)[0] // count
        return x[index * rows : (index + 1) * rows]

    return batches if count == 1 else batches.map(lambda *x: tf.nest.map_structure(own, x))


def prepare(
    model: TaskModel,
    train: TaskExamples | Batches | PathLike | InMemory,
    dev: TaskExamples | tf.data.Dataset | PathLike | InMemory,
    options: FinetuningOptions,
    say: Callable[[str], None],
) -> TaskData:
    """Convert the training and development data to the form that a `Trainer` needs.

    Checks examples against the model before tokenizing anything.

    Args:
        model: The model.
        train: The training data, as examples, as anything that they are read from, or as batches.
        dev: The development data, in the same form as `train`.
        options: The options; `batch_size`, `max_len` and `seed` apply to examples.
        say: Called with each message to print.

    Raises:
        ValueError: The examples do not fit the model, only one of `train` and `dev` contains
            examples, or the batches are empty or endless.
    """
    train, dev = (cast(TaskExamples | Batches, as_examples(model, x)) for x in (train, dev))
    if options.temperature is not None and not isinstance(train, TaskExamples):
        raise ValueError(
            "`temperature` requires examples. Received: temperature="
            f"{options.temperature} with {type(train).__name__}."
        )
    if isinstance(train, TaskExamples) and isinstance(dev, TaskExamples):
        return _of_examples(model, train, dev, options, say)
    if isinstance(train, TaskExamples) or isinstance(dev, TaskExamples):
        raise ValueError(
            "`train` and `dev` must both be examples or both be batches. Received: "
            f"{type(train).__name__} and {type(dev).__name__}."
        )
    if not callable(train):
        train = counted(train)

    return TaskData(train, counted(dev), no_metrics, ("val_accuracy",), {}, [])


def no_metrics(model: TaskModel) -> Scores:
    """Return no metrics: those of batches are computed by `evaluate` alone."""
    return Scores({})


def batches_of(train: Batches, epoch: int) -> tf.data.Dataset:
    """Return the batches of an epoch as a dataset of known cardinality."""
    return counted(train(epoch)) if callable(train) else train


def counted(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return the dataset with a known cardinality, because Keras warns if it is unknown.

    Counting the batches may take one pass over the data.
    """
    number = int(dataset.cardinality())
    if number == tf.data.UNKNOWN_CARDINALITY:
        number = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(number))
    if number in (tf.data.INFINITE_CARDINALITY, 0):
        raise ValueError(
            "`train` and `dev` must contain the batches of one pass over the data. Received: "
            + ("an endless dataset; remove `.repeat()`." if number else "an empty dataset.")
        )
    return dataset


def row_len(longest: int, task: str, max_len: int | None = None) -> int:
    """Return the maximum number of tokens in a row.

    Args:
        longest: The model's maximum.
        task: The name of the task.
        max_len: Requested maximum. `None` means the model's maximum, but at most 384 for questions.

    Raises:
        ValueError: `max_len` exceeds the maximum of the model.
    """
    if max_len is None:
        return min(longest, task_named(task).most_tokens or longest)
    check_row_len(max_len, longest)
    return max_len


def _of_examples(
    model: TaskModel,
    train: TaskExamples,
    dev: TaskExamples,
    options: FinetuningOptions,
    say: Callable[[str], None],
) -> TaskData:
    if options.temperature is not None:
        check_option(train.task, "temperature", options.temperature)
    for examples in (train, dev):
        check_examples(model, examples)
    check_alike(train, dev)
    task = task_named(train.task)
    loss = task.loss(train, options.temperature)
    has_pairs = train.have_pairs_in_rows
    longest = model.bert_config.max_len if has_pairs else model.max_row_len
    max_len = row_len(longest, train.task, options.max_len)
    rows, facts = {}, {}

    def encoded(examples: TaskExamples) -> TaskRows:
        with stage("Tokenizing the data"):
            return TaskRows.encode(
                examples, model.tokenizer, labels=getattr(model, "labels", None), max_len=max_len
            )

    for_loss = task.for_loss(train, dev)
    has_all = len(for_loss) == len(dev)  # then only the labels may differ, which the facts omit
    for name, examples, to_encode in (
        ("train", train, train),
        ("dev", dev, for_loss if has_all else dev),
    ):
        rows[name] = encoded(to_encode)
        facts[name] = _facts(examples, rows[name])
        for line in _describe(name, examples, rows[name], max_len):
            say(line)

    def of_epoch(epoch: int) -> tf.data.Dataset:
        return rows["train"].batches(options.batch_size, epoch=epoch, seed=options.seed)

    size = math.ceil(options.batch_size / options.micro_batches)  # without gradients

    def score(model: TaskModel) -> Scores:
        with warnings.catch_warnings():  # the run reports them once, at its start
            warnings.simplefilter("ignore", TruncationWarning)
            evaluation = evaluate(model, dev, batch_size=size, max_len=max_len)
        observe = functools.partial(record_of, evaluation, dev)
        return Scores(evaluation.metrics, evaluation.warning, observe)

    dev_rows = rows["dev"] if has_all else encoded(for_loss)
    return TaskData(
        train=of_epoch,
        dev=counted(dev_rows.batches(size)),
        score=score,
        monitors=task.monitors,
        facts={"task": train.task, "max_len": max_len, "data": facts},
        fingerprint=[train.fingerprint(), dev.fingerprint()],
        loss=loss,
    )


def _facts(examples: TaskExamples, rows: TaskRows) -> dict[str, object]:
    return {
        "source": examples.source,
        "sha256": examples.sha256,
        "examples": len(examples),
        "labels": dict(sorted(examples.label_counts().items())),
        "dropped": {**examples.dropped, **rows.dropped},
        "rows": len(rows.examples),
        "truncated": int(rows.num_truncated),
    }


def _describe(name: str, examples: TaskExamples, rows: TaskRows, max_len: int) -> list[str]:
    of_rows = f" in {len(rows.examples):,} rows" if len(rows.examples) != len(examples) else ""
    title = {"train": "Training data", "dev": "Development data"}[name]
    source = examples.source or "memory"
    lines = [f"{title}: {how_many(len(examples), 'example')}{of_rows} from {source}"]
    if rows.num_truncated:
        share = rows.num_truncated / len(examples)
        is_split = rows.rows_together == 1 and len(rows.examples) > len({*rows.examples})
        how = f"longer than {max_len} tokens, split into rows"
        if not is_split:
            how = f"truncated to {max_len} tokens"
        lines.append(f"  {rows.num_truncated:,} ({share:.1%}) {how}")
    lost = (*examples.notes, *examples.dropped_in_words(), *rows.lost_in_words())
    return [*lines, *(f"  {line}" for line in lost)]


def record_of(evaluation: Evaluation, examples: TaskExamples) -> dict[str, object]:
    """Return the record of an evaluation on these examples."""
    samples = []
    task = task_named(examples.task)
    for place in spread(examples.in_order_of_labels(), _NUM_SAMPLES):
        one = task.prediction(examples.subset([place]), evaluation.predictions[place])
        samples.append(
            {
                "text": _short(one.text),
                "gold": one.gold,
                "answers": [(one.predicted, _finite(one.score))],
                "is_right": one.is_right,
            }
        )
    errors = [
        {**dataclasses.asdict(one), "text": _short(one.text), "score": _finite(one.score)}
        for one in evaluation.errors
    ]
    return {"samples": samples, "errors": errors, "confusion": _confusion(evaluation.confusion)}


def _finite(score: float | None) -> float | None:
    """Return the score, or `None` for NaN, which JSON does not have."""
    return score if score is not None and math.isfinite(score) else None


def _confusion(confusion: Confusion | None) -> dict[str, object] | None:
    """Return the matrix or, if there are many labels, the most frequent confusions."""
    if confusion is None:
        return None
    if len(confusion.labels) > _MAX_LABELS:
        return {"most_frequent": confusion.most_frequent(_NUM_CONFUSIONS)}
    return {"labels": confusion.labels, "counts": confusion.counts.tolist()}


def _short(text: str) -> str:
    return textwrap.shorten(text, _MAX_CHARACTERS, placeholder=" ...")
