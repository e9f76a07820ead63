"""`Decisions`: how far the probabilities of a model can be trusted.

n: number of decisions.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

NUM_BINS = 15


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Decisions:
    """Decisions of a model on labeled data: their probabilities, and which of them are right.

    A decision is the label of a text or a word, or a choice. If a text can have any number of
    labels, each pair of a text and a label counts: `confidence` is then the probability that the
    text has the label, and `is_right` whether it has.

    Source: Guo et al. 2017 (On Calibration of Modern Neural Networks), section 2; El-Yaniv and
    Wiener 2010 (On the Foundations of Noise-free Selective Classification).

    Attributes:
        confidence: The probabilities, float64 `(n,)`.
        is_right: Whether each decision is right, bool `(n,)`.

    Example:

    ```python
    import keras_bert_d2l as kb

    decisions = kb.Decisions([0.9, 0.9, 0.6], [True, True, False])
    print(decisions.calibration_error)
    coverage, accuracy = decisions.with_confidence(0.8)
    ```
    """

    confidence: np.ndarray
    is_right: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", np.asarray(self.confidence, "float64"))
        object.__setattr__(self, "is_right", np.asarray(self.is_right, bool))

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, bool]]) -> "Decisions":
        """Return the decisions for pairs of a probability and whether it is right."""
        return cls(*np.reshape([*pairs], (-1, 2)).T)

    def __repr__(self) -> str:
        size, error = len(self.confidence), self.calibration_error
        return f"Decisions({size:,} decisions, calibration_error={error:.4g})"

    def bins(self) -> list[tuple[float, float, int]]:
        """Return the mean confidence, the share of right decisions and the count of each bin.

        Bin b of 15 has the probabilities above `(b - 1) / 15` and up to `b / 15`. Without
        decisions, both means are 0.
        """
        places = np.clip(np.ceil(self.confidence * NUM_BINS) - 1, 0, NUM_BINS - 1).astype(int)
        counts = np.bincount(places, minlength=NUM_BINS)
        sums = (np.bincount(places, x, NUM_BINS) for x in (self.confidence, self.is_right))
        means = (x / np.maximum(counts, 1) for x in sums)
        return [*zip(*(x.tolist() for x in (*means, counts)), strict=True)]

    @property
    def calibration_error(self) -> float:
        """Expected calibration error, from 0 to 1, over 15 bins of equal width.

        It is the mean difference between the confidence and the share of right decisions of a bin,
        weighted by the number of decisions in it.
        """
        distances = sum(abs(mean - share) * count for mean, share, count in self.bins())
        return distances / max(len(self.confidence), 1)

    def with_confidence(self, least: float) -> tuple[float, float]:
        """Return the coverage of the decisions with at least a confidence, and their accuracy.

        The coverage is their share of all decisions. The accuracy is NaN if there are none.
        """
        is_decided = self.confidence >= least
        right = float(self.is_right[is_decided].mean()) if is_decided.any() else np.nan
        return float(is_decided.mean()), right

    def risk_coverage(self) -> list[tuple[float, float]]:
        """Return the coverage and the risk, the share of errors, for each least confidence.

        The most confident decisions come first. Decisions of equal confidence are only made
        together.
        """
        order = np.argsort(-self.confidence, kind="stable")
        values, numbers = self.confidence[order], np.arange(1, len(order) + 1)
        risks = np.cumsum(~self.is_right[order]) / numbers
        is_last = np.append(values[1:] != values[:-1], True)[: len(order)]
        points = (numbers[is_last] / len(order), risks[is_last])
        return [*zip(*(x.tolist() for x in points), strict=True)]
