"""Commands that train a model: `quickstart`, `pretrain` and `finetune`, and their `--lr-find`."""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

import keras_bert_d2l as kb
from keras_bert_d2l import quickstart as demo
from keras_bert_d2l.checks import shown
from keras_bert_d2l.cli.arguments import (
    Flag,
    Out,
    PositiveInt,
    nonempty_path,
    one_or_many,
    panel,
    takes_options,
)
from keras_bert_d2l.cli.input_output import load
from keras_bert_d2l.progress import stage
from keras_bert_d2l.tasks.registry import task_named, tasks
from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.training.pretraining.options import (
    EXCLUSIVE,
    RECIPES,
    PretrainingOptions,
)
from keras_bert_d2l.types import Option, Tensor

RunDir = Annotated[
    Path | None,
    Parameter(
        help="Folder for the new run: an empty folder, a new path, or a URL such as "
        "s3://bucket/runs/mine.",
        converter=nonempty_path,
        group=panel("Run"),
    ),
]
Resume = Annotated[
    Path | None,
    Parameter(
        help="Folder or URL of the run to resume. Its own options apply. If it contains no run "
        "yet, start one with the given options.",
        converter=nonempty_path,
        group=panel("Run"),
    ),
]
Config = Annotated[
    Path | None,
    Parameter(
        help="YAML file with options, such as the run.yaml of another run. Names are as below, "
        "with _ instead of -. Options on the command line take precedence.",
        group=panel("Run"),
    ),
]
LrFind = Annotated[
    bool,
    Parameter(
        help="Test learning rates instead of training: up to 100 steps with rising rates. Print "
        "the proposed rate.",
        negative="",
        group=panel("Run"),
    ),
]


def quickstart(
    *,
    minutes: Annotated[float, Parameter(validator=Number(gte=0.1))] = demo.DEFAULT_MINUTES,
    steps: PositiveInt | None = None,
    run_dir: Path = demo.RUNS,
    out: Out = demo.SAVED_MODELS,
) -> None:
    """Run the whole workflow in minutes: from raw text to a model that accepts strings.

    Learns a vocabulary from the docstrings of the installed tensorflow, keras and numpy, pretrains
    a small BERT on them and exports it as a SavedModel. Then a process without this package loads
    the SavedModel and predicts two masked words. Nothing is downloaded.

    Args:
        minutes: Training time in minutes, which determines the number of steps.
        steps: Train for this many steps instead.
        run_dir: Folder for the vocabulary and the numbered runs.
        out: Folder for the numbered versions of the exported model.
    """
    print("Importing TensorFlow", flush=True)
    demo.run(minutes=minutes, steps=steps, run_dir=run_dir, out=out)


@takes_options(
    PretrainingOptions,
    {
        "Text": "vocab vocab_size lowercase layout cache_dir",
        "Model": "preset bert_config init dropout attention_dropout",
        "Examples": "objective masking mask_rate final_mask_rate mask_replace_prob rows "
        "short_seq_prob",
        "Training": "recipe steps minutes batch_size micro_batches remat max_len short_steps "
        "short_len causal_steps optimizer learning_rate schedule warmup_steps "
        "decay_steps weight_decay seed held_out evaluate_every",
        "Trainable weights": "lora lora_alpha lora_layers",
        "Devices": "precision jit strategy devices",
    },
)
def pretrain(
    *texts: Annotated[str, Parameter(name="TEXT")],
    run_dir: RunDir = None,
    resume: Resume = None,
    config: Config = None,
    lr_find: LrFind = False,
    **options: Option,
) -> None:
    """Pretrain a BERT on masked-token and next-sentence prediction.

    The run folder contains `run.yaml` (the options), `config.json`, `vocab.txt`, the checkpoints
    `best/` and `last/`, `report.html` (curves and predictions, to open in a browser),
    `metrics.jsonl` and TensorBoard logs. Ctrl-C saves the run and prints the command that resumes
    it.

    For example:

    - `keras-bert-d2l pretrain my_text/ --run-dir runs/mine --steps 20000`
    - `keras-bert-d2l pretrain my_text/ --lr-find`
    - `keras-bert-d2l pretrain my_text/ --run-dir runs/hour --minutes 60 --short-steps 0.5`
    - `keras-bert-d2l pretrain my_store/ --run-dir runs/mine --masking whole_word`
    - `keras-bert-d2l pretrain "news/*.txt.gz" --run-dir runs/news --init runs/mine`
    - `keras-bert-d2l pretrain --config runs/mine/run.yaml --run-dir runs/again --seed 1`
    - `keras-bert-d2l pretrain --resume runs/mine`

    Args:
        texts: Text files, folders or globs (also .gz, .xz), or the word "docstrings"; or a token
            store from `prepare`.
    """
    given: dict[str, Any] = {"corpus": None}
    if config is not None:
        given |= PretrainingOptions.read_yaml(config)
        # A recipe takes precedence over the file, and so does an option over those it excludes.
        given |= RECIPES.get(options.get("recipe"), {})
        for names in EXCLUSIVE:
            if not options.keys().isdisjoint(names):
                for name in set(names) - options.keys() - {"init"}:
                    given.pop(name, None)
    if texts:
        given["corpus"] = one_or_many(list(texts))
    given |= options
    folder = _run_folder(run_dir, resume, lr_find=lr_find)
    if not lr_find:
        kb.pretrain(run_dir=folder, resume=resume is not None, **given)
        return
    from keras_bert_d2l.training.pretraining.pretrain import make_trainer, with_store_options
    from keras_bert_d2l.training.run.callbacks import Printer
    from keras_bert_d2l.training.run.run_folder import RunFolder

    settings = PretrainingOptions.from_dict(with_store_options(given))
    trainer = make_trainer(settings.corpus, RunFolder(folder), settings, Printer("auto"))
    _find_learning_rate(trainer.model, trainer.batches(causal=True))


def _tasks_in_words() -> str:
    """Return what the known tasks learn, also those of installed packages."""
    named = []
    for one in tasks().values():
        first_line = (type(one).__doc__ or "").partition("\n")[0].rstrip(".")
        learned = first_line[:1].lower() + first_line[1:]
        named.append(f"{one.name} ({learned})" if learned else one.name)
    return f"What to learn: {', '.join(named)}."


@takes_options(
    TaskRunOptions,
    {
        "Run": "model",
        "Data": "train dev held_out text text_b choices negative mine_negatives label id header "
        "quotes multi_label long_texts separator max_len",
        "Training": "epochs batch_size micro_batches remat optimizer learning_rate schedule "
        "warmup_ratio weight_decay "
        "dropout pooling temperature monitor patience seed",
        "Trainable weights": "layer_decay freeze_encoder freeze_blocks lora lora_alpha lora_layers",
        "Devices": "precision jit devices",
    },
)
def finetune(
    task: Annotated[str | None, Parameter(help=_tasks_in_words())] = None,
    /,
    *,
    run_dir: RunDir = None,
    resume: Resume = None,
    config: Config = None,
    peek: Flag = False,
    lr_find: LrFind = False,
    class_weight: Annotated[
        tuple[str, ...],
        Parameter(name="--class-weights", negative="", show_default=False, group=panel("Training")),
    ] = (),
    **options: Option,
) -> None:
    """Fine-tune a model on examples and keep the best epoch on the development data.

    The run folder contains `run.yaml` (the options), `best/` (the model, for `evaluate` and
    `predict`), `last/`, `report.html` (curves, predictions and errors, to open in a browser),
    `metrics.json` and TensorBoard logs. Ctrl-C saves the run and prints the command that resumes
    it.

    For example:

    - `keras-bert-d2l finetune classify --train reviews.tsv --model minilm --run-dir runs/reviews`
    - `keras-bert-d2l finetune tag --train train.conllu --dev dev.conllu --label UPOS --model minilm
      --run-dir runs/pos`
    - `keras-bert-d2l finetune answer --train train-v1.1.json --model runs/mine --run-dir runs/qa`
    - `keras-bert-d2l finetune choose --train swag.csv --model minilm --run-dir runs/swag`
    - `keras-bert-d2l finetune embed --train pairs.tsv --dev sts.tsv --model minilm
      --run-dir runs/search`
    - `keras-bert-d2l finetune classify --train reviews.csv --model minilm --peek`
    - `keras-bert-d2l finetune classify --train reviews.csv --model minilm --lr-find`
    - `keras-bert-d2l finetune --resume runs/reviews`

    Args:
        peek: Preview the data as the model sees it and exit.
        class_weight: Weight of a label in the loss, as LABEL=WEIGHT. Repeat the option for several
            labels. [default: 1 for each label]
    """
    if task is not None:
        options["task"] = task_named(task).name
    if class_weight:
        options["class_weights"] = _weights_by_label(class_weight)
    given = {**(TaskRunOptions.read_yaml(config) if config is not None else {}), **options}
    folder = _run_folder(run_dir, resume, peek=peek, lr_find=lr_find)
    if peek:
        _peek(TaskRunOptions.from_dict(given))
        return
    if not lr_find:
        kb.finetune_files(folder, resume=resume is not None, **given)
        return
    from keras_bert_d2l.training.finetuning.data import batches_of
    from keras_bert_d2l.training.finetuning.finetune_files import make_trainer
    from keras_bert_d2l.training.run.callbacks import Printer
    from keras_bert_d2l.training.run.run_folder import RunFolder

    trainer = make_trainer(RunFolder(folder), TaskRunOptions.from_dict(given), Printer("auto"))
    _find_learning_rate(trainer.model, batches_of(trainer.data.train, 0))


def _run_folder(
    run_dir: Path | None, resume: Path | None, *, lr_find: bool, peek: bool = False
) -> Path:
    """Return the folder of the run, which need not exist yet."""
    for option, value in (("--peek", peek), ("--lr-find", lr_find)):
        if resume is not None and value:
            raise ValueError(
                f"{option} does not train, so it has no run to resume. Received: --resume "
                f"{resume}; remove one of them."
            )
    if peek or lr_find:
        return Path()
    if run_dir is not None and resume is not None:
        raise ValueError(
            "--run-dir is for a new run and --resume continues one, in its own folder. Received: "
            "both; remove one of them."
        )
    folder = resume or run_dir
    if folder is None:
        raise ValueError("--run-dir FOLDER is missing, or --resume FOLDER to continue a run.")
    return folder


def _weights_by_label(pairs: tuple[str, ...]) -> dict[str, float]:
    weights = {}
    for pair in pairs:
        label, _, weight = pair.rpartition("=")
        try:
            weights[label] = float(weight)
        except ValueError:
            label = ""
        if not label:
            raise ValueError(f"--class-weights must be LABEL=WEIGHT. Received: {shown(pair)}.")
    return weights


def _peek(options: TaskRunOptions) -> None:
    from keras_bert_d2l.checkpoints.checks import tokenizer_of
    from keras_bert_d2l.models.tasks.text_inputs import longest_row
    from keras_bert_d2l.training.finetuning.data import row_len
    from keras_bert_d2l.training.finetuning.finetune_files import read_data

    # Training data replaces missing development data, so that no example is held out.
    named = dataclasses.replace(
        options, dev=options.dev or options.train, held_out=TaskRunOptions.held_out
    )
    train, dev = read_data(named, lambda line: print(line, file=sys.stderr))
    loaded = load(options.model, heads=False)
    longest = longest_row(loaded.config.max_len, options.long_texts or "cut")
    max_len = row_len(longest, options.task, options.max_len)
    print(kb.peek(train, tokenizer_of(loaded.model), max_len))
    unseen = sorted(set(dev.label_names) - set(train.label_names))
    if unseen:
        print(
            "The development data contains labels that are missing from the training data: "
            f"{', '.join(unseen):.200}.",
            file=sys.stderr,
        )


def _find_learning_rate(
    model: "kb.BERTModel | kb.SequenceClassifier", batches: Iterable[Tensor]
) -> None:
    with stage("Testing learning rates"):
        found = kb.find_learning_rate(model, batches)
    print(found)
