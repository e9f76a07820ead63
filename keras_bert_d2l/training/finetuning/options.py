"""Options for fine-tuning on examples in memory and on files."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from keras_bert_d2l.checks import at_least, check_positive, wrong
from keras_bert_d2l.contract.task import check_option, task_named, tasks
from keras_bert_d2l.training.options import (
    CheckpointName,
    Devices,
    FilePath,
    LoraOptions,
    Positive,
    Precision,
    Rate,
    Share,
    StepOptions,
    Text,
    number,
)

OF_CRF = ("crf", "valid_tags")
# The options that not every task has.
_SPECIAL = "devices micro_batches dropout multi_label long_texts pooling mine_negatives".split()
_SPECIAL += OF_CRF


def _task(name: str, value: object) -> str:
    if value is None:
        raise ValueError(f"`{name}` is missing: specify one of {tuple(tasks())}.")
    return task_named(value).name


def _column(name: str, value: object) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong(name, "the name of a column or its number, counted from 1", value)
    return value


def _weights(name: str, value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise wrong(name, "a mapping from labels to weights", value)
    return {str(label): number(name, weight) for label, weight in value.items()}


_Column = Annotated[str | int, _column]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningOptions(StepOptions):
    """Options of fine-tuning. A resumed run must have the same options.

    Args:
        epochs: Passes over the training data.
        warmup_ratio: Fraction of all steps during which the learning rate rises from 0.
        layer_decay: Learning rate of each block relative to the block above it.
        batch_size: Rows per batch; by default 8 for tag, and 32 for the other tasks. For embed,
            pairs or triplets; for the losses lambda and margin_mse of rerank, queries with all
            their texts.
        max_len: Maximum number of tokens per row. Defaults to the model's maximum, or 384 for
            questions.
        micro_batches: Split each batch into this many parts and process one after another, which
            takes less memory. The training step stays the same. If the loss compares texts, as for
            embed, each part is computed twice (GradCache). Not with JAX.
        seed: Random seed of the order of the examples and, for a run on files, of new weights and
            dropout.
        class_weights: Weight of each label in the loss. Defaults to 1 for each label.
        loss: Loss to train with. For embed, ranking for pairs or triplets, triplet for triplets,
            cosine or cosent for pairs with scores, or margin_mse for triplets with the scores of a
            larger model; by default, the one that suits the data. For rerank, binary (the default)
            for labels from 0 to 1, lambda for the order of the texts of a query, or margin_mse for
            the scores of a larger model.
        temperature: Divisor of the cosines in the losses ranking and cosent of embed. Smaller
            values emphasize the most similar texts of a batch. Defaults to 0.05.
        matryoshka: Widths of vectors, separated by commas, such as 384,256,128,64. The loss of
            embed is then summed over the vectors truncated to each width.
        monitor: Metric that selects the best epoch, such as val_matthews. Defaults to accuracy, the
            micro F1 of multiple labels, the F1 of spans and answers, Pearson's r, for embed
            Spearman's rho or recall@1, or for rerank ndcg@10.
        patience: Stop after this many epochs without improvement. Defaults to never.
        jit: Compile the training step with XLA, once per batch length.
        **options: The fields of `StepOptions`.

    Raises:
        ValueError: An option has an invalid value.
    """

    command: ClassVar[str] = "finetune"

    epochs: Annotated[int, at_least(1)] = 3
    learning_rate: Positive = 5e-5
    warmup_ratio: Rate = 0.1
    layer_decay: Annotated[float, functools.partial(check_positive, most=1), number] = 1.0
    batch_size: Annotated[int, at_least(1)] = 32
    max_len: Annotated[int, at_least(5)] | None = None
    class_weights: Annotated[dict[str, float], _weights] | None = None
    loss: Text | None = None
    temperature: Positive | None = None
    matryoshka: Text | None = None
    monitor: Text | None = None
    patience: Annotated[int, at_least(1)] | None = None
    jit: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskRunOptions(LoraOptions, FinetuningOptions):
    """Options of a fine-tuning run on files.

    Args:
        task: What to learn: the label of a text or a pair of texts (classify), a number for it
            (regress), the label of every word (tag), the part of a text that answers a question
            (answer), which of several choices fits a text (choose), vectors that are close for
            similar texts (embed), or how well texts answer a query (rerank).
        model: Checkpoint of any format to start from, the folder of a run, or a name on the Hugging
            Face Hub.
        train: Training data: TSV, CSV, JSONL (also .gz, .xz), fastText, or a folder with one
            subfolder per label; CoNLL, CoNLL-U or exports of annotation tools for tag; SQuAD JSON
            for answer; pairs, pairs with scores, or triplets for embed; queries with right and
            wrong texts, or with labeled ones, for rerank.
        dev: Development data, used to select the best epoch. Defaults to a held-out part of the
            training data.
        held_out: Fraction of the training data to hold out if no development data is given.
        text: Column of the texts, words or questions: a name, or a number counted from 1. By
            default, common column names are recognized.
        text_b: Column of the second texts of pairs, or of the contexts of the questions.
        choices: Column of the lists of choices, or one column per choice, separated by commas, for
            choose.
        negative: Column of texts that do not belong to those of `text`, for embed and rerank.
        mine_negatives: Add hard negatives to each pair, also of development data without scores
            or wrong texts: for embed, the most similar second text of the other pairs; for rerank,
            one of the 30 most similar texts and one of all texts.
        embedder: Text embedder that mines the negatives. Required for rerank. For embed, the
            default is the model itself.
        label: Column of the labels, scores, tags or answers. For classify, also several columns of
            0 or 1, separated by commas. Without a column of labels, all columns of 0 and 1 are
            labels of classify.
        id: Column of the example ids.
        header: Treat the first row of a table as column names. Detected by default.
        quotes: Treat quotes in a table as marks around cells, not as text. Detected by default.
        multi_label: Allow any number of labels per text.
        long_texts: Truncate single texts that are too long (cut), or split them into windows that
            overlap and pool the outputs of at most 8 windows (mean or max). For classify, regress
            and embed. Defaults to that of the checkpoint, or cut.
        pooling: What the head of classify, regress, choose or rerank reads: the pooler's output for
            `[CLS]` (cls), or the mean of the encoded tokens (mean). Defaults to that of a
            fine-tuned checkpoint. For a BERT, the default is cls if its pooler is trained,
            otherwise mean.
        crf: Learn how well tags follow one another (a linear-chain CRF), and predict the best
            sequence of tags. For tag. Defaults to that of a fine-tuned checkpoint.
        valid_tags: With a CRF, predict no tags that break the scheme BIO or BIOES. The training
            data may break it.
        separator: Separator between the labels of a text.
        label_names: Names of the labels in vectors of 0 and 1, such as [0, 1, 0], in their order,
            separated by commas.
        dropout: Dropout rate of the BERT: after each sublayer, of the attention weights and of the
            embeddings. 0.1 suits small training data. Not for embed. Defaults to the rates of the
            checkpoint, which `pretrain --recipe modern` sets to 0.
        freeze_encoder: Train only the head and the pooler.
        freeze_blocks: Freeze the embeddings and this many blocks, counted from the bottom.
        precision: Keras dtype policy. By default (auto), a short measurement at the start decides
            between float32 and mixed_bfloat16. mixed_float16 is for older GPUs.
        devices: With the JAX backend, divide each batch over all devices (data).
            Not for embed. Defaults to one device.
        **options: The fields of `FinetuningOptions` and `LoraOptions`.

    Raises:
        ValueError: An option is missing, has an invalid value or contradicts another option.
    """

    task: Annotated[str, _task]
    model: CheckpointName
    train: FilePath
    dev: FilePath | None = None
    held_out: Share = 0.1
    text: _Column | None = None
    text_b: _Column | None = None
    negative: _Column | None = None
    choices: _Column | None = None
    mine_negatives: bool = False
    embedder: CheckpointName | None = None
    label: _Column | None = None
    id: _Column | None = None
    header: bool | None = None
    quotes: bool | None = None
    multi_label: bool = False
    long_texts: Literal["cut", "mean", "max"] | None = None  # models.tasks.windows.LongTexts
    pooling: Literal["cls", "mean"] | None = None  # layers.heads.TextPooling
    crf: bool = False
    valid_tags: bool = False
    separator: Text = ","
    label_names: Text | None = None
    dropout: Rate | None = None
    freeze_encoder: bool = False
    freeze_blocks: Annotated[int, at_least(0)] | None = None
    precision: Precision = "auto"
    devices: Devices | None = None

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> Self:
        record = super().from_dict(options)
        return dataclasses.replace(
            record, batch_size=options.get("batch_size") or task_named(record.task).batch_size
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _SPECIAL and value != field.default:
                check_option(self.task, field.name, value)
        is_mined = self.mine_negatives or self.embedder is None
        self._check(is_mined, "`embedder` needs `mine_negatives`.", "embedder")
        self._check_exclusive("dev", "held_out")
        self._check_exclusive("freeze_encoder", "freeze_blocks", "lora")
