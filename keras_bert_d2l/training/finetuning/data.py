"""Training and development data as fine-tuning reads them: batches, scores and facts."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.tasks.examples import (
    QuestionExamples,
    TaskExamples,
    TextExamples,
    how_many,
)
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.data.tasks.splitting import check_alike
from keras_bert_d2l.inference.evaluation.compatibility import check_examples
from keras_bert_d2l.inference.evaluation.evaluation import evaluate
from keras_bert_d2l.models.tasks.answerer import WINDOW_LEN
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.training.finetuning.options import FinetuningOptions

Batches: TypeAlias = tf.data.Dataset | Callable[[int], tf.data.Dataset]
Score: TypeAlias = Callable[[TaskModel], Mapping[str, float]]

# What an epoch is the best by: the first of these that the task has.
_MONITORS = {
    "classify": ("val_micro_f1", "val_accuracy"),  # the first where texts have several labels
    "regress": ("val_pearson",),
    "tag": ("val_f1", "val_accuracy"),
    "answer": ("val_f1",),
}
_NAMED_LABELS = 6


@dataclasses.dataclass(frozen=True)
class TaskData:
    """What fine-tuning learns from, and what it is measured by.

    Attributes:
        train: Batches of the training data, of each epoch.
        dev: Batches of the development data.
        score: From the model to figures of the development data, by name.
        sample: The same of a few examples where it can be, to see which figures there are.
        monitors: Figures that an epoch may be the best by, the preferred one first.
        facts: What `metrics.json` says of the data.
        fingerprint: What has to be the same for a run to go on.
    """

    train: Batches
    dev: tf.data.Dataset
    score: Score
    sample: Score
    monitors: tuple[str, ...]
    facts: dict[str, Any]
    fingerprint: list[str]

    def with_score(self, further: Score) -> Self:
        """Returns the data with more figures."""
        score, sample = self.score, self.sample
        return dataclasses.replace(
            self,
            score=lambda model: {**score(model), **further(model)},
            sample=lambda model: {**sample(model), **further(model)},
        )


def prepare(
    model: TaskModel,
    train: TaskExamples | Batches,
    dev: TaskExamples | tf.data.Dataset,
    options: FinetuningOptions,
    say: Callable[[str], None],
) -> TaskData:
    """Returns the data in the form in which fine-tuning takes them.

    Examples are checked against the model first, and then tokenised, once.

    Args:
        model: The model.
        train: The training data, examples or batches.
        dev: The development data, as `train`.
        options: The options; `batch_size`, `max_len` and `seed` are for examples.
        say: Called with lines on what was found.

    Raises:
        ValueError: The examples do not fit the model, one of the two is examples and the other
            is not, or there are no batches or no end of them.
    """
    if isinstance(train, TaskExamples) and isinstance(dev, TaskExamples):
        return _of_examples(model, train, dev, options, say)
    if isinstance(train, TaskExamples) or isinstance(dev, TaskExamples):
        raise ValueError(
            "`train` and `dev` must both be examples, or both batches. Received: "
            f"{type(train).__name__} and {type(dev).__name__}."
        )
    if not callable(train):
        train = counted(train)

    def nothing(model: TaskModel) -> dict[str, float]:
        return {}

    return TaskData(train, counted(dev), nothing, nothing, ("val_accuracy",), {}, [])


def batches_of(train: Batches, epoch: int) -> tf.data.Dataset:
    """Returns the batches of an epoch, of which the number is known."""
    return counted(train(epoch)) if callable(train) else train


def counted(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a data set that knows the number of its batches, which Keras warns of otherwise.

    To find it out it may have to go through them once.
    """
    number = int(dataset.cardinality())
    if number == tf.data.UNKNOWN_CARDINALITY:
        number = int(dataset.reduce(tf.constant(0, tf.int64), lambda count, *_: count + 1))
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(number))
    if number in (tf.data.INFINITE_CARDINALITY, 0):
        raise ValueError(
            "`train` and `dev` must be batches, once through the data. Received: a data set "
            + ("without an end; leave out `.repeat()`." if number else "without a batch.")
        )
    return dataset


def row_len(config: BERTConfig, task: str, max_len: int | None = None) -> int:
    """Tokens in a row at most.

    Args:
        config: Of the model that will read the rows.
        task: A name of `data.task_examples`, such as `"classify"`.
        max_len: What the user asked for. `None` is what the model can read, of questions 384 at
            most.

    Raises:
        ValueError: The model cannot read as many as were asked for.
    """
    if max_len is None:
        return min(config.max_len, WINDOW_LEN) if task == "answer" else config.max_len
    if max_len > config.max_len:
        raise ValueError(
            f"`max_len` must be at most {config.max_len}, the longest sequence of the model. "
            f"Received: max_len={max_len}."
        )
    return max_len


def _of_examples(
    model: TaskModel,
    train: TaskExamples,
    dev: TaskExamples,
    options: FinetuningOptions,
    say: Callable[[str], None],
) -> TaskData:
    for examples in (train, dev):
        check_examples(model, examples)
    check_alike(train, dev)
    max_len = row_len(model.bert_config, train.task, options.max_len)
    rows, facts = {}, {}
    for name, examples in (("train", train), ("dev", dev)):
        rows[name] = TaskRows.encode(
            examples, model.tokenizer, labels=getattr(model, "labels", None), max_len=max_len
        )
        facts[name] = _facts(examples, rows[name])
        for line in _describe(name, examples, rows[name], max_len):
            say(line)
    if isinstance(dev, TextExamples) and dev.task == "regress" and len(set(dev.labels or ())) < 2:
        say("  All its scores are equal: correlations are 0, and tell no epoch from another")

    def of_epoch(epoch: int) -> tf.data.Dataset:
        return rows["train"].batches(options.batch_size, epoch=epoch, seed=options.seed)

    def score_of(some: TaskExamples) -> Score:
        options_of = {"batch_size": options.batch_size, "max_len": max_len}
        return lambda trained: evaluate(trained, some, **options_of).metrics

    # A question that is too long for a row has none, and cannot be asked either.
    scored = dev.subset(np.unique(rows["dev"].examples)) if rows["dev"].dropped else dev
    return TaskData(
        train=of_epoch,
        dev=counted(rows["dev"].batches(options.batch_size)),
        score=score_of(scored),
        sample=score_of(_sample(scored, options.batch_size)),
        monitors=_MONITORS[train.task],
        facts={"task": train.task, "max_len": max_len, "data": facts},
        fingerprint=[train.fingerprint(), dev.fingerprint()],
    )


def _sample(examples: TaskExamples, size: int) -> TaskExamples:
    """Returns a few examples that have all figures which the whole has."""
    if isinstance(examples, QuestionExamples):  # some are of questions without an answer alone
        kinds = {bool(answers): number for number, answers in enumerate(examples.answers or ())}
        return examples.subset(kinds.values())
    return examples.subset(range(min(len(examples), size)))


def _facts(examples: TaskExamples, rows: TaskRows) -> dict[str, Any]:
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
    counts = examples.label_counts().most_common()
    named = ", ".join(f"{label} ({count:,})" for label, count in counts[:_NAMED_LABELS])
    more = f" and {len(counts) - _NAMED_LABELS} more" if len(counts) > _NAMED_LABELS else ""
    of_rows = f" in {len(rows.examples):,} rows" if len(rows.examples) != len(examples) else ""
    title = {"train": "Training data", "dev": "Development data"}[name]
    lines = [
        f"{title}: {how_many(len(examples), 'example')}{of_rows} from {examples.source or 'memory'}"
        + (f"; labels {named}{more}" if counts else "")
    ]
    if rows.num_truncated:
        share = rows.num_truncated / max(1, len(rows.examples))
        lines.append(f"  {rows.num_truncated:,} ({share:.1%}) cut to {max_len} tokens")
    lost = (*examples.dropped_in_words(), *rows.lost_in_words())
    return [*lines, *(f"  {line}" for line in lost)]
