"""Plot of a learning rate range test, as an SVG without scripts."""

import math
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.pages import fill

_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 700, 40, 360  # edges of the plot in an image of 720 x 410
_NUM_LINES = 6


def plot(
    rates: Sequence[float],
    losses: Sequence[float],
    smoothed: Sequence[float],
    proposal: float | None,
) -> str:
    """Return the plot: losses over rates on a logarithmic axis, and the proposed rate."""
    lowest, highest = math.log10(rates[0]), math.log10(rates[-1])
    least, most = min(losses), max(*smoothed, losses[0])

    def x(rate: float) -> float:
        share = (math.log10(rate) - lowest) / ((highest - lowest) or 1)
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    def y(loss: float) -> float:
        share = min(1.0, (loss - least) / ((most - least) or 1))
        return round(_BOTTOM - share * (_BOTTOM - _TOP), 1)

    def line(values: Sequence[float]) -> str:
        return " ".join(f"{x(rate)},{y(value)}" for rate, value in zip(rates, values, strict=True))

    decades = [10.0**n for n in range(math.ceil(lowest), math.floor(highest) + 1)]
    return fill(
        "inspection/learning_rate/plot.svg.jinja",
        columns=[(x(rate), f"{rate:.0e}") for rate in decades],
        lines=[(y(loss), f"{loss:.3g}") for loss in np.linspace(least, most, _NUM_LINES)],
        losses=line(losses),
        smoothed=line(smoothed),
        proposal=None if proposal is None else (x(max(proposal, rates[0])), f"{proposal:.2g}"),
    )
