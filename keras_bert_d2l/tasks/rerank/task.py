"""The record of the task `rerank`; see `contract/task.py`."""

import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from keras_bert_d2l.checks import check_that
from keras_bert_d2l.contract.task import HuggingFace, Options, Sample, Task, lazy
from keras_bert_d2l.data.tasks.readers.columns import ReadingOptions
from keras_bert_d2l.data.tasks.readers.text_file import TextFile
from keras_bert_d2l.tasks.rerank.examples import RIGHT, RankExamples, rank_examples, with_negatives
from keras_bert_d2l.types import Say

if TYPE_CHECKING:
    from keras_bert_d2l.models.losses import Loss
    from keras_bert_d2l.tasks.rerank.model import Reranker

_SIMILAR = 30  # the other texts from which one is mined, for each right text
_MAX_SHARE = 0.95  # as in `mine_negatives`


class RerankTask(Task[RankExamples, "Reranker", list[float]]):
    """How well texts answer a query."""

    name = "rerank"
    examples = (RankExamples,)
    columns: ClassVar = {
        "text": "query question anchor",
        "text_b": "text passage document documents docs passages answer positive context",
        "negative": "negative negatives hard_negative hard_negatives",
        "label": "label labels score scores relevance margin gold",
    }
    needs_text_b = True
    has_scores = True
    options = frozenset({"pooling", "truncate", "mine_negatives", "explain"})
    losses = ("binary", "lambda", "margin_mse")
    monitors = ("val_ndcg@10",)
    huggingface = HuggingFace(
        *("BertForSequenceClassification", "classifier", "text-ranking"), ("regression",)
    )
    encode = lazy("keras_bert_d2l.tasks.rerank.examples:encoded_rankings")
    model = lazy("keras_bert_d2l.tasks.rerank.model:Reranker")
    evaluate = lazy("keras_bert_d2l.tasks.rerank.evaluation:evaluate_ranking")
    signatures = lazy("keras_bert_d2l.tasks.rerank.predictions:RerankSignatures")

    def read(self, file: TextFile, options: ReadingOptions) -> RankExamples:
        return rank_examples(file, options)

    def with_negatives(
        self, model: Any, train: RankExamples, dev: RankExamples, batch_size: int, say: Say
    ) -> tuple[RankExamples, RankExamples]:
        """Return the data with mined negatives; development data may have wrong texts already.

        A right text gets a negative that is hard and one that is easy: a new reranker that only
        sees hard ones hardly learns at first.
        """
        from keras_bert_d2l.tasks.embed.examples import PairExamples
        from keras_bert_d2l.tasks.embed.pairs import hard_negatives

        advice = "Pass an `embedder`, such as bge-small: a reranker cannot search."
        check_that(not model.has_head, "embedder", "a text embedder", type(model).__name__, advice)
        what = f"one of the {_SIMILAR} most similar other texts and one of all texts"
        say(f"Mining negatives: {what}, for each right text.")
        chance = random.Random(0)

        def mined(examples: RankExamples, others: tuple[str, ...] = ()) -> RankExamples:
            if examples.has_wrong_texts:
                return examples
            queries, texts = examples.pairs
            pairs = PairExamples(texts=queries, texts_b=texts)
            similar = hard_negatives(model, pairs, _MAX_SHARE, batch_size, _SIMILAR, others)
            every = (*texts, *others)
            found = ([chance.choice(hard), chance.choice(every)] for hard in similar)
            return with_negatives(examples, found)

        return mined(train), mined(dev, train.pairs[1])

    def loss(self, train: RankExamples, options: Options) -> "Loss":
        from keras_bert_d2l.models.losses import WeightedBinaryCrossEntropy
        from keras_bert_d2l.models.ranking_losses import LambdaLoss, MarginMSELoss

        kinds: list[type[Loss]] = [WeightedBinaryCrossEntropy, LambdaLoss, MarginMSELoss]
        self._check_labels(train, options)
        return dict(zip(self.losses, kinds, strict=True))[options["loss"] or self.losses[0]]()

    def for_loss(self, train: RankExamples, dev: RankExamples, options: Options) -> RankExamples:
        dev.check_wrong_texts()
        self._check_labels(dev, options)
        return dev

    def _check_labels(self, examples: RankExamples, options: Options) -> None:
        """Raise `ValueError` if the loss cannot learn from the labels."""
        labels = {label for of_query in examples.labels or () for label in of_query}
        if len(labels) == 1:
            examples.check_wrong_texts()
        is_binary = options["loss"] in (None, "binary")
        is_right = not is_binary or 0 <= min(labels) <= max(labels) <= 1
        advice = "Choose loss='lambda' for grades, or 'margin_mse' for the scores of a model."
        received = f"{min(labels):g} to {max(labels):g} in {examples.source or 'the examples'}"
        check_that(is_right, "labels", "from 0 to 1 for the loss 'binary'", received, advice)

    def records(
        self, model: "Reranker", examples: RankExamples, options: Options
    ) -> Iterator[dict[str, object]]:
        """Yield a record for each text of each query, from which `finetune` can learn."""
        from keras_bert_d2l.inference.prediction import text_answers

        queries, texts = examples.pairs
        of_rows = (options["batch_size"], options["max_len"], options.get("truncate", True))
        found = text_answers(model, model.tokenizer, queries, texts, *of_rows)
        ids = (one for one, own in zip(examples.ids, examples.documents, strict=True) for _ in own)
        for one, query, text, answer in zip(ids, queries, texts, found, strict=True):
            yield {"id": one, "query": query, "text": text, "score": answer["scores"][0]}

    def samples(self, examples: RankExamples, found: Iterable[list[float]]) -> Iterator[Sample]:
        """Yield the best text of each query, and a right one."""
        columns = (examples.queries, examples.documents, examples.labels or (), found)
        for query, texts, labels, scores in zip(*columns, strict=True):
            best = max(range(len(texts)), key=scores.__getitem__)
            first = max(range(len(texts)), key=labels.__getitem__)
            gold = texts[first] if labels[first] >= RIGHT else None
            yield Sample(query, gold, texts[best], scores[best], labels[best] >= RIGHT)


TASK = RerankTask()
