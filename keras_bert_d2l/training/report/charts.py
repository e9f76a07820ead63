"""The curves of one or several runs, as data for `charts.js`."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from keras_bert_d2l.training.report.run import Run, spread

Points: TypeAlias = list[tuple[float, float | None]]
Curves: TypeAlias = dict[str, dict[str, Points]]
"""For each metric, its curves on the training data and on the held-out data."""

TRAINING, HELD_OUT = "training", "held-out"
_PREFIX = "val_"
_MAX_POINTS = 400  # per curve, which is more than a chart can show
_TITLES = {  # in the order of the charts; other metrics come after the accuracies
    "loss": "Loss",
    "mlm_cross_entropy": "Masked-token loss",
    "mlm_accuracy": "Masked-token accuracy",
    "next_token_cross_entropy": "Next-token loss",
    "next_token_accuracy": "Next-token accuracy",
    "nsp_cross_entropy": "Next-sentence loss",
    "nsp_accuracy": "Next-sentence accuracy",
    "gradient_norm": "Gradient norm",
    "learning_rate": "Learning rate",
    "tokens/s": "Tokens per second",
    "sequences/s": "Sequences per second",
}


def charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the charts of runs of the same kind: one for each metric that any of them has."""
    curves = [_curves(run) for run in runs]
    names = sorted({name for one in curves for name in one}, key=_order)
    return [
        {
            "title": title(name),
            "unit": runs[0].unit,
            "startsAtZero": not name.endswith(("loss", "entropy", "norm")),
            "series": [
                {
                    "run": number,
                    "isHeldOut": kind == HELD_OUT,
                    "points": spread(points, _MAX_POINTS),
                }
                for number, one in enumerate(curves)
                for kind, points in sorted(one.get(name, {}).items(), reverse=True)
            ],
        }
        for name in names
    ]


def title(metric: str) -> str:
    """Return the title of a metric, without a prefix."""
    return _TITLES.get(metric) or metric.replace("_", " ").capitalize().replace("f1", "F1")


def _curves(run: Run) -> Curves:
    curves: Curves = {}
    for number, metrics in enumerate(run.metrics):
        step = metrics["step"]
        x = number + 1 if run.unit == "epoch" else step
        if (speed := run.evaluation(number).get("sequences/s")) is not None:
            metrics = {**metrics, "sequences/s": speed}
        for name, value in metrics.items():
            kind = HELD_OUT if name.startswith(_PREFIX) else TRAINING
            points = curves.setdefault(name.removeprefix(_PREFIX), {}).setdefault(kind, [])
            points.append((x, value if math.isfinite(value) else None))
    del curves["step"]
    for redundant, name in (("loss", "mlm_cross_entropy"), ("sequences/s", "tokens/s")):
        if name in curves:
            curves.pop(redundant, None)
    if curves.get("cross_entropy") == curves.get("loss"):  # unless the loss has further terms
        curves.pop("cross_entropy", None)
    if losses := run.state.get("points"):  # within epochs
        curves.setdefault("loss", {})[TRAINING] = [(x, loss) for x, loss in losses]
    return curves


def _order(name: str) -> tuple[float, str]:
    """Return a sort key: first the losses and accuracies, last what does not depend on the data."""
    places = list(_TITLES)
    return (places.index(name) if name in places else places.index("gradient_norm") - 0.5), name
