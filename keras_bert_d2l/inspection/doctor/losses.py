"""Checks of the losses that a run has recorded."""

import math
from collections.abc import Sequence

from keras_bert_d2l.inspection.doctor.finding import Finding

_SETTLED = 500  # steps after which every run has learned how frequent the tokens are
_PATIENCE = 1000  # steps that a run may spend at the unigram entropy
_SEEN_PAIRS = 2000  # steps after which a next-sentence head is better than chance
_LOW = 0.1  # a loss that need not fall any more


def initial_loss(loss: float, chance: float, *, is_new: bool | None) -> Finding:
    """Compare the loss before the first step with that of equally likely classes.

    New output layers start close to 0, so that all classes are equally likely: the loss is ln V for
    V tokens, plus ln 2 for the next sentence. With the initializers of this package it differs by
    at most 3% up to a width of 1024; a wrong vocabulary, labels that are shifted, or weights that
    are too large change it by far more than 10%. A checkpoint must be better than chance.

    Args:
        loss: The loss before the first step.
        chance: The loss if all classes are equally likely.
        is_new: Whether the output layer is new, not that of a checkpoint. `None`: unknown.
    """
    return Finding(
        name="initial loss",
        measures=f"loss before the first step / chance ({chance:.2f})",
        number=loss / chance,
        low=0.9 if is_new else -math.inf,
        high=1.0 if is_new is False else 1.1,
        severity="cannot learn",
        meaning="The checkpoint is no better than chance on this data."
        if is_new is False
        else "The run does not start with equally likely classes.",
        remedy="Check that the checkpoint was trained with this vocabulary, casing and objective."
        if is_new is False
        else "Check that labels and ids belong to this vocabulary, and the scale of the initial "
        "weights.",
    )


def rising_loss(losses: Sequence[float]) -> Finding:
    """Compare the last training loss with the lowest one.

    Means over the steps between two evaluations vary by 1 to 3%, so a rise of 10% is no noise.

    Args:
        losses: The training loss of each evaluation.
    """
    finite = [loss for loss in losses if math.isfinite(loss)]
    is_finite = bool(finite) and len(finite) == len(losses)
    return Finding(
        name="rising loss",
        measures="last training loss / lowest training loss",
        number=losses[-1] / max(min(finite), _LOW) if is_finite else math.nan,
        high=1.1,
        severity="cannot learn",
        meaning="The training diverges: the learning rate is too high.",
        remedy="Lower the learning rate to a third or a tenth, or use a longer warm-up; "
        "`--lr-find` proposes a rate.",
    )


def slow_start(step: int, loss: float, unigram_entropy: float, warmup_steps: int) -> Finding | None:
    """Compare the held-out MLM loss with the unigram entropy of the text, after the first steps.

    The frequencies of the tokens are what a model learns first, from the output bias alone. 10%
    above their entropy after 500 steps (and twice the warm-up), the steps are too small.

    Args:
        step: The number of steps.
        loss: The held-out MLM loss.
        unigram_entropy: The entropy of the tokens of the text.
        warmup_steps: The steps of the warm-up.
    """
    if step < max(_SETTLED, 2 * warmup_steps):
        return None
    return Finding(
        name="slow start",
        measures=f"held-out MLM loss / unigram entropy ({unigram_entropy:.2f})",
        number=loss / unigram_entropy,
        high=1.1,
        severity="cannot learn",
        meaning="The model has not even learned how frequent the tokens are.",
        remedy="Raise the learning rate three to tenfold; `--lr-find` proposes a rate. Check that "
        "the output layer is trained.",
    )


def unigram_plateau(
    steps: Sequence[int], losses: Sequence[float], unigram_entropy: float
) -> Finding:
    """Count the steps that the run has spent at the unigram entropy, up to now.

    A model that ignores the context predicts tokens by their frequencies, which gives the unigram
    entropy. Every BERT stays there for a while; more than 1,000 steps within 3% are a plateau.

    Args:
        steps: The step of each evaluation, ascending.
        losses: The held-out MLM loss of each evaluation.
        unigram_entropy: The entropy of the tokens of the text.
    """
    begin = steps[-1]
    for step, loss in zip(reversed(steps), reversed(losses), strict=True):
        if not 0.97 <= loss / unigram_entropy <= 1.1:
            break
        begin = step
    return Finding(
        name="unigram plateau",
        measures=f"steps with a held-out MLM loss at the unigram entropy ({unigram_entropy:.2f})",
        number=steps[-1] - begin,
        high=_PATIENCE,
        severity="cannot learn",
        meaning="The model knows how frequent tokens are, but does not use their context.",
        remedy="Train on short rows first (`--short-steps 0.5`), check the learning rate with "
        "`--lr-find`, and check that attention masks do not hide the context.",
    )


def next_sentence(steps: int, losses: Sequence[float]) -> Finding | None:
    """Compare the lowest held-out next-sentence loss with chance, ln 2.

    After 2,000 steps, 2% below chance is the least that a head that learns has reached once. Later
    losses may be higher again: a head that is too sure of itself is above ln 2, but not at chance.

    Args:
        steps: The number of steps.
        losses: The held-out next-sentence loss of each evaluation.
    """
    if steps < _SEEN_PAIRS:
        return None
    return Finding(
        name="next sentence",
        measures="lowest held-out next-sentence loss / ln 2",
        number=min(losses) / math.log(2),
        high=0.98,
        severity="learns less",
        meaning="The next-sentence head is no better than chance.",
        remedy="Use `--objective none`, which RoBERTa found to be as good, or check that documents "
        "have several sentences in their order.",
    )


def overfitting(losses: Sequence[float]) -> Finding:
    """Compare the last held-out loss with the lowest one.

    Evaluations use the same masks, so their noise is far below 5%.

    Args:
        losses: The held-out loss of each evaluation.
    """
    return Finding(
        name="overfitting",
        measures="last held-out loss / lowest held-out loss",
        number=losses[-1] / min(losses),
        high=1.05,
        severity="learns less",
        meaning="The model becomes worse on text that it does not train on.",
        remedy="Stop earlier (`best/` has the best weights), add text, or raise the dropout.",
    )


def learning_rate_for_batch(
    learning_rate: float, num_tokens: int, width: int, *, is_pretraining: bool
) -> Finding:
    """Compare the learning rate with what the batch size and the width of the model suggest.

    For Adam, rates grow with the square root of the batch (Malladi et al. 2022) and shrink with the
    width (Yang et al. 2021). From this package's defaults, 1e-3 for 8,192 tokens at width 256 and
    5e-5 for 4,096 tokens at width 768, the rates of BERT, RoBERTa, 24-hour BERT and Cramming are
    within a factor of 15, so a factor of 20 means a rate that was meant for another batch size.

    Args:
        learning_rate: The peak of the learning rate.
        num_tokens: Tokens per step, with padding.
        width: Width of the encoder.
        is_pretraining: Whether the weights are pretrained, not fine-tuned.
    """
    rate, tokens, hiddens = (1e-3, 8192, 256) if is_pretraining else (5e-5, 4096, 768)
    usual = rate * math.sqrt(num_tokens / tokens) * hiddens / width
    return Finding(
        name="learning rate and batch size",
        measures=f"learning rate / usual rate for {num_tokens:,} tokens per step ({usual:.1e})",
        number=learning_rate / usual,
        low=1 / 20,
        high=20,
        severity="learns less",
        meaning="The learning rate belongs to another batch size or another model.",
        remedy=f"Try `--learning-rate {usual:.1e}`, or let `--lr-find` propose a rate.",
    )


def flat_loss(losses: Sequence[float]) -> Finding | None:
    """Compare the last training loss with the first one.

    Both are means over many steps, so 2% is the least that learning must show. A loss below 0.1 at
    the start has nowhere to fall.

    Args:
        losses: The mean training loss of each epoch, or of some hundred steps.
    """
    if len(losses) < 2 or losses[0] < _LOW:
        return None
    return Finding(
        name="flat loss",
        measures="last training loss / first training loss",
        number=losses[-1] / losses[0],
        high=0.98,
        severity="cannot learn",
        meaning="The loss does not fall.",
        remedy="Let `--lr-find` propose a learning rate, check that labels belong to their texts, "
        "and that the weights are trained.",
    )


def tested_learning_rate(learning_rate: float, proposal: float | None) -> Finding:
    """Compare the learning rate with the proposal of a range test.

    The proposal is a fifth of the rate at which the loss was lowest, so ten times the proposal is
    above the rate at which the loss rises. A tenth of it was clearly slower on WikiText-2.

    Args:
        learning_rate: The peak of the learning rate.
        proposal: The proposal of `find_learning_rate`. `None`: no rate lowered the loss.
    """
    return Finding(
        name="tested learning rate",
        measures="learning rate / rate that the range test proposes",
        number=math.nan if proposal is None else learning_rate / proposal,
        low=0.1,
        high=10,
        severity="cannot learn",
        meaning="No learning rate lowers the loss."
        if proposal is None
        else "The learning rate is far from the rates that lower the loss.",
        remedy="Check the labels, the masks and the weights."
        if proposal is None
        else f"Use `--learning-rate {proposal:.1e}`.",
    )
