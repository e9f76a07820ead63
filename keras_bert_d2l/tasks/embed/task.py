"""The record of the task `embed`; see `contract/task.py`."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.data.tasks.texts import text_examples
from keras_bert_d2l.tasks.embed.examples import PairExamples, as_cosines

if TYPE_CHECKING:
    from keras_bert_d2l.models.losses import Loss
    from keras_bert_d2l.tasks.embed.model import TextEmbedder

_NO_PREDICTIONS = (
    "A TextEmbedder predicts nothing. Use `keras-bert-d2l embed` for vectors, or `similar` for a "
    "search."
)


class EmbedTask(Task[PairExamples, "TextEmbedder", float]):
    """Vectors that are close for similar texts."""

    name = "embed"
    examples = (PairExamples,)
    columns: ClassVar = {
        "text": "anchor query question",
        "text_b": "positive passage answer document context response",
        "negative": "negative hard_negative",
        "label": "score similarity similarity_score relatedness_score label gold",
    }
    needs_text_b = True
    finds_pairs = True
    has_scores = True
    options = frozenset({"long_texts", "mine_negatives", "temperature"})
    # The loss compares all texts of a batch, and no weights follow a dropout.
    refused = frozenset({"devices", "micro_batches", "dropout"})
    monitors = ("val_spearman", "val_recall@1")
    library = "scipy.stats"
    huggingface = HuggingFace("BertModel", "", "feature-extraction")
    encode = lazy("keras_bert_d2l.tasks.embed.examples:encoded_pairs")
    model = lazy("keras_bert_d2l.tasks.embed.model:TextEmbedder")
    evaluate = lazy("keras_bert_d2l.tasks.embed.predictions:evaluate_pairs")
    signatures = lazy("keras_bert_d2l.signatures.signature:TextSignatures")

    def read(self, file: TextFile, options: ReadingOptions) -> PairExamples:
        return text_examples(file, options, PairExamples)

    def with_negatives(
        self,
        model: "TextEmbedder",
        train: PairExamples,
        batch_size: int,
        say: Callable[[str], None],
    ) -> PairExamples:
        from keras_bert_d2l.tasks.embed.predictions import mine_negatives

        say("Mining negatives: the most similar text of the other pairs, for each pair.")
        return mine_negatives(model, train, batch_size=batch_size)

    def loss(self, train: PairExamples, options: Options) -> "Loss":
        temperature = options["temperature"]
        from keras_bert_d2l.models.embedding_losses import CosineLoss, RankingLoss

        if train.are_scored and temperature is not None:
            raise ValueError(
                "`temperature` is for text pairs without scores. Received: temperature="
                f"{temperature} with scores, whose loss has no temperature; omit it."
            )
        if train.are_scored:
            return CosineLoss()
        return RankingLoss(temperature or RankingLoss().temperature)

    def for_loss(self, train: PairExamples, dev: PairExamples) -> PairExamples:
        """Return the development data for the loss.

        Scores are compared with cosines on the scale of the training scores. A loss for pairs
        without scores needs pairs of similar texts: those whose scores are in the upper half.

        Raises:
            ValueError: No pair is similar.
        """
        if dev.labels is None:
            return dev
        if train.labels is not None:
            return dataclasses.replace(dev, labels=as_cosines(dev.labels, train.labels).tolist())
        similar = (as_cosines(dev.labels) >= 0.5).nonzero()[0]
        if not len(similar):
            raise ValueError(
                f"{dev.source or 'The development data'} must contain similar pairs, from which "
                "the loss is computed if the training pairs have no scores: pairs with scores of "
                "at least 0.5 or, outside [-1, 1], in the upper half. Received: scores from "
                f"{min(dev.labels)} to {max(dev.labels)}."
            )
        return dev.subset(similar).without_labels()

    def records(
        self, model: "TextEmbedder", examples: PairExamples, options: Options
    ) -> Iterator[dict[str, object]]:
        raise ValueError(_NO_PREDICTIONS)

    def from_lines(self, texts: tuple[str, ...], context: str | None) -> PairExamples:
        raise ValueError(_NO_PREDICTIONS)

    def samples(self, examples: PairExamples, found: Iterable[float]) -> Iterator[Sample]:
        labels = examples.labels or (None,) * len(examples)
        for text, label, one in zip(examples.shown_texts, labels, found, strict=True):
            yield Sample(text, None if label is None else f"{label:g}", f"{one:.3f}")


TASK = EmbedTask()
