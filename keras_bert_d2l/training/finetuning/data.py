"""Examples of a task in, what fine-tuning takes out: batches of each epoch, a score, the facts."""

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from keras_bert_d2l.inference.evaluation.compatibility import check_examples
from keras_bert_d2l.inference.evaluation.evaluation import evaluate
from keras_bert_d2l.models.tasks.heads import WINDOW_LEN
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


def check_alike(train: TaskExamples, dev: TaskExamples) -> None:
    """Raises a `ValueError` where one of the two holds single texts and the other one pairs."""
    of_train, of_dev = (
        "pairs of texts" if getattr(examples, "texts_b", None) else "single texts"
        for examples in (train, dev)
    )
    if of_train != of_dev:
        raise ValueError(
            f"{dev.source or 'The development data'}: the training data are {of_train}. Received: "
            f"{of_dev}; take the same columns of both files, with or without `text_b`."
        )


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


def split_examples(examples: TaskExamples, share: float) -> tuple[TaskExamples, TaskExamples]:
    """Parts examples by a hash of their text, so that equal texts are on one side.

    Args:
        examples: The examples.
        share: Of the second part, as near as whole texts get to it.

    Returns: the larger part and the other. Questions about one article stay together. The other
        has one text at least, and no label that the larger one lacks.

    Raises:
        ValueError: One of the two would be empty.
    """
    by_text: dict[str, list[int]] = {}
    for number, text in enumerate(_texts(examples)):
        by_text.setdefault(text, []).append(number)
    groups = [by_text[text] for text in sorted(by_text, key=_hash)]
    learned = examples.label_counts()
    held_out = _held_out(examples, groups, share * len(examples), learned)
    if not held_out:  # each text occurs more often than that
        of_groups = (
            _held_out(examples, [group], len(group), learned) for group in sorted(groups, key=len)
        )
        held_out = next(filter(None, of_groups), held_out)
    if not held_out:
        raise ValueError(
            f"{examples.source or 'The examples'}: {how_many(len(examples), 'example')} about "
            f"{how_many(len(groups), 'different text')} are too few to hold out a share of "
            f"{share:g}. Name a file of development data."
        )
    larger = examples.subset(n for n in range(len(examples)) if n not in held_out)
    # What was dropped from the file is told once.
    return larger, dataclasses.replace(
        examples.subset(sorted(held_out)), dropped={}, first_dropped={}
    )


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


def _held_out(
    examples: TaskExamples,
    groups: Sequence[Sequence[int]],
    wanted: float,
    learned: Counter[str],
) -> set[int]:
    """Returns about so many examples: of the first groups those that bring the number nearer.

    Never all, and none without which a label could not be learned: `learned` counts those of the
    other examples, and is made less.
    """
    held_out: set[int] = set()
    for group in groups:
        missing = wanted - len(held_out)
        if missing < 0.5:  # half a text, of which there is none
            break
        if len(group) > 2 * missing or len(held_out) + len(group) == len(examples):
            continue
        labels = examples.subset(group).label_counts()
        if all(learned[label] > count for label, count in labels.items()):
            held_out.update(group)
            learned.subtract(labels)
    return held_out


def _texts(examples: TaskExamples) -> list[str]:
    if isinstance(examples, QuestionExamples):
        titles = examples.titles or examples.contexts
        return [title or text for title, text in zip(titles, examples.contexts, strict=True)]
    (name, *_) = examples.sequences
    return [one if isinstance(one, str) else " ".join(one) for one in getattr(examples, name)]


def _hash(text: str) -> bytes:
    """What depends on the text alone, in no order that texts may have."""
    return hashlib.sha256(text.encode()).digest()


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
        fingerprint=[_fingerprint(examples) for examples in (train, dev)],
    )


def _sample(examples: TaskExamples, size: int) -> TaskExamples:
    """Returns a few examples that have all figures which the whole has."""
    if isinstance(examples, QuestionExamples):  # some are of questions without an answer alone
        kinds = {bool(answers): number for number, answers in enumerate(examples.answers or ())}
        return examples.subset(kinds.values())
    return examples.subset(range(min(len(examples), size)))


def _fingerprint(examples: TaskExamples) -> str:
    """Tells whether examples are the same, in the same order."""
    digest = hashlib.sha256()
    for name in ("ids", *examples.sequences):
        digest.update(repr(getattr(examples, name)).encode())
    return digest.hexdigest()


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
