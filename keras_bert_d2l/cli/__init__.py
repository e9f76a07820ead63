"""The command line: one subcommand for each step, each the same function as in Python.

Bad input ends with one line on stderr and exit code 2; Ctrl-C ends with 130. A module holds the
commands of one room.
"""

import logging
import os
from collections.abc import Callable
from typing import Annotated

import typer

from keras_bert_d2l import __version__
from keras_bert_d2l.cli import (
    checkpoints,
    data,
    finetuning,
    inference,
    onnx,
    serve,
    serving,
    tasks,
    text,
    training,
)
from keras_bert_d2l.cli.group import Commands

app = typer.Typer(
    name="keras-bert-d2l",
    cls=Commands,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"keras-bert-d2l {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    ctx: typer.Context,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error arose, to report it.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """BERT for Keras, whole: from your own text to a served model.

    Start with `keras-bert-d2l quickstart`, or with your own text:

    - `keras-bert-d2l pretrain my_text/ --run-dir runs/mine`
    - `keras-bert-d2l fill-mask "the [MASK] of my text" --model runs/mine`
    - `keras-bert-d2l export --model runs/mine --out saved_models/mine`
    """
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


# In the order in which the data flows, which is that of the page of help.
_COMMANDS: dict[str, Callable[..., None]] = {
    "quickstart": training.run_quickstart,
    "vocab": text.make_vocab,
    "prepare": data.prepare,
    "data-report": data.report,
    "pretrain": training.run_pretraining,
    "finetune": finetuning.run_finetuning,
    "evaluate": tasks.run_evaluation,
    "predict": tasks.run_prediction,
    "fill-mask": inference.answer_masks,
    "next-sentence": inference.score_next_sentences,
    "perplexity": inference.measure_perplexity,
    "embed": inference.embed_texts,
    "similar": inference.find_similar,
    "classify": inference.classify_texts,
    "tag": inference.tag_words,
    "answer": inference.answer_questions,
    "convert": checkpoints.convert,
    "inspect": checkpoints.inspect,
    "export": serving.export,
    "export-onnx": onnx.export,
    "audit": serving.audit,
    "serve": serve.serve,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)


def main() -> None:
    """Runs the command line."""
    if "TF_CPP_MIN_LOG_LEVEL" not in os.environ:
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
    app(prog_name="keras-bert-d2l")
