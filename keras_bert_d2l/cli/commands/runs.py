"""Commands that examine runs and token stores: `report` and `doctor`."""

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import Flag, OptionalOut, refuse, takes_options
from keras_bert_d2l.cli.input_output import as_json_line, check_output
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.pretraining.options import PretrainingOptions

_FAULTS = 1  # exit code
_NUM_SHOWN = 3  # examples


@takes_options(PretrainingOptions, {"Examples": "max_len masking objective short_seq_prob seed"})
def report(run: Path, /, *, out: OptionalOut = None, **examples: Any) -> None:
    """Write the HTML report of a run, or describe tokenized text.

    The page of a run shows curves, predictions, errors, options, data and machine. `pretrain` and
    `finetune` keep it in the run folder, as `report.html`. TensorBoard (the extra `tensorboard`)
    shows several runs together: `tensorboard --logdir runs`.

    The description of a token store shows the text as the model sees it: lengths, unknown words
    and some masked examples.

    For example:

    - `keras-bert-d2l report runs/mine --out page.html`
    - `keras-bert-d2l report stores/books --masking whole_word`

    Args:
        run: Folder or URL of a run of `pretrain` or `finetune`, or a token store of `prepare`.
        out: Output file, .html, for the page of a run.
    """
    if kb.TokenStore.is_at(run):
        refuse("the report of a run", out=out)
        _describe(kb.TokenStore.open(run), examples)
        return
    refuse("a token store", **examples)
    if out is None:
        raise ValueError(f"--out PAGE.html is missing. {str(run)!r} is not a token store.")
    check_output("out", out, suffixes=[".html"])
    print(f"{kb.run_report(run, out).title}: {out}")


def _describe(store: "kb.TokenStore", options: Mapping[str, Any]) -> None:
    """Print the data report of a token store."""
    from rich.console import Console
    from rich.table import Table

    from keras_bert_d2l.printing import cell

    with stage("Reading the token store"):
        found = kb.data_report(store, store.tokenizer(), **options)
    show = Console().print
    table = Table(title=cell(f"{store.directory} as the model sees it"), show_header=False)
    for title, lines in found.groups().items():
        for number, (name, value) in enumerate(lines):
            table.add_row("" if number else title, cell(name), cell(value))
        table.add_section()
    show(table)
    show("\nExamples. After each token to predict, its original in parentheses:", style="bold")
    for example in found.examples[:_NUM_SHOWN]:
        show(cell(example), end="\n\n")


def doctor(run: Path, /, *, json: Flag = False) -> int:
    """Find out from its losses why a run does not learn.

    Each check compares a number with limits. The exit code is 0 without faults and 1 with faults.
    `kb.doctor` in Python also examines a model and its training batches.

    For example:

    - `keras-bert-d2l doctor runs/mine`

    Args:
        run: Folder of a run of `pretrain` or `finetune`.
        json: Print JSON: one object per check, faults first.
    """
    with stage("Examining"), contextlib.redirect_stdout(sys.stderr):
        found = kb.doctor(run)
    if json:
        for finding in found.findings:
            print(as_json_line({**vars(finding), "is_fault": finding.is_fault}))
    else:
        print(found)
    return _FAULTS if found.faults else 0
