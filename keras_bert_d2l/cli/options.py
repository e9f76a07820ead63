"""What several commands take, and what they make of it."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Collection
from typing import Annotated, Any

import typer

from keras_bert_d2l import quickstart
from keras_bert_d2l.checkpoints.loading import HEADS, Pretrained, load_pretrained
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.training.option_records import Precision
from keras_bert_d2l.training.pretraining.options import Layout
from keras_bert_d2l.training.run_folder import checkpoint_folder

# Groups of options on a page of help.
OF_TEXT, OF_RUN, OF_TRAINING, OF_DEVICES = "Text", "Run", "Training", "Devices"

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
WeightDecay = Annotated[
    float | None, typer.Option(help="Of AdamW.  [default: 0.01]", rich_help_panel=OF_TRAINING)
]
Seed = Annotated[
    int | None,
    typer.Option(help="Decides all that is random.  [default: 0]", rich_help_panel=OF_TRAINING),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        "--precision",
        help="mixed_bfloat16 for new GPUs, TPUs and CPUs with AVX512_BF16 or AMX, mixed_float16 "
        "for older GPUs.  [default: float32]",
        rich_help_panel=OF_DEVICES,
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


def folder_of_run(run_dir: str | None, resume: str | None) -> str:
    """Returns the folder of a run, which only one of the two options may name."""
    folders = [folder for folder in (run_dir, resume) if folder is not None]
    if len(folders) != 1:
        raise ValueError("Give --run-dir for a new run, or --resume for one to go on with.")
    return folders[0]


def open_corpus(texts: list[str], layout: Layout | None) -> Corpus:
    """Returns the text that a command reads."""
    return Corpus.open(one_or_many(texts), layout=layout or "auto")


def one_or_many(texts: list[str]) -> str | list[str]:
    """Returns a single text by itself."""
    return texts[0] if len(texts) == 1 else list(texts)


def plain(value: Any) -> Any:
    """Returns paths as strings, and all else as it is."""
    return os.fspath(value) if isinstance(value, pathlib.Path) else value
