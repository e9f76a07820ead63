"""`doctor`: find out why a model does not learn.

A check measures a number, compares it with limits, and has a remedy. `CHECKS` is the table.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.location import is_run
from keras_bert_d2l.checks import check_type
from keras_bert_d2l.data.tasks.examples import how_many
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.types import PathLike

_LOW = 0.1  # a loss that need not fall any more
_COUNTED = 64  # batches whose tokens are counted
_ROWS = 12  # whole pairs and triplets; enough to find a gradient out of range


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a check: a number and the limits within which it is healthy.

    Attributes:
        name: Name of the check.
        measures: What the number is.
        number: The measured number. NaN is never healthy.
        low: The lowest healthy number.
        high: The highest healthy number.
        meaning: What a number outside the limits means.
        remedy: What to do then.

    Example:

    ```python
    import keras_bert_d2l as kb

    finding = kb.Finding(
        name="padding",
        measures="share of padding",
        number=0.7,
        high=0.5,
        meaning="Most of the computation is spent on padding.",
        remedy="Use rows='packed'.",
    )
    assert finding.is_fault
    ```
    """

    name: str
    measures: str
    number: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    meaning: str
    remedy: str

    @property
    def is_fault(self) -> bool:
        """Whether the number is outside the limits, or NaN."""
        return not self.low <= self.number <= self.high

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.measures} {self.number:.3g}, healthy {self.limits}\n"
            f"  {self.meaning} {self.remedy}"
        )

    @property
    def limits(self) -> str:
        """The limits as text."""
        if math.isinf(self.low):
            return f"at most {self.high:.3g}"
        return f"{self.low:.3g} to {self.high:.3g}"


# Faults that stop the learning come first, then those that weaken it or cost time. The reasons for
# the limits:
# - New output layers start close to 0, so all classes are equally likely; checkpoints are better.
# - Means over the steps between two evaluations vary by 1 to 3%: a rise of 10% is no noise, and a
#   fall of 2% is the least. Evaluations use the same masks, so their noise is far below 5%.
# - 10% of the predicted tokens are kept on purpose (Devlin et al. 2019).
# - 5% of the weights leave room for segments and the pooler, which small models may not use.
# - The gradient's norm is 0.1 to 10 for BERT, in training and at its start. Below 1e-4, Adam's
#   epsilon begins to count. Above 100, clipping to 1 leaves the direction of a few examples.
# - WordPiece leaves less than 0.1% of a text that its vocabulary fits; 2% are several in each row.
CHECKS = (
    Finding(
        name="initial loss",
        measures="loss before the first step / loss if all classes are equally likely",
        high=1.1,
        meaning="The model is worse than chance on this data.",
        remedy="Check that labels, ids and a checkpoint belong to this vocabulary.",
    ),
    Finding(
        name="rising loss",
        measures="last training loss / lowest training loss",
        high=1.1,
        meaning="The training diverges: the learning rate is too high.",
        remedy="Lower the learning rate to a third or a tenth, or use a longer warm-up.",
    ),
    Finding(
        name="flat loss",
        measures="last training loss / first training loss",
        high=0.98,
        meaning="The loss does not fall.",
        remedy="Try a learning rate three times higher or lower, and check the labels.",
    ),
    Finding(
        name="visible answers",
        measures="share of the predicted tokens that are not masked",
        high=0.5,
        meaning="The model sees the tokens that it should predict, and learns to copy them.",
        remedy="Replace the predicted tokens in `tokens` by the id of [MASK].",
    ),
    Finding(
        name="unused weights",
        measures="share of the trainable weights without a gradient",
        high=0.05,
        meaning="The loss does not depend on these weights, so they stay as they are.",
        remedy="Check that the outputs of these layers reach the loss and have weights above 0.",
    ),
    Finding(
        name="gradient norm",
        measures="global norm of the gradient",
        low=1e-4,
        high=100,
        meaning="The gradient vanishes, explodes or, with weights that are not finite, is NaN.",
        remedy="Check the scale of the weights and of the loss, or lower the learning rate.",
    ),
    Finding(
        name="overfitting",
        measures="last held-out loss / lowest held-out loss",
        high=1.05,
        meaning="The model becomes worse on text that it does not train on.",
        remedy="Stop earlier (`best/` has the best weights), add text, or raise the dropout.",
    ),
    Finding(
        name="unknown words",
        measures="share of tokens that are [UNK]",
        high=0.02,
        meaning="The vocabulary lacks characters or words of the text.",
        remedy="Learn a vocabulary from this text, or check language, casing and encoding.",
    ),
    Finding(
        name="padding",
        measures="share of padding in a batch",
        high=0.5,
        meaning="Most of the computation is spent on padding.",
        remedy="Use `--rows packed`, batches of texts of similar length, or a smaller `--max-len`.",
    ),
)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Result of `doctor`.

    Attributes:
        findings: The results of the checks: the faults, worst first, then the rest.

    Example:

    ```python
    import keras_bert_d2l as kb

    assert not kb.Diagnosis(findings=()).faults
    ```
    """

    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings outside their limits, worst first."""
        return tuple(finding for finding in self.findings if finding.is_fault)

    def __str__(self) -> str:
        number = how_many(len(self.faults), "fault")
        return "\n".join([*map(str, self.faults), f"{len(self.findings)} checks, {number}"])


def doctor(
    run: PathLike | None = None,
    *,
    data: tf.data.Dataset | None = None,
    model: BERTModel | TaskModel | None = None,
) -> Diagnosis:
    """Find out why a run does not learn, or whether a model and its batches are ready for `fit`.

    Of a run, the losses are checked. Of a model and its batches, the loss and the gradients before
    the first step, the predicted tokens, unknown words and padding. The function changes neither.

    Args:
        run: The folder of a run of `pretrain` or `finetune`.
        data: Instead of a run: a dataset of training batches.
        model: The compiled model that trains on `data`.

    Returns: a `Diagnosis`.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: The arguments do not belong together, or a file of the run is damaged.
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
    if (run is None) != (data is not None and model is not None):
        raise ValueError(
            "Pass either the folder of a `run`, or the training batches `data` with their `model`. "
            f"Received: {run=}, {data=}, {model=}."
        )
    numbers = _of_run(run) if run is not None else _of_batches(cast(BERTModel, model), data)
    given = [(check, numbers.get(check.name)) for check in CHECKS]
    found = [dataclasses.replace(check, number=float(n)) for check, n in given if n is not None]
    return Diagnosis(tuple(sorted(found, key=lambda finding: not finding.is_fault)))


def _of_run(path: PathLike) -> dict[str, float | None]:
    """Return the numbers of the losses of a run."""
    if not is_run(path):
        raise FileNotFoundError(
            f"{os.fspath(path)!r} is not a run of `pretrain` or `finetune`: it has no run.yaml. "
            "Pass the folder of a run, or `data` and `model`."
        )
    records = RunFolder.for_reading(path).metrics()
    last = records[-1] if records else {}
    # Losses before the length of rows or the objective changed do not compare.
    recent = itertools.takewhile(lambda x: _kind(x) in (None, _kind(last)), reversed(records))
    same = [*recent][::-1]
    numbers = _of_losses([record["loss"] for record in same if "loss" in record])
    held_out = [x["val_mlm_cross_entropy"] for x in same if "val_mlm_cross_entropy" in x]
    # Held-out losses are those of masked tokens in the longest rows.
    lengths = [kind[0] for kind in map(_kind, records) if kind]
    if held_out and lengths and _kind(last) == (max(lengths), False):
        numbers["overfitting"] = held_out[-1] / min(held_out)
    return numbers


def _kind(record: Mapping[str, float]) -> tuple[int, bool] | None:
    """Return the tokens per row before an evaluation, and whether next tokens were predicted."""
    if "tokens/s" not in record:
        return None
    return round(record["tokens/s"] / record["sequences/s"]), "next_token_accuracy" in record


def _of_losses(losses: Sequence[float]) -> dict[str, float | None]:
    """Return the numbers of training losses, each the mean of many steps."""
    if not all(map(math.isfinite, losses)):
        return {"rising loss": math.nan}
    rise = losses[-1] / max(min(losses), _LOW) if losses else None
    is_known = len(losses) > 1 and losses[0] >= _LOW
    return {"rising loss": rise, "flat loss": losses[-1] / losses[0] if is_known else None}


def _of_batches(model: BERTModel | TaskModel, data: tf.data.Dataset) -> dict[str, float | None]:
    """Return the numbers of a compiled model and its batches."""
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "`doctor` computes gradients with TensorFlow. Received: the Keras backend "
            f"{keras.backend.backend()!r}; unset KERAS_BACKEND, or pass a run."
        )
    check_type("data", data, tf.data.Dataset, "A model needs its training batches.")
    if getattr(model, "optimizer", None) is None:
        raise ValueError("`model` must be compiled. Received: a model without an optimizer.")
    batch = next(iter(data), None)
    if not isinstance(batch, tuple) or not isinstance(batch[0], Mapping):
        raise ValueError(
            "`data` must contain batches `(features, labels)`, with a dictionary of features such "
            f"as `tokens`. Received: {data!r:.200}."
        )
    features = {name: np.asarray(value) for name, value in batch[0].items()}
    tokens, lengths = features["tokens"], features.get("valid_lens")
    vocab = None if model.tokenizer is None else model.tokenizer.vocab
    is_padding = tokens == (0 if vocab is None else vocab.pad_id)
    num_tokens = np.sum(~is_padding) if lengths is None else np.sum(lengths)
    numbers = _of_gradients(model, batch) | {"padding": 1 - num_tokens / tokens.size}
    if "pred_positions" in features:
        numbers["visible answers"] = _visible(features, *batch[1:])
    if vocab is not None:
        counts = np.zeros(len(vocab), np.int64)
        for x, *_ in data.take(_COUNTED):
            counts += np.bincount(np.ravel(x["tokens"]), minlength=len(vocab))
        counts[[vocab.pad_id, vocab.cls_id, vocab.sep_id, vocab.mask_id]] = 0
        numbers["unknown words"] = counts[vocab.unk_id] / max(counts.sum(), 1)
    return numbers


def _of_gradients(model: BERTModel | TaskModel, batch: Any) -> dict[str, float | None]:
    """Return the numbers of the loss and the gradients on a few rows, without dropout."""
    rows = tf.nest.map_structure(lambda values: values[:_ROWS], batch)
    x, y, weights = keras.utils.unpack_x_y_sample_weight(rows)
    values = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = model.compute_loss(x, y, model(x, training=False), weights, training=False)
    zero = tf.UnconnectedGradients.ZERO
    found = tape.gradient(loss, values, unconnected_gradients=zero)
    model.reset_metrics()
    arrays = [tf.convert_to_tensor(one).numpy() for one in found]
    unused = sum(one.size for one in arrays if not np.any(one))
    return {
        "initial loss": _of_first_loss(model, float(loss)),
        "unused weights": unused / sum(one.size for one in arrays) if arrays else 1.0,
        "gradient norm": math.sqrt(sum(np.square(one, dtype="float64").sum() for one in arrays)),
    }


def _of_first_loss(model: BERTModel | TaskModel, loss: float) -> float | None:
    """Return a loss relative to that if all classes are equally likely; `None` for other losses."""
    of_heads = model.loss if isinstance(model.loss, Mapping) else {"": model.loss}
    are_classes = all(type(one) is WeightedCrossEntropy for one in of_heads.values())
    has_positions = isinstance(model, TaskModel) and len(model.outputs) > 1  # of each text's length
    if not are_classes or has_positions:
        return None
    return loss / sum(map(math.log, model.num_classes(model.max_row_len).values()))


def _visible(features: Mapping[str, np.ndarray], y: Any, weights: Any = None) -> float | None:
    """Return the share of the predictions whose token the model sees. A causal mask hides them."""
    labels = np.asarray(y["mlm"] if isinstance(y, Mapping) else y)
    weights = weights["mlm"] if isinstance(weights, Mapping) else weights
    if features.get("attention_mask", labels).ndim == 3:
        return None
    counted = (labels >= 0) & (np.asarray(1 if weights is None else weights) > 0)
    seen = np.take_along_axis(features["tokens"], features["pred_positions"], axis=1)
    return float(np.mean(labels[counted] == seen[counted])) if counted.any() else 0.0
