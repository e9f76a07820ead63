"""`Finding` and `Diagnosis`: the results of the doctor's checks."""

import dataclasses
import math
from typing import Literal

from keras_bert_d2l.inspection.learning_rate.range_test import RangeTest

Severity = Literal["cannot learn", "learns less", "costs time"]
_ORDER: tuple[Severity, ...] = ("cannot learn", "learns less", "costs time")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a check: a number and the limits within which it is healthy.

    Attributes:
        name: Name of the check.
        measures: What the number is.
        number: The measured number.
        low: The lowest healthy number.
        high: The highest healthy number.
        severity: What a fault does to the training.
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
        severity="costs time",
        meaning="Most of the computation is spent on padding.",
        remedy="Use rows='packed'.",
    )
    assert finding.is_fault
    ```
    """

    name: str
    measures: str
    number: float
    low: float = -math.inf
    high: float = math.inf
    severity: Severity
    meaning: str
    remedy: str

    @property
    def is_fault(self) -> bool:
        """Whether the number is outside the limits, or NaN."""
        return not self.low <= self.number <= self.high

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.measures} {self.number:.3g}, healthy {self.limits} "
            f"({self.severity})\n  {self.meaning} {self.remedy}"
        )

    @property
    def limits(self) -> str:
        """The limits as text."""
        if math.isinf(self.low):
            return f"at most {self.high:.3g}"
        if math.isinf(self.high):
            return f"at least {self.low:.3g}"
        return f"{self.low:.3g} to {self.high:.3g}"


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Result of `doctor`.

    Attributes:
        findings: The results of the checks: the faults, worst first, then the rest.
        skipped: The groups of checks that could not run, and why.
        tested: The range test of learning rates, with `lr_find`.

    Example:

    ```python
    import keras_bert_d2l as kb

    diagnosis = kb.Diagnosis(findings=(), skipped=("Text: it was not found.",))
    assert diagnosis.is_healthy
    ```
    """

    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()
    tested: RangeTest | None = None

    def __post_init__(self) -> None:
        ordered = sorted(self.findings, key=lambda x: (not x.is_fault, _ORDER.index(x.severity)))
        object.__setattr__(self, "findings", tuple(ordered))

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
        lines.append(f"{len(self.findings)} checks, {len(self.faults)} faults")
        if self.tested is not None:
            lines.append(str(self.tested))
        return "\n".join([*lines, *(f"Skipped: {reason}" for reason in self.skipped)])
