"""`run_report` and `compare_runs`: pages about one run and about several runs."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jinja2.utils import htmlsafe_json_dumps

from keras_bert_d2l.files import write_text
from keras_bert_d2l.pages import Page, render
from keras_bert_d2l.progress import duration
from keras_bert_d2l.training.report import facts
from keras_bert_d2l.training.report.run import Run
from keras_bert_d2l.training.run.run_folder import LOWER_IS_BETTER
from keras_bert_d2l.types import PathLike

STYLES, SCRIPTS = ["training/report/page/runs.css"], ["training/report/page/charts.js"]


def run_report(run_dir: PathLike, path: PathLike | None = None) -> Page:
    r"""Write a page about a run: curves, sample predictions, errors, data, machine and commands.

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
    run = Run.read(run_dir)
    best, found = run.evaluation(run.best), facts.charts([run])
    page = render(
        "training/report/page/report.html.jinja",
        f"Report of {run.name}",
        styles=STYLES,
        scripts=SCRIPTS,
        data={"curves": htmlsafe_json_dumps({"runs": [run.name], "charts": found})},
        run=run,
        subtitle=facts.subtitle(run),
        warning=run.summary.get("warning"),
        tiles=facts.tiles(run),
        charts=found,
        samples=facts.samples(run),
        confusion=best.get("confusion"),
        errors=best.get("errors", []),
        about=facts.about(run),
        options=[(name, facts.as_text(value)) for name, value in run.options.items()],
        facts=facts.data_facts(run),
        starts=facts.starts(run),
        commands=facts.commands(run),
    )
    if path is not None:
        write_text(path, page.html)
    return page


class Row(NamedTuple):
    """A row of a table: a name, a value per run, and the number of the best one, if any."""

    name: str
    values: list[str]
    best: int | None = None


def compare_runs(run_dirs: Sequence[PathLike], path: PathLike | None = None) -> Page:
    r"""Write a page that compares runs: overlaid curves, options that differ, and metrics.

    Args:
        run_dirs: The folders or URLs of two or more runs, either of `pretrain` or of `finetune`.
        path: File to write. `None`: write no file; a notebook shows the result.

    Returns: the page.

    Raises:
        ValueError: There are fewer than two runs, they are of different kinds, a folder is not that
            of a run with an evaluation, or a file is damaged.

    Example:

    ```python
    import json
    import pathlib

    import keras_bert_d2l as kb

    for name, accuracy in (("runs/a", 0.8), ("runs/b", 0.9)):
        run = pathlib.Path(name)  # a folder that `pretrain` or `finetune` wrote
        run.mkdir(parents=True)
        metrics = {"step": 10, "loss": 0.6, "val_accuracy": accuracy}
        (run / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    kb.compare_runs(["runs/a", "runs/b"], "comparison.html")
    ```
    """
    if isinstance(run_dirs, str | os.PathLike) or len(run_dirs) < 2:
        raise ValueError(
            "`run_dirs` must be a list of at least two run folders. Received: "
            f"{run_dirs!r}; for one run, use `run_report`."
        )
    runs = [Run.read(run_dir) for run_dir in run_dirs]
    if len({run.command for run in runs}) > 1:
        kinds = ", ".join(f"{run.folder.name!r}: {run.command}" for run in runs)
        raise ValueError(f"All runs must be of the same kind. Received: {kinds}.")
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [run.folder.name for run in runs]
    found = facts.charts(runs)
    page = render(
        "training/report/page/comparison.html.jinja",
        f"Comparison of {len(runs)} runs",
        styles=STYLES,
        scripts=SCRIPTS,
        data={"curves": htmlsafe_json_dumps({"runs": names, "charts": found})},
        names=names,
        are_comparable=len({run.held_out for run in runs}) == 1,
        unit=runs[0].unit,
        charts=found,
        metrics=_metrics(runs),
        options=_differences(runs),
    )
    if path is not None:
        write_text(path, page.html)
    return page


def _metrics(runs: Sequence[Run]) -> list[Row]:
    """Return the held-out metrics of the best checkpoint of each run, and its cost."""
    best = [run.metrics[run.best] for run in runs]
    positions = [f"{facts.position(run, run.best):,}" for run in runs]
    rows = [Row(f"Best {runs[0].unit}", positions)]
    for name in dict.fromkeys(name for metrics in best for name in metrics):
        if name.startswith("val_"):
            values = [metrics.get(name) for metrics in best]
            texts = ["" if value is None else f"{value:.4g}" for value in values]
            found = [value for value in values if value is not None]
            choose = min if name.endswith(LOWER_IS_BETTER) else max
            rows.append(
                Row(facts.title(name.removeprefix("val_")), texts, values.index(choose(found)))
            )
    seconds = [run.seconds for run in runs]
    times = ["not recorded" if time is None else duration(time) for time in seconds]
    return [*rows, Row("Training and evaluation", times)]


def _differences(runs: Sequence[Run]) -> list[Row]:
    """Return the options, and the facts about model, data and machine, in which runs differ."""
    are_recorded = all(run.starts for run in runs)
    described = [_description(run) if are_recorded else run.options for run in runs]
    names = dict.fromkeys(name for one in described for name in one if name != "cache_dir")
    rows = [Row(name, [facts.as_text(one.get(name)) for one in described]) for name in names]
    return [row for row in rows if len(set(row.values)) > 1]


def _description(run: Run) -> Mapping[str, Any]:
    start = run.starts[-1]
    parts = [start.get(part, {}) for part in ("model", "data", "machine")]
    return {**run.options, **{name: value for part in parts for name, value in part.items()}}
