"""Evaluate rerankers: where the right texts of a query are in the order of the scores.

R: texts of a query.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from keras_bert_d2l.checkpoints.checks import tokenizer_of
from keras_bert_d2l.checks import check_that, shown
from keras_bert_d2l.contract.task import Options
from keras_bert_d2l.inference.evaluation import Evaluation, evaluation_of, row_options
from keras_bert_d2l.inference.prediction import text_outputs
from keras_bert_d2l.tasks.rerank.examples import RIGHT, RankExamples
from keras_bert_d2l.tasks.rerank.model import Reranker

_TOP = 10


def ranking_metrics(
    labels: Sequence[Sequence[float]], scores: Sequence[Sequence[float]]
) -> dict[str, float]:
    """Return the metrics of rankings, as means over the queries.

    A text is right if its label is at least 0.5. A query without a right text counts as 0. Of texts
    with equal scores, the wrong ones come first.

    Source: `CrossEncoderRerankingEvaluator` and `InformationRetrievalEvaluator` of
    sentence-transformers.

    Args:
        labels: How relevant each text of each query is.
        scores: The score of each text of each query. The highest is the best.

    Returns: `ndcg@10`, with the labels as gains; `mrr@10`, the reciprocal rank of the first right
        text; `map`, the mean average precision; and `recall@10`, the share of the right texts among
        the first 10.

    Raises:
        ValueError: The labels and the scores have different sizes.

    Example:

    ```python
    import keras_bert_d2l as kb

    metrics = kb.ranking_metrics([[0, 1, 0], [1, 0]], [[0.9, 0.8, 0.1], [0.7, 0.2]])
    assert metrics["mrr@10"] == 0.75
    ```
    """
    sizes = [[len(of_query) for of_query in each] for each in (labels, scores)]
    sizes_of_labels = f"lists of {shown(sizes[0])} numbers, as `labels`"
    check_that(sizes[0] == sizes[1], "scores", sizes_of_labels, sizes[1])
    check_that(bool(sizes[0]), "labels", "those of at least one query", labels)
    found = [_metrics(*map(np.asarray, pair)) for pair in zip(labels, scores, strict=True)]
    names = ("ndcg@10", "mrr@10", "map", "recall@10")
    return dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))


def _metrics(labels: np.ndarray, scores: np.ndarray) -> tuple[float, float, float, float]:
    """Return the metrics of a query, in the order of their names."""
    gains = np.maximum(labels.astype("float64"), 0)
    is_right = labels >= RIGHT
    order = np.lexsort((labels, -scores))  # NaN comes last
    ranks = 1 + np.flatnonzero(is_right[order])
    if not len(ranks):
        return 0.0, 0.0, 0.0, 0.0
    discounts = 1 / np.log2(np.arange(2, 2 + min(_TOP, len(labels))))
    best, dcg = (np.sum(some[:_TOP] * discounts) for some in (-np.sort(-gains), gains[order]))
    precision = np.mean(np.arange(1, 1 + len(ranks)) / ranks)
    mrr = 1 / ranks[0] if ranks[0] <= _TOP else 0.0
    return float(dcg / best), float(mrr), float(precision), float(np.mean(ranks <= _TOP))


def evaluate_ranking(model: Reranker, examples: RankExamples, options: Options) -> Evaluation:
    """Evaluate the order in which a reranker puts the texts of each query."""
    examples.check_wrong_texts()
    rows = row_options(options)
    outputs = text_outputs(model, tokenizer_of(model), *examples.pairs, *rows.values())
    scores = iter([float(output[0]) for output in outputs])
    found = [list(itertools.islice(scores, len(texts))) for texts in examples.documents]
    return evaluation_of(examples, ranking_metrics(examples.labels or (), found), found)
