"""Evaluate vectors of texts: correlations of cosines with scores, or recall among all texts."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from keras_bert_d2l.inference.evaluation.evaluation import (
    Evaluation,
    Mistake,
    evaluation_of,
)
from keras_bert_d2l.tasks.embed.examples import PairExamples, as_cosines
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.embed.retrieval import compare, pair_cosines
from keras_bert_d2l.tasks.regress.evaluation import regression_scores


def retrieval_scores(ranks: Sequence[int]) -> dict[str, float]:
    """Return the metrics of a search.

    Args:
        ranks: The rank of the correct text of each query among all candidates, from 1.

    Returns: `recall@1` and `recall@10`, the share of correct texts among the first 1 and 10; and
        `mean_reciprocal_rank`.
    """
    found = np.asarray(ranks)
    metrics = {f"recall@{k}": float((found <= k).mean()) for k in (1, 10)}
    return {**metrics, "mean_reciprocal_rank": float((1 / found).mean())}


def evaluate_cosines(model: TextEmbedder, examples: PairExamples, batch_size: int) -> Evaluation:
    """Evaluate the cosines of pairs with scores."""
    cosines, gold = pair_cosines(model, examples, batch_size), examples.labels or ()
    correlations = regression_scores(cast("tuple[float, ...]", gold), cosines.tolist())
    mistakes = [
        Mistake(name, text, f"{score:g}", f"{cosine:.4g}", error)
        for name, text, score, cosine, error in zip(
            *(examples.ids, examples.shown_texts, gold, cosines),
            np.abs(cosines - as_cosines(gold)).tolist(),
            strict=True,
        )
    ]
    metrics = {name: correlations[name] for name in ("spearman", "pearson")}
    return evaluation_of(examples, metrics, cosines.tolist(), mistakes)


def evaluate_retrieval(model: TextEmbedder, examples: PairExamples, batch_size: int) -> Evaluation:
    """Evaluate the search for the second text of each pair among all of them."""
    candidates, comparisons = compare(model, examples, batch_size)
    ranks, cosines, mistakes = [], [], []
    for name, anchor, right, (cosine, others) in zip(
        examples.ids, examples.texts, examples.texts_b or (), comparisons, strict=True
    ):
        # Ties count as errors, so that a model whose vectors are all equal finds nothing.
        # A model whose vectors are not numbers finds nothing, either.
        ranks.append(1 + int((~(others < cosine)).sum()))
        cosines.append(cosine)
        if ranks[-1] > 1:
            nearest = int(others.argmax())
            score = float(others[nearest])
            mistakes.append(Mistake(name, anchor, right, candidates[nearest], score))
    return evaluation_of(examples, retrieval_scores(ranks), cosines, mistakes)
