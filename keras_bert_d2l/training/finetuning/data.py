"""Data of a fine-tuning run: batches for each epoch, evaluation scores and what is recorded."""

import contextlib
import dataclasses
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import tensorflow as tf

from keras_bert_d2l.checks import check_choice, checked_max_len
from keras_bert_d2l.contract.task import check_option, task_named
from keras_bert_d2l.data.tasks.examples import TaskExamples, check_alike, how_many
from keras_bert_d2l.data.tasks.readers.text_file import InMemory
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.inference.calibration import Calibration
from keras_bert_d2l.inference.evaluation import (
    Confusion,
    Evaluation,
    as_examples,
    check_examples,
    evaluate,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import stage
from keras_bert_d2l.tasks.explanations import with_explanations
from keras_bert_d2l.text_arguments import TruncationWarning
from keras_bert_d2l.training.devices import num_replicas, process, undistributed
from keras_bert_d2l.training.finetuning.options import FinetuningOptions
from keras_bert_d2l.training.report.report import spread
from keras_bert_d2l.types import PathLike, Say

Data = TaskExamples | PathLike | InMemory
_NUM_SAMPLES, _NUM_CONFUSIONS = 10, 20
_NUM_EXPLAINED, _NUM_STEPS = 3, 8  # errors; steps of integrated gradients
_MAX_CHARACTERS, _MAX_OF_ANSWER = 300, 160  # of a text; of an answer, which may be a text
_MAX_LABELS = 12  # of a confusion matrix that fits on a page


class TaskData:
    """Training and development data of a fine-tuning run, with its metrics.

    Checks the examples against the model before tokenizing anything.

    Args:
        model: The model.
        train: The training data, as examples or as anything that they are read from.
        dev: The development data, in any of these forms.
        options: The options; `batch_size`, `max_len` and `seed` apply to the examples.
        say: Called with each message to print.

    Attributes:
        dev: The development batches.
        monitors: Metrics that can select the best epoch, in order of preference.
        loss: The loss that suits the data. `None`: the default of the model.
        facts: Facts about the data to write to `metrics.json`.
        fingerprint: Hashes of the data, which must be the same when a run resumes.

    Raises:
        ValueError: The examples do not fit the model or each other.
    """

    def __init__(
        self, model: TaskModel, train: Data, dev: Data, options: FinetuningOptions, say: Say
    ) -> None:
        train, dev = (cast(TaskExamples, as_examples(model, data)) for data in (train, dev))
        for examples in (train, dev):
            check_examples(model, examples)
        check_alike(train, dev)
        task = task_named(train.task)
        of_loss = {name: getattr(options, name) for name in ("temperature", "matryoshka")}
        for name, value in of_loss.items():
            if value is not None:
                check_option(train.task, name, value)
        check_choice("loss", options.loss, (None, *task.losses))
        of_loss |= {"loss": options.loss, "width": getattr(model, "embedding_width", None)}
        self.loss = task.loss(train, of_loss)
        longest = model.max_row_len
        if train.have_pairs_in_rows:
            longest = min(longest, model.bert_config.max_len)
        self._max_len = max_len = row_len(longest, train.task, options.max_len)

        def encoded(examples: TaskExamples) -> TaskRows:
            with stage("Tokenizing the data"):
                rows = TaskRows.encode(
                    examples,
                    model.tokenizer,
                    labels=getattr(model, "labels", None),
                    max_len=max_len,
                    model=model,
                )
                return rows.for_loss(self.loss)

        for_loss = task.for_loss(train, dev, of_loss)
        has_all = len(for_loss) == len(dev)  # then only the labels may differ, which the facts omit
        self._train, dev_rows = encoded(train), encoded(for_loss if has_all else dev)
        facts = {}
        for name, title, examples, rows in (
            ("train", "Training data", train, self._train),
            ("dev", "Development data", dev, dev_rows),
        ):
            facts[name] = _facts(examples, rows)
            for line in _describe(title, examples, rows, max_len):
                say(line)
        if not has_all:
            dev_rows = encoded(for_loss)
        self._examples, self._options = dev, options
        self._eval_size = math.ceil(options.batch_size / options.micro_batches)  # has no gradients
        # Another loss than the default may compare all rows of a batch.
        size = self._eval_size if self.loss is None else options.batch_size
        self.dev = _on_devices(dev_rows.batches(size))
        self.monitors = task.monitors
        self.facts = {"task": train.task, "max_len": max_len, "data": facts}
        self.fingerprint = [train.fingerprint(), dev.fingerprint()]

    def train(self, epoch: int) -> tf.data.Dataset:
        """Return the training batches of an epoch."""
        options = self._options
        batches = self._train.batches(options.batch_size, epoch=epoch, seed=options.seed)
        return _on_devices(batches)

    def score(self, model: TaskModel) -> Evaluation:
        """Evaluate a model on the development data."""
        found: Evaluation = self.on_dev(evaluate, model)
        return found

    def on_dev(self, function: Callable[..., Any], model: TaskModel) -> Any:
        """Call `evaluate` or `calibrate` on a model and the development data."""
        size, max_len = self._eval_size, self._max_len
        with _predicting():
            return function(model, self._examples, batch_size=size, max_len=max_len)

    def record(self, evaluation: Evaluation, best: Any = None) -> dict[str, object]:
        """Return what the report of the run shows about an evaluation.

        Args:
            evaluation: The evaluation.
            best: The model, if it is the best so far: some of its errors are explained.
        """
        record, examples = record_of(evaluation, self._examples), self._examples
        if best is None or "explain" not in task_named(examples.task).options:
            return record
        worst, sides = record["errors"][:_NUM_EXPLAINED], [""]
        some: Any = examples.subset(examples.ids.index(error["id"]) for error in worst)
        if hasattr(some, "pairs"):  # each query with the text that came first and with a right one
            sides, mistakes = ["predicted", "correct"], evaluation.errors[:_NUM_EXPLAINED]
            texts = [(one.predicted, one.gold) for one in mistakes]
            some = dataclasses.replace(some, documents=texts, labels=None)
        rows = [(error, side) for error in worst for side in sides]
        options = {"steps": _NUM_STEPS, "max_len": self._max_len}
        with _predicting():
            found = with_explanations(best, some, [error for error, _ in rows], **options)
            for (error, side), one in zip(rows, found, strict=True):
                own = [{**explanation, "of": side} for explanation in one["explanations"]]
                error["explanations"] = error.get("explanations", []) + own
        return record


@contextlib.contextmanager
def _predicting() -> Iterator[None]:
    """Predict batches of any size, without warnings that the run reports at its start."""
    quiet = warnings.catch_warnings(action="ignore", category=TruncationWarning)
    with undistributed() if num_replicas(None) > 1 else contextlib.nullcontext(), quiet:
        yield


def _on_devices(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Return the batches for the devices of this process, over which they can be divided."""
    replicas = num_replicas(None)
    return batches if replicas == 1 else divided(batches, replicas, *process())


def divided(
    batches: tf.data.Dataset, replicas: int, index: int = 0, processes: int = 1
) -> tf.data.Dataset:
    """Return the part of a process of every batch.

    Batches are filled up to a multiple of the devices, with copies of the last row of weight 0.

    Args:
        batches: Batches `(features, labels)`.
        replicas: The number of devices of all processes.
        index: The index of the process.
        processes: The number of processes.
    """

    def own(features: Any, labels: Any) -> Any:
        rows = tf.shape(tf.nest.flatten(features)[0])[0]
        size = -(-rows // replicas) * replicas
        first, end = index * size // processes, (index + 1) * size // processes

        def part(x: tf.Tensor) -> tf.Tensor:
            return tf.concat([x, tf.repeat(x[-1:], size - rows, axis=0)], 0)[first:end]

        features, labels = tf.nest.map_structure(part, (features, labels))
        return features, labels, tf.cast(tf.range(first, end) < rows, tf.float32)

    return batches.map(own, tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


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
    return checked_max_len(max_len, 1, longest)


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


def _describe(title: str, examples: TaskExamples, rows: TaskRows, max_len: int) -> list[str]:
    of_rows = f" in {len(rows.examples):,} rows" if len(rows.examples) != len(examples) else ""
    source = examples.source or "memory"
    lines = [f"{title}: {how_many(len(examples), 'example')}{of_rows} from {source}"]
    if rows.num_truncated:
        share = rows.num_truncated / len(examples)
        has_one_row = rows.rows_together or examples.have_pairs_in_rows  # per pair, or per text
        is_split = not has_one_row and len(rows.examples) > len({*rows.examples})
        how = f"longer than {max_len} tokens, split into rows"
        if not is_split:
            how = f"truncated to {max_len} tokens"
        lines.append(f"  {rows.num_truncated:,} ({share:.1%}) {how}")
    lost = (*examples.notes, *examples.dropped_in_words(), *rows.lost_in_words())
    return [*lines, *(f"  {line}" for line in lost)]


def record_of(evaluation: Evaluation, examples: TaskExamples) -> dict[str, Any]:
    """Return the record of an evaluation on these examples."""
    places = spread(range(len(examples)), _NUM_SAMPLES)
    found = [evaluation.predictions[place] for place in places]
    samples = [
        {
            "text": _short(one.text),
            "gold": one.gold and _short(one.gold, _MAX_OF_ANSWER),
            "answers": [(_short(one.predicted, _MAX_OF_ANSWER), _finite(one.score))],
            "is_right": one.is_right,
        }
        for one in task_named(examples.task).samples(examples.subset(places), found)
    ]
    errors = [
        dataclasses.asdict(one)
        | {name: _short(getattr(one, name), _MAX_OF_ANSWER) for name in ("gold", "predicted")}
        | {"text": _short(one.text), "score": _finite(one.score)}
        for one in evaluation.errors
    ]
    return {"samples": samples, "errors": errors, "confusion": _confusion(evaluation.confusion)}


def record_of_calibration(found: Calibration, model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts about a calibration, and what the report draws."""
    facts = {
        "temperature": found.temperature,
        "thresholds": found.thresholds and dict(zip(model.labels, found.thresholds, strict=True)),
        "expected_calibration_error": [one.calibration_error for one in found[2:]],
    }
    # With several labels, the probabilities are not those of decisions.
    risks = None if found.thresholds else spread(found.after.risk_coverage(), 400)
    return facts, {"bins": [one.bins() for one in found[2:]], "risk_coverage": risks}


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


def _short(text: str, most: int = _MAX_CHARACTERS) -> str:
    return textwrap.shorten(text, most, placeholder=" ...")
