"""The command line: one subcommand for each step, each the same function as in Python.

Bad input ends with one line on stderr and exit code 2; Ctrl-C ends with 130.
"""

import os
import pathlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from keras_bert_d2l import __version__, quickstart
from keras_bert_d2l.checkpoints.native import Pretrained, load_pretrained
from keras_bert_d2l.inference.fill_mask import fill_mask
from keras_bert_d2l.serving.export import export_saved_model
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.vocab import learn_vocab
from keras_bert_d2l.training.options import Layout, Precision, Strategy, read_options
from keras_bert_d2l.training.pretraining import pretrain
from keras_bert_d2l.training.run_folder import checkpoint_folder

_BAD_INPUT, _INTERRUPTED = 2, 130
_MISTAKES = (ValueError, OSError, ImportError, RuntimeError)
# ClickException, of typer or of click, as the version of typer has it.
_UsageError: type[Any] = typer.BadParameter.__mro__[2]


class _Commands(TyperGroup):
    """Turns the caller's mistakes into one line each."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, BrokenPipeError):  # no mistakes: typer knows them
            raise
        except KeyboardInterrupt as error:
            typer.echo(f"\n{error or 'Interrupted.'}", err=True)
            raise typer.Exit(_INTERRUPTED) from error
        except _MISTAKES as error:
            if ctx.params.get("traceback"):
                raise
            _report(error)
            raise typer.Exit(_BAD_INPUT) from error

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except _UsageError as error:
            _report(error.format_message())
            sys.exit(_BAD_INPUT)
        sys.exit(code)


def _report(error: object) -> None:
    typer.echo("error: " + " ".join(str(error).split()), err=True)


app = typer.Typer(
    name="keras-bert-d2l",
    cls=_Commands,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Runs the command line."""
    app(prog_name="keras-bert-d2l")


_TEXT, _MODEL, _TRAINING, _DEVICES, _RUN = "Text", "Model", "Training", "Devices", "Run"

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
        rich_help_panel=_TEXT,
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


@app.command("quickstart")
def _quickstart(
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Minutes to train; the steps are chosen to fit.")
    ] = quickstart.DEFAULT_MINUTES,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Train this many steps instead.", show_default=False),
    ] = None,
    run_dir: Annotated[
        pathlib.Path, typer.Option(help="Folder of the vocabulary and of the numbered runs.")
    ] = quickstart.RUNS,
    out: Annotated[
        pathlib.Path, typer.Option(help="Folder of the exported versions.")
    ] = quickstart.SAVED_MODELS,
) -> None:
    """The whole way in minutes: raw text to a model that answers strings.

    Learns a vocabulary from the docstrings of the installed tensorflow, keras and numpy, pretrains
    a small BERT on them, exports it as a SavedModel, and asks that model, in a process that knows
    nothing of this package, for the words behind two masks. Nothing is downloaded.
    """
    quickstart.run(minutes=minutes, steps=steps, run_dir=run_dir, out=out)


@app.command("vocab")
def _vocab(
    texts: Texts,
    out: Annotated[
        pathlib.Path, typer.Option("--out", "-o", help="File to write, one token a line.")
    ] = pathlib.Path("vocab.txt"),
    size: Annotated[int, typer.Option(min=6, help="Tokens in the vocabulary.")] = 8000,
    cased: Annotated[
        bool, typer.Option("--cased", help="Keep capitals and accents.  [default: lowered]")
    ] = False,
    layout: LayoutOption = None,
) -> None:
    """Learns a WordPiece vocabulary from text. The same text gives the same file.

    Example: `keras-bert-d2l vocab my_text/ --size 8000 --out vocab.txt`
    """
    corpus = Corpus.open(_one_or_many(texts), layout=layout or "auto")
    typer.echo(f"Learning {size:,} tokens from {corpus.description}")
    vocab = learn_vocab(corpus, size, lowercase=not cased)
    vocab.to_file(out)
    typer.echo(f"{len(vocab):,} tokens in {out}")


@app.command("pretrain")
def _pretrain(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Text files, folders or globs (also .gz, .xz), or the word **docstrings**.",
            show_default=False,
        ),
    ] = None,
    run_dir: Annotated[
        pathlib.Path | None,
        typer.Option(help="Folder to write, new or empty.", rich_help_panel=_RUN),
    ] = None,
    resume: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="RUN", help="Go on with this run, with its own options.", rich_help_panel=_RUN
        ),
    ] = None,
    config: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML with any of the options below, named as here with _ for -, such as the "
            "run.yaml of another run. The command line wins.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Optimizer steps.  [default: 10000]", rich_help_panel=_TRAINING),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Rows in a step, over all devices.  [default: 64]", rich_help_panel=_TRAINING
        ),
    ] = None,
    max_len: Annotated[
        int | None, typer.Option(help="Tokens in a row.  [default: 128]", rich_help_panel=_TRAINING)
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="At its peak.  [default: 0.001]", rich_help_panel=_TRAINING),
    ] = None,
    warmup_steps: Annotated[
        int | None,
        typer.Option(
            help="Steps until the peak; then it falls to 0.  [default: a tenth of the steps]",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Of AdamW.  [default: 0.01]", rich_help_panel=_TRAINING)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Decides all that is random.  [default: 0]", rich_help_panel=_TRAINING),
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            help="Share of the documents kept for evaluation.  [default: 0.05]",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            help="Steps between evaluations, each with a checkpoint.  [default: a twentieth of the "
            "steps, at most 500]",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    vocab: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE", help="A vocab.txt.  [default: learned]", rich_help_panel=_TEXT
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(help="Tokens to learn.  [default: 8000]", rich_help_panel=_TEXT),
    ] = None,
    lowercase: Annotated[
        bool | None,
        typer.Option(
            "--lowercase/--cased",
            help="Lower all words, or keep capitals and accents.  [default: lowercase]",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    layout: LayoutOption = None,
    cache_dir: Annotated[
        pathlib.Path | None,
        typer.Option(
            help="Folder for the tokenised text.  [default: in the user's cache]",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Architecture: d2l, tiny, mini, small, medium, base or large.  [default: mini]",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    bert_config: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE", help="A config.json instead of a preset.", rich_help_panel=_MODEL
        ),
    ] = None,
    init: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Checkpoint or run to go on from, with its vocabulary and architecture.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="mixed_bfloat16 for new GPUs, TPUs and CPUs with AVX512_BF16 or AMX, "
            "mixed_float16 for older GPUs.  [default: float32]",
            rich_help_panel=_DEVICES,
        ),
    ] = None,
    jit: Annotated[
        bool | None,
        typer.Option(
            "--jit/--no-jit",
            help="Compile the step with XLA, for GPUs.  [default: no-jit]",
            rich_help_panel=_DEVICES,
        ),
    ] = None,
    strategy: Annotated[
        Strategy | None,
        typer.Option(
            help="All GPUs of this machine, or a TPU.  [default: one device]",
            rich_help_panel=_DEVICES,
        ),
    ] = None,
    tpu: Annotated[
        str | None,
        typer.Option(help="Name of the TPU.  [default: this machine's]", rich_help_panel=_DEVICES),
    ] = None,
) -> None:
    """Pretrains a BERT on text: masked tokens and next sentences.

    The run folder gets `run.yaml` (the options), `config.json`, `vocab.txt`, the checkpoints
    `best/` and `last/`, `metrics.jsonl` and logs for TensorBoard. Ctrl-C saves and says how to
    go on.

    Examples:

    - `keras-bert-d2l pretrain my_text/ --run-dir runs/mine --steps 20000`
    - `keras-bert-d2l pretrain "news/*.txt.gz" --run-dir runs/news --init runs/mine`
    - `keras-bert-d2l pretrain --config runs/mine/run.yaml --run-dir runs/again --seed 1`
    - `keras-bert-d2l pretrain --resume runs/mine`
    """
    given = {name: _plain(value) for name, value in locals().items() if value is not None}
    folders = [given.pop(name, None) for name in ("run_dir", "resume")]
    if folders.count(None) != 1:
        raise ValueError("Give --run-dir for a new run, or --resume for one to go on with.")
    if "texts" in given:
        given["corpus"] = _one_or_many(given.pop("texts"))
    from_file = read_options(given.pop("config")) if config else {}
    options = {"corpus": None, **from_file, **given}
    pretrain(run_dir=folders[0] or folders[1], resume=resume is not None, **options)


@app.command("fill-mask")
def _fill_mask(
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Texts with [MASK] in them.")],
    model: Model = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Answers for each mask.")] = 5,
) -> None:
    """Says which tokens a model expects behind the masks of a text.

    Example: `keras-bert-d2l fill-mask "paris is the [MASK] of france" --model runs/mine`
    """
    pretrained = _load(model)
    if pretrained.tokenizer is None:
        raise ValueError("The checkpoint has no vocabulary, without which no text can be read.")
    answers = fill_mask(pretrained.model, pretrained.tokenizer, texts, top_k)
    for text, masks in zip(texts, answers, strict=True):
        typer.echo(text)
        for predictions in masks:
            line = ", ".join(f"{one.token} {one.score:.3f}" for one in predictions)
            typer.echo(f"    {line}")


@app.command("export")
def _export(
    out: Annotated[
        pathlib.Path,
        typer.Option("--out", "-o", help="Folder of all versions of the model."),
    ],
    model: Model = None,
    version: Annotated[
        int | None, typer.Option(min=1, help="Number of the version.  [default: the next one]")
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Answers for each mask.")] = 5,
) -> None:
    """Writes a SavedModel that takes strings, for TensorFlow Serving or any TensorFlow.

    Example: `keras-bert-d2l export --model runs/mine --out saved_models/mine`
    """
    pretrained = _load(model)
    folder = export_saved_model(pretrained.model, out, pretrained.tokenizer, version, top_k=top_k)
    typer.echo(f"Exported to {folder}")


def _load(model: pathlib.Path | None) -> Pretrained:
    return load_pretrained(checkpoint_folder(model or quickstart.newest_run()))


def _one_or_many(texts: list[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else list(texts)


def _plain(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, pathlib.Path) else value
