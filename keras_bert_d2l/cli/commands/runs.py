"""Commands that examine runs: `report` and `doctor`."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import Flag, Out, help_text
from keras_bert_d2l.cli.input_output import as_json_line, check_output
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.finetuning.options import TaskRunOptions

_FAULTS = 1  # exit code


def report(run: Path, /, *, out: Out) -> None:
    """Write the HTML report of a run: curves, predictions, errors, options, data, machine.

    `pretrain` and `finetune` keep the same page in the run folder, as `report.html`. TensorBoard
    (the extra `tensorboard`) shows several runs together: `tensorboard --logdir runs`.

    For example: `keras-bert-d2l report runs/mine --out page.html`

    Args:
        run: Folder or URL of a run of `pretrain` or `finetune`.
        out: Output file.
    """
    check_output("out", out, suffixes=[".html"])
    print(f"{kb.run_report(run, out).title}: {out}")


def doctor(
    run: Path | None = None,
    /,
    *,
    data: Path | None = None,
    model: Annotated[str | None, Parameter(alias="-m")] = None,
    task: Annotated[str | None, Parameter(help=help_text(TaskRunOptions, "task"))] = None,
    dev: Path | None = None,
    json: Flag = False,
) -> int:
    """Find out why a run does not learn, or whether data and a model are ready for one.

    Each check compares a number with limits: losses, vocabulary, copied examples, masks, padding
    and gradients. The exit code is 0 without faults and 1 with faults.

    For example:

    - `keras-bert-d2l doctor runs/mine`
    - `keras-bert-d2l doctor --data my_text/ --model bert-base-uncased`
    - `keras-bert-d2l doctor --data reviews.tsv --task classify --model minilm`

    Args:
        run: Folder or URL of a run of `pretrain` or `finetune`.
        data: Text, token store or, with --task, a file of examples to check instead of a run.
        model: Checkpoint to start from. Optional for a text.
        dev: Development data of the examples. [default: a held-out part]
        json: Print JSON: one object per check, faults first.
    """
    with stage("Examining"), contextlib.redirect_stdout(sys.stderr):
        found = kb.doctor(run, data=data, model=model, task=task, dev=dev)
    if json:
        for finding in found.findings:
            print(as_json_line({**vars(finding), "is_fault": finding.is_fault}))
        for reason in found.skipped:
            print(f"Skipped. {reason}", file=sys.stderr)
    else:
        print(found)
    return 0 if found.is_healthy else _FAULTS
