"""Checks of pretraining batches: masks and padding.

B batch, T tokens, P predicted positions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.inspection.doctor.finding import Finding

_SPECIAL = 0.001


class Predictions(NamedTuple):
    """The predicted tokens of a batch.

    Attributes:
        labels: The tokens to predict.
        seen: What the model sees at their positions.
        num_tokens: Number of tokens of the batch without padding.
    """

    labels: np.ndarray
    seen: np.ndarray
    num_tokens: int


def predictions(
    features: Mapping[str, np.ndarray], labels: np.ndarray, weights: np.ndarray | None
) -> Predictions:
    """Return the predictions of a batch that count in the loss."""
    tokens, positions = np.asarray(features["tokens"]), np.asarray(features["pred_positions"])
    counted = np.asarray(labels) >= 0
    if weights is not None:
        counted &= np.asarray(weights) > 0
    seen = np.take_along_axis(tokens, positions, axis=1)
    lengths = features.get("valid_lens")
    num_tokens = tokens.size if lengths is None else int(np.sum(lengths))
    return Predictions(np.asarray(labels)[counted], seen[counted], num_tokens)


def mask_share(found: Predictions) -> Finding:
    """Return the share of the tokens that are predicted.

    Devlin et al. 2019 predict 15%. Wettig et al. 2022 find 40% as good for large models and more
    to be harmful; below 5%, a step learns from a third of the usual predictions or fewer.
    """
    return Finding(
        name="mask share",
        measures="share of the tokens that are predicted",
        number=len(found.labels) / max(found.num_tokens, 1),
        low=0.05,
        high=0.45,
        severity="learns less",
        meaning="Too few tokens are predicted to learn from, or too few are left as context.",
        remedy="Use a `mask_rate` from 0.15 to 0.4, and check the weights of the predictions.",
    )


def visible_answers(found: Predictions) -> Finding:
    """Return the share of the predictions whose token the model sees.

    10% are kept on purpose (Devlin et al. 2019). If it sees half of them, copying is the better
    part of the task.
    """
    return Finding(
        name="visible answers",
        measures="share of the predicted tokens that are not masked",
        number=float(np.mean(found.labels == found.seen)) if len(found.labels) else 0.0,
        high=0.5,
        severity="cannot learn",
        meaning="The model sees the tokens that it should predict, and learns to copy them.",
        remedy="Replace the predicted tokens in `tokens` by the id of [MASK], as "
        "`pretraining_dataset` does.",
    )


def special_tokens(found: Predictions, special_ids: Sequence[int]) -> Finding:
    """Return the share of the predictions that are special tokens.

    `[CLS]`, `[SEP]` and `[PAD]` are at positions that the model knows, so predicting them teaches
    nothing and lowers the loss; there should be none. Texts may contain a few as words.
    """
    share = float(np.isin(found.labels, list(special_ids)).mean()) if len(found.labels) else 0.0
    return Finding(
        name="special tokens",
        measures="share of the predicted tokens that are special tokens",
        number=share,
        high=_SPECIAL,
        severity="learns less",
        meaning="The model is trained to predict tokens that it can see from their position.",
        remedy="Choose the predicted positions among the tokens of the text, without [CLS], [SEP] "
        "and [PAD], and give unused predictions the weight 0.",
    )


def padding(features: Mapping[str, np.ndarray], pad_id: int) -> Finding:
    """Return the share of padding in a batch.

    Above 50%, more than half of the time is spent on tokens that do not count.
    """
    tokens, lengths = np.asarray(features["tokens"]), features.get("valid_lens")
    used = np.sum(tokens != pad_id) if lengths is None else np.sum(lengths)
    return Finding(
        name="padding",
        measures="share of padding in a batch",
        number=1 - float(used) / tokens.size,
        high=0.5,
        severity="costs time",
        meaning="Most of the computation is spent on padding.",
        remedy="Use `--rows packed`, batches of texts of similar length, or a smaller `--max-len`.",
    )
