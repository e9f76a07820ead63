"""`keras-bert-d2l compare`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import Out
from keras_bert_d2l.cli.input_output import check_output


def compare(
    *runs: Annotated[
        Path, Parameter(name="RUN", help="Folders or URLs of runs of `pretrain` or `finetune`.")
    ],
    out: Out = Path("comparison.html"),
) -> None:
    """Compare runs in one HTML page: overlaid curves, options that differ, metrics.

    For a single run, write the report that is also in its folder, `report.html`.

    For example:

    - `keras-bert-d2l compare runs/first runs/second --out page.html`
    - `keras-bert-d2l compare runs/first`

    Args:
        out: Output file.
    """
    if not runs:
        raise ValueError("RUN is missing: specify the folders of the runs to compare.")
    check_output("out", out, suffixes=[".html"])
    page = kb.compare_runs(runs, out) if len(runs) > 1 else kb.run_report(runs[0], out)
    print(f"{page.title}: {out}")
