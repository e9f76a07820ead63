"""The command that fine-tunes a model."""

import dataclasses
import pathlib
from typing import Annotated

import typer

from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.cli.options import (
    OF_DEVICES,
    OF_RUN,
    OF_TRAINING,
    Config,
    PrecisionOption,
    Resume,
    RunDir,
    Seed,
    WeightDecay,
    folder_of_run,
    plain,
)
from keras_bert_d2l.cli.task_options import (
    OF_DATA,
    Header,
    Id,
    Label,
    MultiLabel,
    Separator,
    Text,
    TextB,
)
from keras_bert_d2l.data.tasks.peek import peek
from keras_bert_d2l.training.finetuning.data import row_len
from keras_bert_d2l.training.finetuning.files import finetune_files
from keras_bert_d2l.training.finetuning.options import Task, TaskRunOptions
from keras_bert_d2l.training.finetuning.start import read_data
from keras_bert_d2l.training.run_folder import checkpoint_folder

_TRAINED = "What is trained"


def run_finetuning(
    task: Annotated[
        Task | None,
        typer.Argument(
            metavar="TASK",
            help="What to learn: **classify**, the label of a text or a pair of texts; "
            "**regress**, a number for it; **tag**, the label of every word; **answer**, the part "
            "of a text that answers a question.",
            show_default=False,
        ),
    ] = None,
    train: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="TSV, CSV, JSONL (also .gz, .xz), fastText or a folder with one folder for each "
            "label; for tag CoNLL or CoNLL-U; for answer SQuAD's JSON.",
            rich_help_panel=OF_DATA,
        ),
    ] = None,
    dev: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE",
            help="Development data, by which the best epoch is chosen.  [default: a share of "
            "--train]",
            rich_help_panel=OF_DATA,
        ),
    ] = None,
    model: Annotated[
        pathlib.Path | None,
        typer.Option(
            "--model",
            "-m",
            metavar="FOLDER",
            help="Checkpoint to begin with, of any format, or the folder of a run.",
            rich_help_panel=OF_RUN,
        ),
    ] = None,
    run_dir: RunDir = None,
    resume: Resume = None,
    config: Config = None,
    show_peek: Annotated[
        bool,
        typer.Option(
            "--peek",
            help="Show what the model would see of the data, and end.",
            rich_help_panel=OF_RUN,
        ),
    ] = False,
    text: Text = None,
    text_b: TextB = None,
    label: Label = None,
    id: Id = None,
    multi_label: MultiLabel = None,
    separator: Separator = None,
    header: Header = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            help="This share of --train, where there is no --dev.  [default: 0.1]",
            rich_help_panel=OF_DATA,
        ),
    ] = None,
    max_len: Annotated[
        int | None,
        typer.Option(
            help="Tokens in a row at most.  [default: what the model can read, of questions 384]",
            rich_help_panel=OF_DATA,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Times through the data.  [default: 3]", rich_help_panel=OF_TRAINING),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows in a step.  [default: 32]", rich_help_panel=OF_TRAINING)
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="At its peak.  [default: 5e-05]", rich_help_panel=OF_TRAINING),
    ] = None,
    warmup: Annotated[
        float | None,
        typer.Option(
            help="Share of the steps until the peak; then it falls to 0.  [default: 0.1]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    weight_decay: WeightDecay = None,
    class_weight: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=WEIGHT",
            help="Weight of a label in the loss; may be given for several.  [default: 1]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    monitor: Annotated[
        str | None,
        typer.Option(
            help="Figure by which an epoch is the best, such as val_matthews.  [default: accuracy, "
            "F1 of spans and answers, Pearson's r]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="End after so many epochs that are not better.  [default: do all]",
            rich_help_panel=OF_TRAINING,
        ),
    ] = None,
    seed: Seed = None,
    layer_decay: Annotated[
        float | None,
        typer.Option(
            help="Rate of a block, as a share of that of the block above it.  [default: 1]",
            rich_help_panel=_TRAINED,
        ),
    ] = None,
    freeze_encoder: Annotated[
        bool | None,
        typer.Option(
            "--freeze-encoder",
            help="Train the head and the pooler alone.",
            rich_help_panel=_TRAINED,
            show_default=False,
        ),
    ] = None,
    freeze_blocks: Annotated[
        int | None,
        typer.Option(
            help="Leave the embeddings and so many of the lowest blocks as they are.",
            rich_help_panel=_TRAINED,
        ),
    ] = None,
    lora: Annotated[
        int | None,
        typer.Option(
            metavar="RANK",
            help="Instead of the encoder train additions of this rank to it.",
            rich_help_panel=_TRAINED,
        ),
    ] = None,
    precision: PrecisionOption = None,
    jit: Annotated[
        bool | None,
        typer.Option(
            "--jit/--no-jit",
            help="Compile the step with XLA, anew for each length of a batch.  [default: no-jit]",
            rich_help_panel=OF_DEVICES,
        ),
    ] = None,
) -> None:
    """Teaches a BERT a task by examples, and keeps the epoch that does best on development data.

    The run folder gets `run.yaml` (the options), `best/` (the model, for `evaluate` and
    `predict`), `last/`, `metrics.json`, `curves.png` and logs for TensorBoard. Ctrl-C saves and
    says how to go on.

    Examples:

    - `keras-bert-d2l finetune classify --train reviews.tsv --model minilm --run-dir runs/reviews`
    - `keras-bert-d2l finetune tag --train train.conllu --dev dev.conllu --label UPOS --model minilm
      --run-dir runs/pos`
    - `keras-bert-d2l finetune answer --train train-v1.1.json --model runs/mine --run-dir runs/qa`
    - `keras-bert-d2l finetune classify --train reviews.csv --model minilm --peek`
    - `keras-bert-d2l finetune --resume runs/reviews`
    """
    given = {name: plain(value) for name, value in locals().items() if value is not None}
    folders = [given.pop(name, None) for name in ("run_dir", "resume")]
    given.pop("show_peek")
    if "class_weight" in given:
        given["class_weights"] = _class_weights(given.pop("class_weight"))
    from_file = TaskRunOptions.read_yaml(given.pop("config")) if config else {}
    options = {**from_file, **given}
    if show_peek:
        _peek(TaskRunOptions.from_dict(options))
        return
    finetune_files(folder_of_run(*folders), resume=resume is not None, **options)


def _class_weights(pairs: list[str]) -> dict[str, float]:
    weights = {}
    for pair in pairs:
        label, _, weight = pair.rpartition("=")
        try:
            weights[label] = float(weight)
        except ValueError:
            label = ""
        if not label:
            raise ValueError(f"--class-weight must be LABEL=WEIGHT. Received: {pair!r}.")
    return weights


def _peek(options: TaskRunOptions) -> None:
    # What would be held out is shown as well.
    named = dataclasses.replace(options, dev=options.dev or options.train)
    train, dev = read_data(named, lambda line: typer.echo(line, err=True))
    folder = checkpoint_folder(options.model)
    tokenizer, config = load_pretrained(folder, heads=(), verbose=False)[1:]
    if tokenizer is None:
        raise ValueError(f"{str(folder)!r} has no vocabulary, without which no text can be read.")
    max_len = row_len(config, options.task, options.max_len)
    typer.echo(peek(train, tokenizer, max_len, batch_size=options.batch_size))
    unseen = sorted(set(dev.label_names) - set(train.label_names))
    if unseen:
        typer.echo(
            "The development data have labels that the training data lack: "
            f"{', '.join(unseen):.200}.",
            err=True,
        )
