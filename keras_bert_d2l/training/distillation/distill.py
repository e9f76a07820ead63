"""`distill`: train a student with fewer blocks to reproduce its teacher.

B batch, C classes, D hidden width, R rows, T tokens.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import keras
import tensorflow as tf
from keras import ops

from keras_bert_d2l.checkpoints.checks import check_head, check_kind, tokenizer_of
from keras_bert_d2l.checkpoints.surgery import Model, keep_blocks
from keras_bert_d2l.checks import (
    check_bool,
    check_integer,
    check_positive,
    check_type,
    value_errors,
)
from keras_bert_d2l.contract.task import task_named
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.data.tasks.readers.text_file import InMemory
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import as_examples
from keras_bert_d2l.inference.prediction import model_at
from keras_bert_d2l.layers.kernels.attention import valid_lens_mask
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import SplitLoss
from keras_bert_d2l.models.losses import (
    GlobalMeanLoss,
    Loss,
    WeightedBinaryCrossEntropy,
    WeightedCrossEntropy,
    binary_cross_entropy,
    label_weights,
    weighted_mean,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.progress import showing_stages, stage
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.training.devices import seeded
from keras_bert_d2l.training.finetuning.data import row_len
from keras_bert_d2l.training.optimization.optimizers import BERTAdamW
from keras_bert_d2l.training.optimization.schedules import WarmupLinearDecay
from keras_bert_d2l.training.run.callbacks import Printer, Verbose
from keras_bert_d2l.types import PathLike, Tensor

Data: TypeAlias = Corpus | TokenStore | TaskExamples | tf.data.Dataset | PathLike | InMemory

_PRETRAINING_LEN = 128  # tokens per row
_WARMUP, _WEIGHT_DECAY = 0.1, 0.01  # as in `finetune`


def distill(
    model: Model | PathLike,
    data: Data,
    blocks: Sequence[int],
    *,
    epochs: int = 3,
    learning_rate: float = 5e-5,
    batch_size: int = 32,
    max_len: int | None = None,
    temperature: float = 2.0,
    hidden_states: bool = True,
    seed: int = 0,
    verbose: Verbose = "auto",
) -> Model:
    """Distill a model into one with fewer blocks, which is smaller and faster.

    The student starts with the embeddings, some blocks and the heads of the teacher. It learns the
    outputs of the teacher, which needs no labels, and the hidden states after each of its blocks.
    Logits of classes are compared as probabilities at a raised temperature (soft labels), scores by
    their squared difference, and vectors of texts by their cosine. The logits of a tagger with a
    CRF are scores; the CRF itself stays that of the teacher. The result is evaluated, saved and
    exported like the teacher.

    Source: Hinton et al. 2015, section 2 (soft labels); Sanh et al. 2019 (DistilBERT: initial
    weights, cosine of vectors); Jiao et al. 2020 (TinyBERT), equation 8 (hidden states).

    Args:
        model: The teacher: a `BERTModel` or a fine-tuned model, with its tokenizer; or its run, its
            folder, or its name on the Hugging Face Hub.
        data: For a `BERTModel`: a `Corpus`, a token store, or text that `Corpus.open` takes. For a
            task model: examples, anything that `read_examples` takes, or a list of single texts.
            Or a dataset of the batches of one epoch, whose number must be known.
        blocks: Numbers of the blocks to keep, from 1, such as `[2, 4, 6]`.
        epochs: Passes over the data.
        learning_rate: Peak learning rate, reached after a tenth of the steps.
        batch_size: Rows per batch.
        max_len: Maximum number of tokens per row. `None`: 128 for a `BERTModel`, otherwise as for
            `finetune`. Longer texts are truncated.
        temperature: Divisor of the logits of both models. Larger values emphasize unlikely classes.
        hidden_states: Whether to learn the hidden states.
        seed: Random seed.
        verbose: 0 for no output. Otherwise, a line per epoch, and the progress: a bar in a
            terminal, and elsewhere a line every 30 seconds.

    Returns: the student, with the tokenizer of the teacher.

    Raises:
        FileNotFoundError: There is no checkpoint of this name, or no file.
        ValueError: The model has no tokenizer or no trained head, the data do not fit the model, or
            an argument is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a good film bore".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=4, dropout=0.1, max_len=16)
    teacher = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    student = kb.distill(teacher, ["a good film", "a bore"], blocks=[2, 4])
    kb.save_pretrained(student, "student")
    ```
    """
    teacher: Model = cast(Any, model_at(model))
    check_kind(teacher, BERTModel, TaskModel)
    check_integer("epochs", epochs, 1)
    check_integer("batch_size", batch_size, 1)
    check_integer("seed", seed, 0)
    if max_len is not None:
        check_integer("max_len", max_len, 3)
    check_positive("learning_rate", learning_rate)
    check_positive("temperature", temperature)
    check_bool("hidden_states", hidden_states)
    with seeded(seed):
        student = keep_blocks(teacher, blocks)
        lesson = _Lesson(teacher, student, blocks if hidden_states else (), temperature)
    batches = _batches(teacher, data, batch_size, max_len, seed)
    steps = epochs * int(batches(0).cardinality())
    rate = WarmupLinearDecay(learning_rate, int(_WARMUP * steps), steps)
    lesson.compile(BERTAdamW(rate, _WEIGHT_DECAY), jit_compile=False)
    lesson.optimizer.build(lesson.trainable_variables)
    say = Printer(verbose)
    with showing_stages(bool(verbose)), stage("Distilling", steps) as work:
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: work.advance())
        for epoch in range(1, epochs + 1):
            dataset = student.checked_data(batches(epoch - 1))
            with value_errors():
                history = lesson.fit(dataset, callbacks=[count], shuffle=False, verbose=0).history
            loss = history["loss"][-1]
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"The training diverged: the loss of epoch {epoch} is not finite. Lower "
                    f"`learning_rate`. Received: {learning_rate:g}."
                )
            say(f"Epoch {epoch}/{epochs}: loss {loss:.4f}")
    for layer in student.layers:  # Keras ignores what the model itself already is
        layer.trainable = True
    return student


class _Lesson(keras.Model):
    """A student whose `fit` learns from a teacher.

    Args:
        teacher: The teacher.
        student: The student.
        blocks: The block of the teacher for each block of the student, from 1. Empty: their hidden
            states are not compared.
        temperature: Temperature of the soft labels.
    """

    def __init__(
        self,
        teacher: BERTModel | TaskModel,
        student: BERTModel | TaskModel,
        blocks: Sequence[int],
        temperature: float,
    ) -> None:
        super().__init__(autocast=False, dtype=student.dtype_policy, name="lesson")
        self.student = student
        self.__dict__["teacher"] = teacher  # not tracked, so that it is not trained
        if isinstance(student, BERTModel) and "nsp" not in student.usable_heads:
            for layer in filter(None, (student.hidden, student.nsp)):
                layer.trainable = False  # it would get no gradient
        if (crf := getattr(student, "crf", None)) is not None:
            crf.trainable = False  # it suits logits like those of the teacher
        self.blocks = tuple(blocks)
        losses, weights = _task_losses(student)
        soft = {head: SoftLabelLoss(type(loss), temperature) for head, loss in losses.items()}
        self.soft_loss = SplitLoss(soft, weights)

    def call(
        self, x: Mapping[str, Tensor], training: bool | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        return _outputs(self.student, x, training)

    def compute_loss(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor, training: bool = True
    ) -> Tensor:
        outputs, states = y_pred
        targets, target_states = _outputs(self.teacher, x, False)
        mask = _token_weights(x, states[0])
        weights = mask if getattr(self.student, "has_token_labels", False) else sample_weight
        loss = self.soft_loss(targets, outputs, weights)
        norm = self.teacher.encoder.final_ln
        if self.blocks and norm is not None and self.blocks[-1] < len(target_states) - 1:
            last = self.blocks[-1]  # the student normalizes the output of its copy
            target_states[last] = norm(target_states[last])
        for block, state in zip(self.blocks, states[1:], strict=False):
            loss += hidden_loss(target_states[block], state, mask)
        return loss


class SoftLabelLoss(GlobalMeanLoss):
    """Difference between the outputs of a teacher and a student.

    Args:
        kind: The loss of the labels: it determines what the outputs mean. For cross entropies, the
            result is the divergence from the probabilities of the teacher, times the square of the
            temperature, so that the gradients keep their size.
        temperature: Divisor of the logits.

    Call arguments:
        y_true: Outputs of the teacher, `(..., C)`.
        y_pred: Outputs of the student, `(..., C)`.
        sample_weight: `(...)`. `None`: ones.
    """

    def __init__(self, kind: type[keras.losses.Loss], temperature: float) -> None:
        super().__init__(name="soft_labels")
        self.kind, self.temperature = kind, temperature

    def labels(self, y_true: Tensor, losses: Tensor) -> Tensor:
        return ops.zeros_like(losses)  # no output of the teacher is unknown

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the loss of each prediction: `(...)`, or `(..., C)` for yes or no and scores."""
        teacher, student = ops.cast(y_true, "float32"), ops.cast(y_pred, "float32")
        if getattr(self.kind, "compares_vectors", False):
            return 1 + keras.losses.cosine_similarity(teacher, student)  # minus the cosine
        if not issubclass(self.kind, WeightedCrossEntropy):
            return ops.square(teacher - student)
        teacher, student = teacher / self.temperature, student / self.temperature
        if self.kind is WeightedBinaryCrossEntropy:
            labels = ops.sigmoid(teacher)
            losses = binary_cross_entropy(labels, student) - binary_cross_entropy(labels, teacher)
        else:
            target = ops.log_softmax(teacher)
            losses = ops.sum(ops.exp(target) * (target - ops.log_softmax(student)), axis=-1)
        return self.temperature**2 * losses


def hidden_loss(teacher: Tensor, student: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean squared difference of hidden states `(R, T, D)`, weighted by `(R, T)`."""
    difference = ops.cast(teacher, "float32") - ops.cast(student, "float32")
    losses = ops.mean(ops.square(difference), axis=-1)
    return weighted_mean(losses, label_weights(ops.zeros_like(losses), weights))


def _task_losses(
    model: BERTModel | TaskModel,
) -> tuple[Mapping[str, Loss], Mapping[str, float] | None]:
    """Return the loss of each trained head, the key being "" for a single output, and weights."""
    if isinstance(model, BERTModel):
        check_head(model, "mlm")
        return {
            head: WeightedCrossEntropy() for head in ("mlm", "nsp") if head in model.usable_heads
        }, None
    loss, _, weights = model.default_training(None)
    return (loss if isinstance(loss, Mapping) else {"": loss}), weights


def _outputs(
    model: BERTModel | TaskModel, x: Mapping[str, Tensor], training: bool | None
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs of a model and its hidden states, `(R, T, D)` each."""
    found = model(x, training=training, return_hidden_states=True)
    return found.get("output", found), found["hidden_states"]


def _token_weights(x: Mapping[str, Tensor], states: Tensor) -> Tensor | None:
    """Return 1 for tokens and 0 for padding, float32 `(R, T)`, or `None` if there is no padding."""
    lens = x.get("valid_lens")
    if lens is None:
        return None
    lens = ops.reshape(lens, (-1,))  # the rows of choices have the shape (B, N)
    return ops.cast(valid_lens_mask(lens, ops.shape(states)[1])[:, 0], "float32")


def _batches(
    model: BERTModel | TaskModel, data: Data, batch_size: int, max_len: int | None, seed: int
) -> Callable[[int], tf.data.Dataset]:
    """Return the batches of each epoch.

    Raises:
        ValueError: The data do not fit the model.
    """
    if isinstance(data, tf.data.Dataset):
        return lambda epoch: data
    tokenizer = tokenizer_of(model)
    if isinstance(model, BERTModel):
        text = data if isinstance(data, Corpus | TokenStore) else Corpus.open(cast(PathLike, data))
        dataset = functools.partial(
            pretraining_dataset,
            text,
            tokenizer,
            batch_size=batch_size,
            max_len=max_len or min(_PRETRAINING_LEN, model.bert_config.max_len),
            objective="nsp" if "nsp" in model.usable_heads else "none",
            seed=seed,
        )
        steps = int(dataset().cardinality())
        return lambda epoch: dataset(epochs=None, first_step=epoch * steps).take(steps)
    examples = _examples(model, data)
    longest = min(model.bert_config.max_len, model.max_row_len)
    rows = TaskRows.encode(
        examples,
        tokenizer,
        labels=getattr(model, "labels", None),
        max_len=row_len(longest, examples.task, max_len),
        model=model,
    )
    return lambda epoch: rows.batches(batch_size, epoch=epoch, seed=seed)


def _examples(model: TaskModel, data: Data) -> TaskExamples:
    """Read the examples of a task model, without labels."""
    task = task_named(model.task)
    gives_vectors = not task.model.has_head  # of single texts, although it learns from pairs
    if gives_vectors and isinstance(data, list | tuple):
        return TextExamples(texts=tuple(data))
    examples = cast(TaskExamples, as_examples(model, data, labeled=False))
    check_type("data", examples, TaskExamples)
    is_text = gives_vectors and isinstance(examples, TextExamples)
    if task_named(examples.task) is not task and not is_text:
        raise ValueError(
            f"`data` must be examples for the task {task.name!r}, which the model has. Received: "
            f"examples for {examples.task!r}."
        )
    return examples.without_labels()
