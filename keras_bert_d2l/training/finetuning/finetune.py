"""`finetune`: train a task model and keep the best epoch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.contract.registry import task_named
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.readers.text_file import InMemory
from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import showing_stages
from keras_bert_d2l.reading import read_json_object
from keras_bert_d2l.training.devices.computation import prepare_jax
from keras_bert_d2l.training.devices.distribution import num_replicas, process
from keras_bert_d2l.training.finetuning.data import Batches, prepare
from keras_bert_d2l.training.finetuning.options import FinetuningOptions
from keras_bert_d2l.training.finetuning.trainer import Trainer
from keras_bert_d2l.training.run.callbacks import Printer, Verbose
from keras_bert_d2l.training.run.run_folder import RunFolder
from keras_bert_d2l.types import Option, PathLike

_NULL_THRESHOLD = "val_null_threshold"  # name of the metric of `evaluate`, with the prefix `val_`


class FinetuningResult(NamedTuple):
    """Result of `finetune`.

    Attributes:
        model: The model, with the weights of the best epoch.
        metrics: The content of `metrics.json`.

    Example:

    ```python
    import keras_bert_d2l as kb

    result = kb.FinetuningResult(model=None, metrics={"best_epoch": 2})
    result.metrics["best_epoch"]
    ```
    """

    model: TaskModel
    metrics: dict[str, Any]


def finetune(
    model: TaskModel,
    train: TaskExamples | Batches | PathLike | InMemory,
    dev: TaskExamples | tf.data.Dataset | PathLike | InMemory,
    run_dir: PathLike,
    *,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: Verbose = "auto",
    **options: Option,
) -> FinetuningResult:
    """Fine-tune a task model and keep the best epoch on the development data.

    The learning rate rises during the warm-up and then falls to 0, as in Devlin et al. 2019. The
    model is evaluated on the development data after each epoch. The run folder contains `best/`, a
    checkpoint for `load_pretrained`; `last/`, the complete training state; the page `report.html`;
    `metrics.json`; `metrics.jsonl` (one line per epoch); and `tensorboard/`.

    Ctrl-C, SIGTERM and SIGHUP save the run and stop it after the current step; a second Ctrl-C
    stops it immediately. A run whose loss is not finite stops as well, and keeps its checkpoints.
    With `resume`, the run continues from there and ends with exactly the weights of an
    uninterrupted run. The state is also saved after each epoch and every five minutes, so a killed
    run resumes from the last save.

    Args:
        model: The task model. Its tokenizer, if it has one, is saved with it.
        train: Examples, as returned by `read_examples`, or the path, pandas `DataFrame`, `Dataset`
            of Hugging Face or lists that it reads. Or a dataset of batches `(features,
            labels)` or `(features, labels, weights)` for one pass over the data, or a function
            that takes the epoch number, counted from 0, and returns such a dataset. If a dataset
            shuffles by itself, a resumed run sees a different order from an uninterrupted one.
        dev: The development data, in any of the forms of `train` other than a function.
        run_dir: The run folder. It must be new or empty, unless
            `resume` is set.
        resume: Continue the run in `run_dir`, or start it if there is none yet. The model must be
            created in the same way, and the options and the data must be the same.
        callbacks: Additional Keras callbacks. Each epoch is a separate call of `fit`. A callback
            that sets `model.stop_training` ends the run; the epoch counts as finished, and
            `resume` continues with the next one. Use `patience` instead of `EarlyStopping`, which
            only counts the epochs within one call of `fit`.
        verbose: 0 for no output. Otherwise, a line per evaluation, and the progress: a bar in a
            terminal, and elsewhere a line every 30 seconds.
        **options: The fields of `FinetuningOptions`. `monitor` is the metric that selects the best
            epoch, for example `"val_f1"`. Higher is better, unless its name ends in loss, entropy
            or error; ties go to the lower `val_loss`. `None` means the default metric of the task,
            `val_accuracy` or `val_loss`.

    Returns: the model with the weights of the best epoch, and the metrics.

    Raises:
        ValueError: An option is unknown or out of range, the examples do not match the model's
            task and labels, the batches are empty or endless, the options or the data differ from
            those of the run to resume, or its files are damaged.
        FileExistsError: `run_dir` is not empty, and `resume` is not set.
        FloatingPointError: The loss is not finite.
        BlockingIOError: Another process is using the run.
        ImportError: A package of the extra `[tasks]` is not installed.
        RuntimeError: This is one of several processes.
        TrainingInterrupted: Ctrl-C, SIGTERM or SIGHUP was received. It is a `KeyboardInterrupt`.

    Example:

    ```python
    import keras_bert_d2l as kb

    train = kb.TextExamples(texts=["a good film", "a bore"] * 8, labels=["good", "bad"] * 8)
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good film bore".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = kb.SequenceClassifier(bert, train.label_names, tokenizer=tokenizer)
    kb.finetune(model, train, train, "runs/films", learning_rate=1e-3, epochs=2)
    ```
    """
    check_kind(model, TaskModel)
    options = {"batch_size": task_named(model.task).batch_size, **options}
    settings, run, say = FinetuningOptions.from_dict(options), RunFolder(run_dir), Printer(verbose)
    if process()[1] > 1:
        raise RuntimeError(
            "`finetune` of a model in memory trains in one process. Received: "
            f"{process()[1]} processes. Use `finetune_files`, or one process."
        )
    run.check_kind("finetune")
    with run.locked(), showing_stages(bool(verbose)):
        is_resumed = resume and run.exists()
        if not is_resumed:
            run.check_new()
        return train_run(run, model, train, dev, settings, say, is_resumed, callbacks)


def train_run(
    run: RunFolder,
    model: TaskModel,
    train: TaskExamples | Batches | PathLike | InMemory,
    dev: TaskExamples | tf.data.Dataset | PathLike | InMemory,
    settings: FinetuningOptions,
    say: Printer,
    is_resumed: bool,
    callbacks: Sequence[keras.callbacks.Callback],
) -> FinetuningResult:
    """Start or resume a run whose folder is locked; the other arguments are as for `finetune`."""
    prepare_jax()
    data = prepare(model, train, dev, settings, say).on_devices(num_replicas(None))
    trainer = Trainer(run, settings, model, data, say)
    if is_resumed:
        trainer.restore()
    else:
        trainer.create()
    return FinetuningResult(model, trainer.train(callbacks))


def tuned_null_threshold(run_dir: PathLike) -> float | None:
    """Return the best no-answer threshold on the development data of a run.

    Returns `None` if the folder is not a fine-tuning run or if all questions have answers.

    Raises:
        ValueError: `metrics.json` is damaged.
    """
    run = RunFolder.for_reading(run_dir)
    file = run.summary_file
    if not file.is_file():
        return None
    verify_checksums(run)
    best = read_json_object(file).get("best") or {}
    threshold: float | None = best.get(_NULL_THRESHOLD)
    return threshold
