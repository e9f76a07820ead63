"""`run_report`: a page about a run."""

from jinja2.utils import htmlsafe_json_dumps

from keras_bert_d2l.files import write_text
from keras_bert_d2l.pages import Page, render
from keras_bert_d2l.training.report import facts
from keras_bert_d2l.training.report.run import Run
from keras_bert_d2l.types import PathLike

STYLES, SCRIPTS = ["training/report/page/runs.css"], ["training/report/page/charts.js"]


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
    run = Run.read(run_dir)
    best, found = run.evaluation(run.best), facts.charts(run)
    page = render(
        "training/report/page/report.html.jinja",
        f"Report of {run.title}",
        styles=STYLES,
        scripts=SCRIPTS,
        data={"curves": htmlsafe_json_dumps(found)},
        run=run,
        subtitle=facts.subtitle(run),
        warning=run.summary.get("warning"),
        tiles=facts.tiles(run),
        charts=found,
        samples=facts.samples(run),
        confusion=best.get("confusion"),
        errors=best.get("errors", []),
        about=facts.about(run),
        facts=facts.data_facts(run),
        machine=run.starts[-1]["machine"] if run.starts else {},
    )
    if path is not None:
        write_text(path, page.html)
    return page
