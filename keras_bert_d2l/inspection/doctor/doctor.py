"""`doctor` and `DoctorCallback`: find out why a run does not learn."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.data.tasks.examples import how_many
from keras_bert_d2l.inspection.doctor.checks import Finding, examine
from keras_bert_d2l.inspection.doctor.evidence import Evidence, of_options, of_run, options_for
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.types import PathLike

_INTERVAL = 100  # steps whose losses are averaged
_SETTLED = 5  # intervals after which a loss must have fallen


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Result of `doctor`.

    Attributes:
        findings: The results of the checks: the faults, worst first, then the rest.
        skipped: The groups of checks that could not run, and why.

    Example:

    ```python
    import keras_bert_d2l as kb

    diagnosis = kb.Diagnosis(findings=(), skipped=("Text: it was not found.",))
    assert diagnosis.is_healthy
    ```
    """

    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        faults_first = sorted(self.findings, key=lambda finding: not finding.is_fault)
        object.__setattr__(self, "findings", tuple(faults_first))

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings outside their limits, worst first."""
        return tuple(finding for finding in self.findings if finding.is_fault)

    @property
    def is_healthy(self) -> bool:
        """Whether there are no faults."""
        return not self.faults

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults]
        lines.append(f"{len(self.findings)} checks, {how_many(len(self.faults), 'fault')}")
        return "\n".join([*lines, *(f"Skipped: {reason}" for reason in self.skipped)])


def doctor(
    run: PathLike | None = None,
    *,
    data: PathLike | tf.data.Dataset | None = None,
    model: PathLike | BERTModel | TaskModel | None = None,
    task: str | None = None,
    dev: PathLike | None = None,
) -> Diagnosis:
    """Find out why a run does not learn, or whether data and a model are ready for one.

    Each check compares a number with limits, and has a remedy: losses, vocabulary, copied examples,
    masks, padding and gradients. Checks whose data is missing are skipped and listed. Nothing is
    written or changed.

    Args:
        run: The folder or URL of a run of `pretrain` or `finetune`.
        data: Instead of a run: a text or a token store; a file of examples, with `task`; or a
            dataset of training batches, for your own `fit`.
        model: The checkpoint to start from. Optional for a text. For a dataset, the compiled model.
        task: The task of the examples, as for `finetune_files`.
        dev: The development data of the examples.

    Returns: a `Diagnosis`.

    Raises:
        FileNotFoundError: The run, the data or the checkpoint is missing.
        ValueError: The arguments do not belong together, a file is damaged, or the data does not
            fit the task or the model.
        RuntimeError: The Keras backend is not TensorFlow, which computes the gradients.

    Example:

    ```python
    import numpy as np
    import tensorflow as tf
    import keras_bert_d2l as kb

    bert = kb.BERTModel(50, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = kb.SequenceClassifier(bert, ["bad", "good"])
    model.compile(kb.BERTAdamW(1e-4))
    tokens = np.random.randint(5, 50, (8, 6))
    batch = {"tokens": tokens, "segments": 0 * tokens}, tokens[:, 1] % 2
    diagnosis = kb.doctor(data=tf.data.Dataset.from_tensors(batch), model=model)
    print(diagnosis)
    ```
    """
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "`doctor` computes gradients with TensorFlow. Received: the Keras backend "
            f"{keras.backend.backend()!r}; unset KERAS_BACKEND. Runs of other backends are fine."
        )
    is_run = run is not None and data is None and model is None and task is None and dev is None
    if run is not None and is_run:
        evidence = of_run(run)
    elif run is not None or data is None:
        given = {"run": run, "data": data, "model": model, "task": task, "dev": dev}
        names = [name for name, value in given.items() if value is not None]
        raise ValueError(
            "Pass either the folder of a `run`, or `data`. Received: "
            f"{' and '.join(f'`{name}`' for name in names) or 'neither'}."
        )
    elif dev is not None and task is None:
        raise ValueError(
            f"`dev` requires `task`, because a part of a text is held out. Received: dev={dev!r}."
        )
    elif isinstance(model, BERTModel | TaskModel):
        evidence = _in_memory(model, data)
    else:
        options = options_for(data, model, task, dev)
        evidence = dataclasses.replace(of_options(options), options=options)
        evidence.first_loss = None if evidence.gradients is None else evidence.gradients[0]
    return diagnose(evidence)


def _in_memory(model: BERTModel | TaskModel, data: Any) -> Evidence:
    """Return the evidence of a model and its batches, after checking them."""
    check_type("data", data, tf.data.Dataset, "A model in memory needs its training batches.")
    if getattr(model, "optimizer", None) is None:
        raise ValueError("`model` must be compiled. Received: a model without an optimizer.")
    batch = next(iter(data), None)
    if not isinstance(batch, tuple) or not isinstance(batch[0], Mapping):
        raise ValueError(
            "`data` must contain batches `(features, labels)`, with a dictionary of features such "
            f"as `tokens`. Received: {data!r:.200}; for texts, pass their file and its `task`."
        )
    return Evidence(model=model, batches=data)


def diagnose(evidence: Evidence) -> Diagnosis:
    """Run all checks for which there is evidence."""
    skipped = [*evidence.skipped]
    if evidence.is_early:
        skipped.append(
            "Held-out losses: they measure masked tokens in long rows, but the run still trains "
            "on shorter rows or predicts next tokens."
        )
    return Diagnosis(tuple(examine(evidence)), tuple(skipped))


class DoctorCallback(keras.callbacks.Callback):
    """Callback that reports faults as soon as `fit` shows them, each once, and changes nothing.

    It checks the loss of the first step, and looks for losses that are not finite, rise or do not
    fall. `doctor` examines the batches before the first step.

    Attributes:
        faults: The reported findings.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split())
    bert = kb.BERTModel(len(vocab), 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=kb.Tokenizer(vocab))
    classifier.compile(kb.BERTAdamW(2e-5))
    doctor = kb.DoctorCallback()
    classifier.fit(["what a film", "a bore"], ["good", "bad"], callbacks=[doctor])
    print(doctor.faults)
    ```
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[Finding] = []

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self._losses, self._steps = [0.0], 0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._sum, self._batches = 0.0, 0  # of the running mean of Keras, which starts again

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        mean = float((logs or {}).get("loss", math.nan))
        self._batches += 1
        loss = mean * self._batches - self._sum
        self._sum += loss
        if not self._steps:
            self._report(examine(Evidence(model=self.model, first_loss=loss)))
        self._steps += 1
        self._losses[-1] += loss / _INTERVAL
        is_finite = math.isfinite(loss)
        if self._steps % _INTERVAL == 0 or not is_finite:
            found = examine(Evidence(records=[{"loss": loss} for loss in self._losses]))
            is_settled = is_finite and len(self._losses) >= _SETTLED
            self._report([one for one in found if is_settled or one.name != "flat loss"])
        if self._steps % _INTERVAL == 0:
            self._losses.append(0.0)

    def _report(self, findings: list[Finding]) -> None:
        for one in findings:
            if one.is_fault and one.name not in {fault.name for fault in self.faults}:
                self.faults.append(one)
                print(f"\nDoctor: {one}")
