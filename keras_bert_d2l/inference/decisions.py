"""`Decisions`: how far the probabilities of a model can be trusted.

n: number of decisions.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checks import check_positive

NUM_BINS = 15


class Decisions(NamedTuple):
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

    decisions = kb.Decisions.of([(0.9, True), (0.9, True), (0.6, False)])
    print(decisions.calibration_error)
    coverage, accuracy = decisions.with_confidence(0.8)
    ```
    """

    confidence: np.ndarray
    is_right: np.ndarray

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, bool]]) -> "Decisions":
        """Return the decisions for pairs of a probability and whether it is right."""
        confidence, is_right = np.reshape([*pairs], (-1, 2)).T
        return cls(confidence, is_right > 0)

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

        Args:
            least: The confidence, above 0 and at most 1.
        """
        is_decided = self.confidence >= check_positive("least", least, most=1)
        right = float(self.is_right[is_decided].mean()) if is_decided.any() else np.nan
        return float(is_decided.mean()), right

    def risk_coverage(self) -> list[tuple[float, float]]:
        """Return the coverage and the risk, the share of errors, for each least confidence.

        The most confident decisions come first. Decisions of equal confidence are only made
        together.
        """
        _, places, counts = np.unique(-self.confidence, return_inverse=True, return_counts=True)
        numbers, wrong = np.cumsum(counts), np.cumsum(np.bincount(places, ~self.is_right))
        return [*zip((numbers / numbers[-1]).tolist(), (wrong / numbers).tolist(), strict=True)]
