"""What the report of a run says in words, numbers and curves, read from its folder."""

import datetime
import math
import statistics
from collections.abc import Mapping
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
Pairs: TypeAlias = list[tuple[str, str]]
_MAX_COLUMNS = 7  # evaluations whose sample predictions are shown
_MAX_LABELS = 12


def charts(run: Run) -> list[dict[str, Any]]:
    """Return the charts of a run, one for each metric."""
    curves = _curves(run)
    return [
        {
            "title": _title(name),
            "unit": run.unit,
            "startsAtZero": not name.endswith(("loss", "entropy", "norm")),
            "series": [
                {"isHeldOut": kind == HELD_OUT, "points": spread(points, _MAX_POINTS)}
                for kind, points in sorted(curves[name].items(), reverse=True)
            ],
        }
        for name in sorted(curves, key=_order)
    ]


def _title(metric: str) -> str:
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


def as_text(value: object) -> str:
    """Return a value of an option or a measurement as text."""
    if isinstance(value, bool) or value is None:
        return {None: "default", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        most = sorted(value.items(), key=lambda pair: -pair[1])[:_MAX_LABELS]
        more = ["..."] if len(value) > _MAX_LABELS else []
        return ", ".join([*(f"{name} ({as_text(one)})" for name, one in most), *more]) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(as_text, value))
    return str(value)


def subtitle(run: Run) -> str:
    """Return what the run is, and how far it is."""
    kind = "Pretraining" if run.command == "pretrain" else "Fine-tuning"
    times = [record["time"] for record in (*run.starts, *run.evaluations.values())]
    when = f", {_date(max(times))}" if times else ""
    return f"{kind}, {run.unit} {_position(run, len(run.metrics) - 1):,}{_of_total(run)}{when}"


def _position(run: Run, index: int) -> int:
    """Return the step of an evaluation or, for fine-tuning, its epoch."""
    return index + 1 if run.unit == "epoch" else int(run.metrics[index]["step"])


def tiles(run: Run) -> Pairs:
    """Return the most important metrics of the best checkpoint, and its cost."""
    best = run.metrics[run.best]
    names = ["val_mlm_cross_entropy", "val_mlm_accuracy", "val_nsp_accuracy"]
    if run.command == "finetune":
        names = list(dict.fromkeys([run.summary.get("monitor", ""), "val_accuracy", "val_loss"]))
    data = "held-out" if run.command == "pretrain" else "development"
    found = [(f"{best[name]:.4g}", f"{_name(name)}, {data} data") for name in names if name in best]
    found.append((f"{_position(run, run.best):,}", f"best {run.unit}{_of_total(run)}"))
    speeds = [one["tokens/s"] for one in run.metrics if "tokens/s" in one]
    if speeds:
        found.append((f"{statistics.median(speeds):,.0f}", "tokens per second, median"))
    return found


def about(run: Run) -> Pairs:
    """Return the model and the options."""
    described = run.starts[0].get("model", {}) if run.starts else {}
    return [
        *described.items(),
        *((name, as_text(value)) for name, value in run.options.items() if value is not None),
    ]


def data_facts(run: Run) -> list[tuple[str, list[str]]]:
    """Return the rows of the table about the data: one value, or one per part of the data."""
    if run.command == "pretrain":
        found = run.starts[0].get("data", {}) if run.starts else {}
        return [(name, [as_text(value)]) for name, value in found.items()]
    parts = run.summary.get("data", {})
    rows = [("", ["training", "development"])] if parts else []
    for name in ("source", "examples", "rows", "truncated", "labels", "dropped"):
        values = [as_text(parts[part].get(name)) for part in ("train", "dev") if part in parts]
        if any(values):
            rows.append((name, values))
    return rows


def samples(run: Run) -> list[dict[str, Any]]:
    """Return the sample predictions of some evaluations, of the same examples."""
    found = [
        {"x": f"{_position(run, index):,}", "samples": record["samples"]}
        for index in range(len(run.metrics))
        if (record := run.evaluation(index)).get("samples")
    ]
    same = [one for one in found if len(one["samples"]) == len(found[-1]["samples"])]
    return spread(same, _MAX_COLUMNS)


def _of_total(run: Run) -> str:
    total = run.options.get("steps" if run.command == "pretrain" else "epochs")
    return f" of {total:,}" if total else ""


def _name(metric: str) -> str:
    return _title(metric.removeprefix("val_")).lower()


def _date(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M UTC")
