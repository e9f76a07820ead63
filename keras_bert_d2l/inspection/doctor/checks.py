"""The doctor's checks: a table of numbers, the limits within which they are healthy, and remedies.

A function measures one number of the `Evidence`, or returns `None` without evidence for it. Its
docstring gives the reason for the limits. `CHECKS` at the end is the table.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Hashable, Mapping

import numpy as np

from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.inspection.doctor.evidence import Evidence, chance_of
from keras_bert_d2l.training.pretraining.options import PretrainingOptions

_LOW = 0.1  # a loss that need not fall any more


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
        if math.isinf(self.high):
            return f"at least {self.low:.3g}"
        return f"{self.low:.3g} to {self.high:.3g}"


def examine(evidence: Evidence) -> list[Finding]:
    """Return the findings of the checks for which there is evidence."""
    numbers = [(finding, measure(evidence)) for measure, finding in CHECKS.items()]
    return [
        dataclasses.replace(finding, number=float(number))
        for finding, number in numbers
        if number is not None
    ]


def _initial_loss(evidence: Evidence) -> float | None:
    """The loss before the first step, relative to chance.

    New output layers start close to 0, so that all classes are equally likely: the loss is ln V for
    V tokens, plus ln 2 for the next sentence, or ln C for C labels. With the initializers of this
    package it differs by at most 3% up to a width of 1024. Checkpoints are better than chance.
    """
    model, records = evidence.model, evidence.records
    if model is None:
        return None
    if records and isinstance(evidence.options, PretrainingOptions):
        heads = [name for name in ("mlm", "nsp") if f"val_{name}_cross_entropy" in records[0]]
        loss = sum(records[0][f"val_{name}_cross_entropy"] for name in heads)
        return loss / (math.log(model.bert_config.vocab_size) + math.log(2) * ("nsp" in heads))
    first, chance = evidence.first_loss, chance_of(model)
    return None if first is None or chance is None else first / chance


def _rising_loss(evidence: Evidence) -> float | None:
    """The rise of the training loss.

    Means over the steps between two evaluations vary by 1 to 3%, so a rise of 10% is no noise.
    """
    losses = evidence.training_losses
    if not losses or not all(map(math.isfinite, losses)):
        return math.nan if losses else None
    return losses[-1] / max(min(losses), _LOW)


def _flat_loss(evidence: Evidence) -> float | None:
    """The fall of the training loss: both losses are means over many steps, so 2% is the least."""
    losses = evidence.training_losses
    return losses[-1] / losses[0] if len(losses) > 1 and losses[0] >= _LOW else None


def _unigram_plateau(evidence: Evidence) -> float | None:
    """The steps that a run has spent at the unigram entropy of its text, up to now.

    A model that ignores the context predicts tokens by their frequencies, which gives this loss.
    Every BERT stays there for a while; more than 1,000 steps within 3% are a plateau.
    """
    losses, counts = evidence.held_out_losses, evidence.token_counts
    if not losses or counts is None:
        return None
    shares = counts[counts > 0] / counts.sum()
    entropy = float(-(shares * np.log(shares)).sum())
    steps = [record["step"] for record in evidence.recent]
    begin = steps[-1]
    for step, loss in zip(reversed(steps), reversed(losses), strict=True):
        if not 0.97 <= loss / entropy <= 1.1:
            break
        begin = step
    return steps[-1] - begin


def _overfitting(evidence: Evidence) -> float | None:
    """The rise of the held-out loss. Evaluations use the same masks, so noise is far below 5%."""
    losses = evidence.held_out_losses
    return losses[-1] / min(losses) if losses else None


def _unknown_words(evidence: Evidence) -> float | None:
    """The share of `[UNK]`.

    WordPiece vocabularies leave less than 0.1% of a text that they fit. 2% are several in each row.
    """
    counts, vocab = evidence.token_counts, evidence.vocab
    return None if counts is None or vocab is None else counts[vocab.unk_id] / counts.sum()


def _visible_answers(evidence: Evidence) -> float | None:
    """The share of the predictions whose token the model sees.

    10% are kept on purpose (Devlin et al. 2019). If it sees half of them, copying is the better
    part of the task. A causal mask hides the answers, so that such batches are not checked.
    """
    batch = evidence.batch
    if batch is None or "pred_positions" not in batch[0]:
        return None
    features, y, sample_weight = batch
    labels = np.asarray(y["mlm"] if isinstance(y, Mapping) else y)
    weights = sample_weight["mlm"] if isinstance(sample_weight, Mapping) else sample_weight
    if features.get("attention_mask", labels).ndim == 3:
        return None
    counted = (labels >= 0) & (np.asarray(1 if weights is None else weights) > 0)
    seen = np.take_along_axis(features["tokens"], features["pred_positions"], axis=1)
    return float(np.mean(labels[counted] == seen[counted])) if counted.any() else 0.0


def _padding(evidence: Evidence) -> float | None:
    """The share of padding: above 50%, most of the time is spent on tokens that do not count."""
    if evidence.batch is None:
        return None
    features, vocab = evidence.batch[0], evidence.vocab
    tokens, lengths = features["tokens"], features.get("valid_lens")
    pad_id = 0 if vocab is None else vocab.pad_id
    return 1 - (np.sum(tokens != pad_id) if lengths is None else np.sum(lengths)) / tokens.size


def _leak(evidence: Evidence) -> float | None:
    """The share of the development examples that are also training examples.

    Short texts repeat by chance; 5% of them raise the accuracy by up to 5 points.
    """
    if evidence.examples is None:
        return None
    train, dev = map(_texts, evidence.examples)
    known = set(train)
    return sum(example in known for example in dev) / len(dev)


def _texts(examples: TaskExamples) -> list[tuple[Hashable, ...]]:
    """Return the texts of each example, without its label."""
    found = [getattr(examples, name) for name in examples.sequences[:-1]]
    return list(zip(*(values for values in found if values is not None), strict=True))


def _unused_weights(evidence: Evidence) -> float | None:
    """The share of the trainable weights that the loss does not depend on.

    5% leaves room for embeddings of segments and the pooler, which small models may not use.
    """
    if evidence.gradients is None:
        return None
    values = evidence.gradients[1]
    unused = sum(value.size for value in values if not np.any(value))
    return unused / sum(value.size for value in values) if values else 1.0


def _gradient_norm(evidence: Evidence) -> float | None:
    """The global norm of the gradient; NaN if a weight is not finite.

    It is 0.1 to 10 for BERT, in training and at its start. Below 1e-4, Adam's epsilon (1e-6 per
    weight) begins to count. Above 100, clipping to 1 leaves the direction of a few examples.
    """
    if evidence.gradients is None:
        return None
    return math.sqrt(sum(np.square(g, dtype="float64").sum() for g in evidence.gradients[1]))


# Faults that stop the learning come first, then those that weaken it or cost time.
CHECKS: dict[Callable[[Evidence], float | None], Finding] = {
    _initial_loss: Finding(
        name="initial loss",
        measures="loss before the first step / loss if all classes are equally likely",
        high=1.1,
        meaning="The model is worse than chance on this data.",
        remedy="Check that labels, ids and a checkpoint belong to this vocabulary, and the scale "
        "of the initial weights.",
    ),
    _rising_loss: Finding(
        name="rising loss",
        measures="last training loss / lowest training loss",
        high=1.1,
        meaning="The training diverges: the learning rate is too high.",
        remedy="Lower the learning rate to a third or a tenth, or use a longer warm-up. "
        "With mixed_float16, use mixed_bfloat16 or float32.",
    ),
    _flat_loss: Finding(
        name="flat loss",
        measures="last training loss / first training loss",
        high=0.98,
        meaning="The loss does not fall.",
        remedy="Try a learning rate three times higher or lower, check that labels belong to their "
        "texts, and that the weights are trained.",
    ),
    operator.attrgetter("num_answers"): Finding(
        name="one answer",
        measures="different answers of the best epoch for up to 100 development examples",
        low=2,
        meaning="The model gives one answer for everything, although the right ones differ.",
        remedy="If the training loss still fell at the end, train for more epochs or in smaller "
        "batches. If not, try a learning rate three times higher or lower, or class weights.",
    ),
    _unigram_plateau: Finding(
        name="unigram plateau",
        measures="steps with a held-out MLM loss at the unigram entropy of the text",
        high=1000,
        meaning="The model knows how frequent tokens are, but does not use their context.",
        remedy="Train on short rows first (`--short-steps 0.5`), try a learning rate "
        "three times higher or lower, and check that attention masks do not hide the context.",
    ),
    _visible_answers: Finding(
        name="visible answers",
        measures="share of the predicted tokens that are not masked",
        high=0.5,
        meaning="The model sees the tokens that it should predict, and learns to copy them.",
        remedy="Replace the predicted tokens in `tokens` by the id of [MASK], as "
        "`pretraining_dataset` does.",
    ),
    _unused_weights: Finding(
        name="unused weights",
        measures="share of the trainable weights without a gradient",
        high=0.05,
        meaning="The loss does not depend on these weights, so they stay as they are.",
        remedy="Check that the outputs of these layers reach the loss, that the weights of the "
        "predictions are not all 0, and that the layers to train are not frozen.",
    ),
    _gradient_norm: Finding(
        name="gradient norm",
        measures="global norm of the gradient",
        low=1e-4,
        high=100,
        meaning="The gradient vanishes, explodes or, with weights that are not finite, is NaN.",
        remedy="Check the scale of the weights (truncated normal, 0.02) and of the loss, and that "
        "layer normalization is in place. A lower learning rate helps against explosion.",
    ),
    _overfitting: Finding(
        name="overfitting",
        measures="last held-out loss / lowest held-out loss",
        high=1.05,
        meaning="The model becomes worse on text that it does not train on.",
        remedy="Stop earlier (`best/` has the best weights), add text, or raise the dropout.",
    ),
    _unknown_words: Finding(
        name="unknown words",
        measures="share of tokens that are [UNK]",
        high=0.02,
        meaning="The vocabulary lacks characters or words of the text.",
        remedy="Learn a vocabulary from this text (`--vocab-size`), or check language, casing and "
        "encoding.",
    ),
    _leak: Finding(
        name="leaking examples",
        measures="share of the development examples that are also in the training data",
        high=0.05,
        meaning="The metrics show what the model remembers, not what it has learned.",
        remedy="Remove them from the training data. Without `--dev`, equal texts are always in the "
        "same part.",
    ),
    _padding: Finding(
        name="padding",
        measures="share of padding in a batch",
        high=0.5,
        meaning="Most of the computation is spent on padding.",
        remedy="Use `--rows packed`, batches of texts of similar length, or a smaller `--max-len`.",
    ),
}
