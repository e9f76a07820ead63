"""The record of the task `embed`; see `contract/task.py`."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from keras_bert_d2l.checks import check_that
from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.data.tasks.texts import text_examples
from keras_bert_d2l.tasks.embed.examples import PairExamples, as_cosines
from keras_bert_d2l.types import Say

if TYPE_CHECKING:
    from keras_bert_d2l.models.losses import Loss
    from keras_bert_d2l.tasks.embed.model import TextEmbedder

# The losses of the option `loss`, and the kinds of data that each fits.
_LOSSES = {
    "ranking": ("pairs", "triplets"),
    "triplet": ("triplets",),
    "cosine": ("pairs with scores",),
    "cosent": ("pairs with scores",),
    "margin_mse": ("triplets with scores",),
}
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
        "label": "score scores margin similarity similarity_score relatedness_score label gold",
    }
    needs_text_b = True
    finds_pairs = True
    has_scores = True
    options = frozenset({"long_texts", "mine_negatives", "temperature", "matryoshka"})
    losses = tuple(_LOSSES)
    # The loss compares all texts of a batch, and no weights follow a dropout.
    refused = frozenset({"devices", "dropout"})
    monitors = ("val_spearman", "val_recall@1")
    library = "scipy.stats"
    huggingface = HuggingFace("BertModel", "", "feature-extraction")
    encode = lazy("keras_bert_d2l.tasks.embed.examples:encoded_pairs")
    model = lazy("keras_bert_d2l.tasks.embed.model:TextEmbedder")
    evaluate = lazy("keras_bert_d2l.tasks.embed.pairs:evaluate_pairs")
    signatures = lazy("keras_bert_d2l.signatures.signature:TextSignatures")

    def read(self, file: TextFile, options: ReadingOptions) -> PairExamples:
        return text_examples(file, options, PairExamples)

    def with_negatives(
        self, model: Any, train: PairExamples, dev: PairExamples, batch_size: int, say: Say
    ) -> tuple[PairExamples, PairExamples]:
        from keras_bert_d2l.tasks.embed.pairs import mine_negatives

        say("Mining negatives: the most similar text of the other pairs, for each pair.")
        train = mine_negatives(model, train, batch_size=batch_size)
        if dev.kind == "pairs":
            dev = mine_negatives(model, dev, batch_size=batch_size)
        return train, dev

    def loss(self, train: PairExamples, options: Options) -> "Loss":
        from keras_bert_d2l.models import embedding_losses, pair_losses
        from keras_bert_d2l.models.ranking_losses import MarginMSELoss

        kinds: dict[str, Callable[..., Loss]] = {
            "ranking": embedding_losses.RankingLoss,
            "triplet": pair_losses.TripletLoss,
            "cosine": pair_losses.CosineLoss,
            "cosent": pair_losses.CoSENTLoss,
            "margin_mse": lambda: MarginMSELoss("dot"),
        }
        name, temperature = _loss_for(train, options), options["temperature"]
        has_temperature = temperature is None or name in ("ranking", "cosent")
        check_that(has_temperature, "temperature", f"omitted for the loss {name!r}", temperature)
        loss = kinds[name](**({} if temperature is None else {"temperature": temperature}))
        if options["matryoshka"] is None:
            return loss
        widths, width = options["matryoshka"].split(","), options["width"]
        is_right = all(one.strip().isdecimal() and 0 < int(one) <= width for one in widths)
        expected = f"widths from 1 to {width}, that of the vectors, separated by commas"
        check_that(is_right, "matryoshka", expected, options["matryoshka"])
        return embedding_losses.MatryoshkaLoss(loss, [*map(int, widths)])

    def for_loss(self, train: PairExamples, dev: PairExamples, options: Options) -> PairExamples:
        """Return the development data for the loss.

        Scores are compared with cosines on the scale of the training scores. A loss for pairs
        without scores needs pairs of similar texts: those whose scores are in the upper half.

        Raises:
            ValueError: The data does not fit the loss, or no pair is similar.
        """
        loss = _loss_for(train, options)
        if train.labels is not None and train.are_scored:  # and so does `dev`
            labels = as_cosines(dev.labels or (), train.labels).tolist()
            return dataclasses.replace(dev, labels=labels)
        if dev.negatives and loss != "margin_mse":
            dev = dev.without_labels()
        if dev.kind in _LOSSES[loss]:
            return dev
        expected = f"{_LOSSES[loss][0]} for the loss {loss!r}, like the training data"
        check_that(loss == "ranking", "dev", expected, dev.kind)
        scores = dev.labels or ()  # of pairs
        similar = (as_cosines(scores) >= 0.5).nonzero()[0]
        if not len(similar):
            raise ValueError(
                f"{dev.source or 'The development data'} must contain similar pairs, from which "
                "the loss is computed if the training pairs have no scores: pairs with scores of "
                "at least 0.5 or, outside [-1, 1], in the upper half. Received: scores from "
                f"{min(scores)} to {max(scores)}."
            )
        return dev.subset(similar).without_labels()

    def records(
        self, model: "TextEmbedder", examples: PairExamples, options: Options
    ) -> Iterator[dict[str, object]]:
        raise ValueError(_NO_PREDICTIONS)

    def from_lines(self, texts: tuple[str, ...], context: str | None) -> PairExamples:
        raise ValueError(_NO_PREDICTIONS)

    def samples(self, examples: PairExamples, found: Iterable[float]) -> Iterator[Sample]:
        labels = (examples.labels if examples.are_scored else None) or (None,) * len(examples)
        for text, label, one in zip(examples.shown_texts, labels, found, strict=True):
            yield Sample(text, None if label is None else f"{label:g}", f"{one:.3f}")


def _loss_for(train: PairExamples, options: Options) -> str:
    """Return the name of the loss: the option, or the first one that fits the data.

    Raises:
        ValueError: The loss does not fit the data.
    """
    fitting = [name for name, kinds in _LOSSES.items() if train.kind in kinds]
    loss: str = options["loss"] or fitting[0]
    expected = f"one of {', '.join(map(repr, fitting))} for {train.kind}, as in the training data"
    check_that(loss in fitting, "loss", expected, loss)
    return loss


TASK = EmbedTask()
