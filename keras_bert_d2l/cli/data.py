"""Commands on tokenised text."""

import contextlib
import functools
import pathlib
import shlex
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from keras_bert_d2l.cli.options import LayoutOption, Texts, open_corpus
from keras_bert_d2l.data.pretraining.tfrecords import write_tfrecords
from keras_bert_d2l.data.report.page import write_page
from keras_bert_d2l.data.report.report import DataReport, data_report
from keras_bert_d2l.data.report.sample import Word
from keras_bert_d2l.data.store.beam import build_store_with_beam
from keras_bert_d2l.data.store.building import Progress as Parts
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import Vocab
from keras_bert_d2l.training.pretraining.options import MaskingName, Objective

_EXAMPLES = "Examples"  # a group of options on a page of help
_SHOWN = 3  # examples in a terminal
_STYLES = {
    "special": "dim",
    "masked": "bold white on red",
    "replaced": "bold black on yellow",
    "kept": "bold black on green",
}

MaxLen = Annotated[
    int | None, typer.Option(help="Tokens in a row.  [default: 128]", rich_help_panel=_EXAMPLES)
]
MaskingOption = Annotated[
    MaskingName | None,
    typer.Option(
        help="Mask tokens, whole words, up to 3 words or up to 10.  [default: token]",
        rich_help_panel=_EXAMPLES,
    ),
]
ObjectiveOption = Annotated[
    Objective | None,
    typer.Option(
        help="Beside masked tokens: the next sentence, the order of two, or nothing.  "
        "[default: nsp]",
        rich_help_panel=_EXAMPLES,
    ),
]
ShortSeqProb = Annotated[
    float | None,
    typer.Option(
        help="Share of examples made shorter, by a random length.  [default: 0]",
        rich_help_panel=_EXAMPLES,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Decides all that is random.  [default: 0]", rich_help_panel=_EXAMPLES),
]


def prepare(
    texts: Texts,
    out: Annotated[
        pathlib.Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Folder of the tokenised text."),
    ],
    vocab: Annotated[pathlib.Path, typer.Option(metavar="FILE", help="A vocab.txt.")],
    cased: Annotated[
        bool, typer.Option("--cased", help="Keep capitals and accents.  [default: lowered]")
    ] = False,
    compat: Annotated[
        Literal["google", "huggingface"], typer.Option(help="Whose token ids.")
    ] = "google",
    layout: LayoutOption = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each on one core.")] = 1,
    deduplicate: Annotated[
        bool, typer.Option("--deduplicate", help="Leave out copies of documents.")
    ] = False,
    beam: Annotated[
        str | None,
        typer.Option(
            metavar="OPTIONS",
            help='Tokenise on many machines: options of an Apache Beam runner, such as "--runner='
            'FlinkRunner --flink_master=host:8081". Needs `[beam]`, and text and folder where '
            "every worker sees them.",
        ),
    ] = None,
    static_masks: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write examples with masks that stay as they are, as TFRecords of google's "
            "BERT, for other programs. What follows is for these.",
            rich_help_panel=_EXAMPLES,
        ),
    ] = None,
    dupe_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Passes over the text, each with other masks.  [default: 10]",
            rich_help_panel=_EXAMPLES,
        ),
    ] = None,
    max_len: MaxLen = None,
    masking: MaskingOption = None,
    objective: ObjectiveOption = None,
    short_seq_prob: ShortSeqProb = None,
    seed: Seed = None,
) -> None:
    """Tokenises text once, into a folder that `pretrain` reads at any speed and in any order.

    Stopped at any moment and called again, it goes on; a second call checks what is there.

    Examples:

    - `keras-bert-d2l prepare books/ --vocab vocab.txt --out stores/books --workers 8`
    - `keras-bert-d2l pretrain stores/books --run-dir runs/books`
    """
    given = _given(
        dupe_factor=dupe_factor,
        max_len=max_len,
        masking=masking,
        objective=objective,
        short_seq_prob=short_seq_prob,
        seed=seed,
    )
    if given and static_masks is None:
        raise ValueError(
            "A store has neither examples nor masks yet: they are made while a model trains. "
            f"Received: --{next(iter(given)).replace('_', '-')} without --static-masks."
        )
    if beam is not None and workers > 1:
        raise ValueError(
            "The runner of --beam has its own number of workers, such as --direct_num_workers. "
            f"Received: --workers {workers}; leave it out."
        )
    corpus = open_corpus(texts, layout)
    tokenizer = Tokenizer(Vocab.from_file(vocab), lowercase=not cased, compat=compat)
    was_there = TokenStore.is_at(out)
    with _progress() as progress:
        build = functools.partial(build_store, workers=workers)
        if beam is not None:
            build = functools.partial(build_store_with_beam, pipeline_options=shlex.split(beam))
        store = build(corpus, tokenizer, out, deduplicate=deduplicate, progress=progress)
    store.verify()
    typer.echo(f"{'There already, and whole' if was_there else 'Written'}: {_summary(store)}")
    if static_masks is not None:
        count = write_tfrecords(store, tokenizer, static_masks, **given)
        typer.echo(f"{count:,} examples with static masks in {static_masks}")


def report(
    store: Annotated[
        pathlib.Path,
        typer.Argument(metavar="STORE", help="Folder that `prepare` wrote.", show_default=False),
    ],
    out: Annotated[
        pathlib.Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="HTML page to write."),
    ] = None,
    max_len: MaxLen = None,
    masking: MaskingOption = None,
    objective: ObjectiveOption = None,
    short_seq_prob: ShortSeqProb = None,
    seed: Seed = None,
) -> None:
    """Shows what a model will see of a tokenised text: lengths, padding, masks, unknown words.

    Example: `keras-bert-d2l data-report stores/books --out report.html --masking whole_word`
    """
    opened = TokenStore.open(store)
    given = _given(
        max_len=max_len,
        masking=masking,
        objective=objective,
        short_seq_prob=short_seq_prob,
        seed=seed,
    )
    found = data_report(opened, opened.tokenizer(), **given)
    if out is not None:
        write_page(found, out)
    console = Console()
    console.print(_table(found))
    for example in found.examples[:_SHOWN]:
        console.print(Text.assemble(*map(_styled, example.words)), "")
    if out is not None:
        typer.echo(f"The whole report: {out}")


def _given(**options: Any) -> dict[str, Any]:
    """Those that were given; the others are left to the function that takes them."""
    return {name: value for name, value in options.items() if value is not None}


def _summary(store: TokenStore) -> str:
    left_out = f", {store.num_duplicates:,} copies left out" if store.num_duplicates else ""
    return (
        f"{store.num_tokens:,} tokens in {store.num_sentences:,} sentences of "
        f"{store.num_documents:,} documents{left_out}, in {store.directory}"
    )


@contextlib.contextmanager
def _progress() -> Iterator[Parts]:
    """A bar on stderr, where that is a terminal."""
    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.completed}/{task.total} parts, {task.fields[tokens]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("Tokenising", total=None, tokens="")

        def update(num_done: int, num_parts: int, num_tokens: int) -> None:
            rate = num_tokens / max(bar.tasks[0].elapsed or 0, 1e-3) / 1e6
            tokens = f"{num_tokens / 1e6:,.1f} M tokens, {rate:.2f} M/s"
            bar.update(task, completed=num_done, total=num_parts, tokens=tokens)

        yield update


def _table(found: DataReport) -> Table:
    table = Table(title=f"What a model will see of {found.source}", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_column(justify="right")
    for group in found.groups():
        table.add_section()
        for number, (name, value) in enumerate(group.figures):
            table.add_row("" if number else group.title, Text(name), Text(value))
    return table


def _styled(word: Word) -> Any:
    space = " " if word.starts_word else ""
    text = word.seen if word.kind in ("text", "special") else f"{word.seen}({word.original})"
    return Text.assemble(space, (text, _STYLES.get(word.kind, "")))
