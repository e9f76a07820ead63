"""`keras-bert-d2l data-report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras_bert_d2l as kb
from keras_bert_d2l.cli.arguments import OptionalOut, takes_options
from keras_bert_d2l.cli.input_output import check_output
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.pretraining.options import PretrainingOptions

if TYPE_CHECKING:
    from rich.text import Text

    from keras_bert_d2l.data.report.sample import Word

_SHOWN = 3  # number of examples shown
_STYLES = {
    "special": "dim",
    "masked": "bold white on red",
    "replaced": "bold black on yellow",
    "kept": "bold black on green",
}


@takes_options(PretrainingOptions, {"Examples": "max_len masking objective short_seq_prob seed"})
def data_report(
    store: Path,
    /,
    *,
    out: OptionalOut = None,
    **examples: Any,
) -> None:
    """Preview tokenized text as the model sees it: lengths, padding, masks and unknown words.

    For example:
    `keras-bert-d2l data-report stores/books --out report.html --masking whole_word`

    Args:
        store: Token store folder, as written by `prepare`.
        out: Also write the report to this HTML file.
    """
    check_output("out", out, suffixes=[".html"])
    from rich.console import Console
    from rich.text import Text

    from keras_bert_d2l.data.report.page import report_page
    from keras_bert_d2l.data.tasks.peek import grouped_table
    from keras_bert_d2l.files import write_text

    opened = kb.TokenStore.open(store)
    with stage("Reading the token store"):
        found = kb.data_report(opened, opened.tokenizer(), **examples)
    if out is not None:
        write_text(out, report_page(found))
    console = Console()
    groups = [(group.title, group.figures) for group in found.groups()]
    console.print(grouped_table(found.source, groups))
    console.print(_legend(), "")
    for example in found.examples[:_SHOWN]:
        console.print(Text.assemble(*map(_styled, example.words)), "")
    if out is not None:
        print(f"Full report: {out}")


def _legend() -> "Text":
    from rich.text import Text

    masked, replaced, kept = ((kind, _STYLES[kind]) for kind in ("masked", "replaced", "kept"))
    return Text.assemble(
        "Examples. A token to predict is followed by the original in parentheses. It is ",
        *(masked, ", ", replaced, " by a random token, or ", kept, "."),
    )


def _styled(word: "Word") -> "Text":
    from rich.text import Text

    space = " " if word.starts_word else ""
    text = word.seen if word.kind in ("text", "special") else f"{word.seen}({word.original})"
    return Text.assemble(space, (text, _STYLES.get(word.kind, "")))
