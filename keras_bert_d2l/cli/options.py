"""What several commands take, and what they make of it."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Collection
from typing import Annotated, Any

import typer

from keras_bert_d2l import quickstart
from keras_bert_d2l.checkpoints.pretrained import HEADS, Pretrained, load_pretrained
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.training.options import Layout
from keras_bert_d2l.training.run_folder import checkpoint_folder

OF_TEXT, OF_RUN = "Text", "Run"  # groups of options on a page of help

Texts = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT",
        help="Text files, folders or globs (also .gz, .xz), or the word **docstrings**.",
        show_default=False,
    ),
]
LayoutOption = Annotated[
    Layout | None,
    typer.Option(
        help="How the text is divided: a sentence a line with blank lines between documents, "
        "running prose, WikiText's headings, or found out.  [default: auto]",
        rich_help_panel=OF_TEXT,
    ),
]
Model = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="FOLDER",
        help="A checkpoint, or the folder of a run, which stands for its best checkpoint.  "
        "[default: the newest run of quickstart]",
    ),
]
RunDir = Annotated[
    pathlib.Path | None,
    typer.Option(help="Folder to write, new or empty.", rich_help_panel=OF_RUN),
]
Resume = Annotated[
    pathlib.Path | None,
    typer.Option(
        metavar="RUN", help="Go on with this run, with its own options.", rich_help_panel=OF_RUN
    ),
]
Config = Annotated[
    pathlib.Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML with any of the options below, named as here with _ for -, such as the run.yaml "
        "of another run. The command line wins.",
        rich_help_panel=OF_RUN,
    ),
]
NullThreshold = Annotated[
    float | None,
    typer.Option(
        help="Say that there is no answer where this scores higher by more than the threshold.  "
        "[default: what was best for the run in --model; else always answer]"
    ),
]


def load(model: pathlib.Path | None, heads: Collection[str] = HEADS) -> Pretrained:
    """Returns the checkpoint that `--model` names; what it lacks of `heads` is told on stderr."""
    folder = checkpoint_folder(model or quickstart.newest_run())
    with contextlib.redirect_stdout(sys.stderr):
        return load_pretrained(folder, heads=heads, verbose=False)


def open_corpus(texts: list[str], layout: Layout | None) -> Corpus:
    """Returns the text that a command reads."""
    return Corpus.open(one_or_many(texts), layout=layout or "auto")


def one_or_many(texts: list[str]) -> str | list[str]:
    """Returns a single text by itself."""
    return texts[0] if len(texts) == 1 else list(texts)


def plain(value: Any) -> Any:
    """Returns paths as strings, and all else as it is."""
    return os.fspath(value) if isinstance(value, pathlib.Path) else value
