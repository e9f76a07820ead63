"""`run_report`: a page about a run, with what the files in its folder say about it.

`RunRecorder` keeps the page up to date while the run trains.
"""

import collections
import contextlib
import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import keras
import tensorflow as tf
from jinja2.utils import htmlsafe_json_dumps

from keras_bert_d2l.checks import check_path
from keras_bert_d2l.files import write_text
from keras_bert_d2l.pages import Page, render
from keras_bert_d2l.training.devices import is_first
from keras_bert_d2l.training.options import read_options
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.types import PathLike

STYLES, SCRIPTS = ["training/report/page/runs.css"], ["training/report/page/charts.js"]

T = TypeVar("T")
Pairs: TypeAlias = list[tuple[str, str]]
Points: TypeAlias = list[tuple[float, float | None]]
Curves: TypeAlias = dict[str, dict[str, Points]]
"""For each metric, its curves on the training data and on the held-out data."""

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
    "rtd_cross_entropy": "Replaced-token loss",
    "rtd_accuracy": "Replaced-token accuracy",
    "rtd_auc": "Replaced-token AUC",
    "gradient_norm": "Gradient norm",
    "learning_rate": "Learning rate",
    "tokens/s": "Tokens per second",
    "sequences/s": "Sequences per second",
}
_MAX_COLUMNS = 7  # evaluations whose sample predictions are shown
_MAX_LABELS = 12
_CPU_INFO = pathlib.Path("/proc/cpuinfo")  # on Linux


class Run:
    """A pretraining or fine-tuning run, which may be in progress.

    Args:
        path: Its folder or its URL.

    Attributes:
        is_pretraining: Whether it is a pretraining run.
        unit: What the horizontal axis of its curves counts.
        title: The end of the path of its folder.
        metrics: The metrics of each evaluation, with NaN for values that are not finite.
        summary: The content of `metrics.json`; empty for pretraining.
        options: Its options.
        starts: One record for each time the run was started or resumed.
        evaluations: The records of evaluations, by step. After a calibration, the best has a
            second one, which counts.
        calibration: The record of the calibration; `None` if there is none.
        points: With fine-tuning, the training loss within epochs.
        best: The index of the evaluation whose checkpoint is in `best/`, or 0 if there is none.

    Raises:
        ValueError: The folder is not that of a run, or a file is damaged.
    """

    def __init__(self, path: PathLike) -> None:
        check_path("run_dir", path)
        folder = RunFolder.for_reading(path)
        self.metrics: Sequence[Mapping[str, float]] = folder.metrics()
        if not self.metrics:
            raise ValueError(
                f"{folder.name!r} must be the folder of a run that has been evaluated. "
                f"Received: a path without metrics in {folder.metrics_file.name!r}."
            )
        self.is_pretraining = folder.config_file.is_file()
        self.unit = "step" if self.is_pretraining else "epoch"
        self.title = "/".join(folder.path.resolve().parts[-2:])
        self.summary = folder.read_json(folder.summary_file)
        self.options: Mapping[str, Any] = self.summary.get("options", {})
        if folder.options_file.is_file():
            self.options = read_options(folder.options_file)
        records = folder.records()
        self.starts = [record for record in records if "machine" in record]
        self.evaluations = {
            one["step"]: one for one in records if not {"machine", "calibration"} & one.keys()
        }
        self.calibration = next((x["calibration"] for x in records if "calibration" in x), None)
        state = folder.read_json(folder.state_file)
        self.points = state.get("points")
        steps = [metrics["step"] for metrics in self.metrics]
        if self.is_pretraining:
            best = state.get("best_step")
            self.best = steps.index(best) if best in steps else 0
        else:
            self.best = (self.summary.get("best_epoch") or 1) - 1

    def evaluation(self, index: int) -> Mapping[str, Any]:
        """Return the record of an evaluation, which is empty in a run of an earlier version."""
        return self.evaluations.get(int(self.metrics[index]["step"]), {})


def run_report(run_dir: PathLike, path: PathLike | None = None) -> Page:
    r"""Write a page about a run: curves, sample predictions, errors, data and machine.

    `pretrain` and `finetune` write this page to the run folder at each evaluation, as
    `report.html`. This function writes it again, also for a run of an earlier version. What such a
    run did not record is missing in its page.

    Args:
        run_dir: The folder of the run or its URL. The run may be in progress.
        path: File to write. `None`: write no file; a notebook shows the result.

    Returns: the page.

    Raises:
        ValueError: The folder is not that of a run with an evaluation, or a file is damaged.

    Example:

    ```python
    import json
    import pathlib

    import keras_bert_d2l as kb

    run = pathlib.Path("runs/films")  # a folder that `pretrain` or `finetune` wrote
    run.mkdir(parents=True)
    metrics = {"step": 10, "loss": 0.6, "val_loss": 0.7, "val_accuracy": 0.8}
    (run / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    kb.run_report(run, "report.html")
    ```
    """
    run = Run(run_dir)
    best, found = run.evaluation(run.best), _charts(run)
    to_draw = {"curves": found, "calibration": run.calibration}
    page = render(
        "training/report/page/report.html.jinja",
        f"Report of {run.title}",
        styles=STYLES,
        scripts=SCRIPTS,
        data={x: htmlsafe_json_dumps(y) for x, y in to_draw.items()},
        run=run,
        subtitle=_subtitle(run),
        warning=run.summary.get("warning"),
        tiles=_tiles(run),
        charts=found,
        samples=_samples(run),
        confusion=best.get("confusion"),
        errors=best.get("errors", []),
        about=_about(run),
        facts=_data_facts(run),
        machine=run.starts[-1]["machine"] if run.starts else {},
    )
    if path is not None:
        write_text(path, page.html)
    return page


def _charts(run: Run) -> list[dict[str, Any]]:
    """Return the charts of a run, one for each metric."""
    curves = _curves(run)
    return [
        {
            "title": _title(name),
            "unit": run.unit,
            "startsAtZero": not name.endswith(("loss", "entropy", "norm")),
            "series": [
                {"isHeldOut": kind == "held-out", "points": spread(points, _MAX_POINTS)}
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
        for name, value in metrics.items():
            kind = "held-out" if name.startswith(_PREFIX) else "training"
            points = curves.setdefault(name.removeprefix(_PREFIX), {}).setdefault(kind, [])
            points.append((x, value if math.isfinite(value) else None))
    del curves["step"]
    for redundant, name in (("loss", "mlm_cross_entropy"), ("sequences/s", "tokens/s")):
        if name in curves:
            curves.pop(redundant, None)
    if curves.get("cross_entropy") == curves.get("loss"):  # unless the loss has further terms
        curves.pop("cross_entropy", None)
    if run.points:
        curves.setdefault("loss", {})["training"] = run.points
    return curves


def _order(name: str) -> tuple[float, str]:
    """Return a sort key: first the losses and accuracies, last what does not depend on the data."""
    places = list(_TITLES)
    return (places.index(name) if name in places else places.index("gradient_norm") - 0.5), name


def _as_text(value: object) -> str:
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
        return ", ".join([*(f"{name} ({_as_text(one)})" for name, one in most), *more]) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_as_text, value))
    return str(value)


def _subtitle(run: Run) -> str:
    """Return what the run is, and how far it is."""
    kind = "Pretraining" if run.is_pretraining else "Fine-tuning"
    times = [record["time"] for record in (*run.starts, *run.evaluations.values())]
    place = f"{run.unit} {_position(run, len(run.metrics) - 1):,}{_of_total(run)}"
    if not times:
        return f"{kind}, {place}"
    moment = datetime.datetime.fromtimestamp(max(times), datetime.UTC)
    return f"{kind}, {place}, {moment:%Y-%m-%d %H:%M UTC}"


def _position(run: Run, index: int) -> int:
    """Return the step of an evaluation or, for fine-tuning, its epoch."""
    return index + 1 if run.unit == "epoch" else int(run.metrics[index]["step"])


def _tiles(run: Run) -> Pairs:
    """Return the most important metrics of the best checkpoint, and its cost."""
    best = run.metrics[run.best]
    if run.is_pretraining:
        names, data = "mlm_cross_entropy mlm_accuracy nsp_accuracy rtd_auc".split(), "held-out"
        names = [f"{_PREFIX}{name}" for name in names]
    else:
        names, data = [run.summary.get("monitor", ""), "val_accuracy", "val_loss"], "development"
    found = [
        (f"{best[name]:.4g}", f"{_title(name.removeprefix(_PREFIX)).lower()}, {data} data")
        for name in dict.fromkeys(names)
        if name in best
    ]
    found.append((f"{_position(run, run.best):,}", f"best {run.unit}{_of_total(run)}"))
    speeds = [one["tokens/s"] for one in run.metrics if "tokens/s" in one]
    if speeds:
        found.append((f"{statistics.median(speeds):,.0f}", "tokens per second, median"))
    return found


def _about(run: Run) -> Pairs:
    """Return the model and the options."""
    described = run.starts[0].get("model", {}) if run.starts else {}
    return [
        *described.items(),
        *((name, _as_text(value)) for name, value in run.options.items() if value is not None),
    ]


def _data_facts(run: Run) -> list[tuple[str, list[str]]]:
    """Return the rows of the table about the data: one value, or one per part of the data."""
    if run.is_pretraining:
        found = run.starts[0].get("data", {}) if run.starts else {}
        return [(name, [_as_text(value)]) for name, value in found.items()]
    parts = run.summary.get("data", {})
    rows = [("", ["training", "development"])] if parts else []
    for name in ("source", "examples", "rows", "truncated", "labels", "dropped"):
        values = [_as_text(parts[part].get(name)) for part in ("train", "dev") if part in parts]
        if any(values):
            rows.append((name, values))
    return rows


def _samples(run: Run) -> list[dict[str, Any]]:
    """Return the sample predictions of some evaluations, of the same examples."""
    found = [
        {"x": f"{_position(run, index):,}", "samples": record["samples"]}
        for index in range(len(run.metrics))
        if (record := run.evaluation(index)).get("samples")
    ]
    same = [one for one in found if len(one["samples"]) == len(found[-1]["samples"])]
    return spread(same, _MAX_COLUMNS)


def _of_total(run: Run) -> str:
    total = run.options.get(f"{run.unit}s")
    return f" of {total:,}" if total else ""


def spread(values: Sequence[T], number: int) -> list[T]:
    """Return at most `number` of the values: the first, the last, and some at equal distances."""
    if len(values) <= number:
        return list(values)
    return [values[round(n * (len(values) - 1) / (number - 1))] for n in range(number)]


class RunRecorder:
    """Writes `report.html`, and `report.jsonl` with what it needs besides the other files.

    The weights of the run do not depend on either, so an error only causes a warning.

    Args:
        run: The folder of the run.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run

    def add_start(self, step: int, described: Mapping[str, object]) -> None:
        """Record this machine, and records that describe the model and the data."""
        self.add(step, lambda: {"machine": machine(), **described})

    def add(self, step: int, observe: Callable[[], Mapping[str, object]]) -> None:
        """Record what a function returns about an evaluation."""
        with self._warn_of_errors(step):
            line = {"step": step, "time": round(time.time(), 1), **observe()}
            if not is_first():  # all processes observe, because predictions communicate
                return
            with open(self.run.records_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")

    def write(self, step: int) -> None:
        """Write the report."""
        with self._warn_of_errors(step):
            if is_first():
                run_report(self.run, self.run.report)

    @contextlib.contextmanager
    def _warn_of_errors(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            warnings.warn(
                f"{os.fspath(self.run.report)!r} lacks the evaluation at step {step:,}, because of "
                f"{type(error).__name__}: {error} The training continues.",
                RuntimeWarning,
                stacklevel=4,
            )


def machine() -> dict[str, str]:
    """Return the processors, the system and the versions that a run uses."""
    backend = keras.backend.backend()
    own = "keras-bert-d2l"
    # Not from metadata: the package of a nightly version of Keras has another name.
    versions = {x: importlib.import_module(x).__version__ for x in ("keras", "tensorflow", backend)}
    accelerators = collections.Counter(_accelerators(backend))
    cpu_info = _CPU_INFO.read_text() if _CPU_INFO.is_file() else ""
    named = re.search(r"^model name\s*: (.*)$", cpu_info, re.MULTILINE)
    processor = named[1] if named else platform.processor() or platform.machine()
    return {
        "processor": f"{processor}, {os.cpu_count()} cores",
        "accelerators": ", ".join(f"{n} x {name}" for name, n in accelerators.items()) or "none",
        "system": platform.platform(),
        "backend": backend,
        "python": platform.python_version(),
        **dict(sorted({**versions, own: importlib.metadata.version(own)}.items())),
    }


def _accelerators(backend: str) -> list[str]:
    if backend == "jax":
        import jax

        return [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return [detail.get("device_name", "GPU") for detail in details]
