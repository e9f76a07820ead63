"""Commands that train."""

import pathlib
from typing import Annotated

import typer

from keras_bert_d2l import quickstart
from keras_bert_d2l.cli.options import (
    OF_DEVICES,
    OF_TEXT,
    OF_TRAINING,
    Config,
    LayoutOption,
    PrecisionOption,
    Resume,
    RunDir,
    Seed,
    WeightDecay,
    folder_of_run,
    one_or_many,
    plain,
)
from keras_bert_d2l.training.pretraining.options import (
    MaskingName,
    Objective,
    PretrainingOptions,
    Rows,
    Strategy,
)
from keras_bert_d2l.training.pretraining.pretrain import pretrain

_MODEL, _EXAMPLES = "Model", "Examples"


def run_quickstart(
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


def run_pretraining(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="Text files, folders or globs (also .gz, .xz), or the word **docstrings**; or the "
            "folder that `prepare` wrote.",
            show_default=False,
        ),
    ] = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    config: Config = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Optimizer steps.  [default: 10000]", rich_help_panel=OF_TRAINING),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Rows in a step, over all devices.  [default: 64]", rich_help_panel=OF_TRAINING
        ),
    ] = None,
    max_len: Annotated[
        int | None,
        typer.Option(help="Tokens in a row.  [default: 128]", rich_help_panel=OF_TRAINING),
    ] = None,
    short_steps: Annotated[
        int | None,
        typer.Option(
            help="First steps that train on shorter rows, as many tokens in a batch: word order "
            "is learned sooner.  [default: 0]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    short_len: Annotated[
        int | None,
        typer.Option(
            help="Tokens in a shorter row.  [default: an eighth of --max-len]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    objective: Annotated[
        Objective | None,
        typer.Option(
            help="Learned beside masked tokens: the next sentence, the order of two, or nothing.  "
            "[default: nsp, or none for a model without this head]",
            rich_help_panel=_EXAMPLES,
        ),
    ] = None,
    masking: Annotated[
        MaskingName | None,
        typer.Option(
            help="Mask tokens, whole words, up to 3 words or up to 10.  [default: token]",
            rich_help_panel=_EXAMPLES,
        ),
    ] = None,
    rows: Annotated[
        Rows | None,
        typer.Option(
            help="An example in a row, several where they fit, or batches of about one length.  "
            "[default: padded]",
            rich_help_panel=_EXAMPLES,
        ),
    ] = None,
    short_seq_prob: Annotated[
        float | None,
        typer.Option(
            help="Share of examples made shorter, by a random length.  [default: 0]",
            rich_help_panel=_EXAMPLES,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="At its peak.  [default: 0.001]", rich_help_panel=OF_TRAINING),
    ] = None,
    warmup_steps: Annotated[
        int | None,
        typer.Option(
            help="Steps until the peak; then it falls to 0.  [default: a tenth of the steps]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    weight_decay: WeightDecay = None,
    seed: Seed = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            help="Share of the documents kept for evaluation.  [default: 0.05]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            help="Steps between evaluations, each with a checkpoint.  [default: a twentieth of the "
            "steps, at most 500]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    vocab: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE", help="A vocab.txt.  [default: learned]", rich_help_panel=OF_TEXT
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(help="Tokens to learn.  [default: 8000]", rich_help_panel=OF_TEXT),
    ] = None,
    lowercase: Annotated[
        bool | None,
        typer.Option(
            "--lowercase/--cased",
            help="Lower all words, or keep capitals and accents.  [default: lowercase]",
            rich_help_panel=OF_TEXT,
        ),
    ] = None,
    layout: LayoutOption = None,
    cache_dir: Annotated[
        pathlib.Path | None,
        typer.Option(
            help="Folder for the tokenised text.  [default: in the user's cache]",
            rich_help_panel=OF_TEXT,
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
    precision: PrecisionOption = None,
    jit: Annotated[
        bool | None,
        typer.Option(
            "--jit/--no-jit",
            help="Compile the step with XLA, for GPUs.  [default: no-jit]",
            rich_help_panel=OF_DEVICES,
        ),
    ] = None,
    strategy: Annotated[
        Strategy | None,
        typer.Option(
            help="All GPUs of this machine, or a TPU.  [default: one device]",
            rich_help_panel=OF_DEVICES,
        ),
    ] = None,
    tpu: Annotated[
        str | None,
        typer.Option(
            help="Name of the TPU.  [default: this machine's]", rich_help_panel=OF_DEVICES
        ),
    ] = None,
) -> None:
    """Pretrains a BERT on text: masked tokens and next sentences.

    The run folder gets `run.yaml` (the options), `config.json`, `vocab.txt`, the checkpoints
    `best/` and `last/`, `metrics.jsonl` and logs for TensorBoard. Ctrl-C saves and says how to
    go on.

    Examples:

    - `keras-bert-d2l pretrain my_text/ --run-dir runs/mine --steps 20000`
    - `keras-bert-d2l pretrain my_store/ --run-dir runs/mine --masking whole_word --rows packed`
    - `keras-bert-d2l pretrain "news/*.txt.gz" --run-dir runs/news --init runs/mine`
    - `keras-bert-d2l pretrain --config runs/mine/run.yaml --run-dir runs/again --seed 1`
    - `keras-bert-d2l pretrain --resume runs/mine`
    """
    given = {name: plain(value) for name, value in locals().items() if value is not None}
    folder = folder_of_run(given.pop("run_dir", None), given.pop("resume", None))
    if "texts" in given:
        given["corpus"] = one_or_many(given.pop("texts"))
    from_file = PretrainingOptions.read_yaml(given.pop("config")) if config else {}
    options = {"corpus": None, **from_file, **given}
    pretrain(run_dir=folder, resume=resume is not None, **options)
