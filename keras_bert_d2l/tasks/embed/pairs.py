"""Compare the texts of pairs: evaluation, and mining of hard negatives.

N: pairs of texts, C: candidates, all different second texts and negatives of the pairs.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checks import check_share, check_type, shown
from keras_bert_d2l.contract.task import Options
from keras_bert_d2l.inference.evaluation import Evaluation, Mistake, evaluation_of
from keras_bert_d2l.tasks.embed.examples import PairExamples, as_cosines
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.embed.predictions import unit_sides
from keras_bert_d2l.tasks.regress.predictions import regression_scores, score_mistakes

_TOGETHER = 256  # anchors that are compared with all candidates at once


def _compare(
    model: TextEmbedder, examples: PairExamples, batch_size: int, others: Sequence[str] = ()
) -> tuple[list[str], Iterator[tuple[float, np.ndarray]]]:
    """Compare the anchor of each example with all candidates.

    Args:
        model: The model.
        examples: The examples.
        batch_size: Texts per batch.
        others: Further candidates.

    Returns: the C candidates, and for each of the N anchors the cosine of its own second text, and
        those of the candidates, float32 `(C,)`; -inf for the anchor itself and the texts that
        belong to it.
    """
    sides = (examples.texts_b, examples.negatives, others)
    candidates = list(dict.fromkeys(itertools.chain(*filter(None, sides))))
    place = {text: number for number, text in enumerate(candidates)}
    own: dict[str, list[int]] = {}
    for anchor, second in zip(examples.texts, examples.texts_b or (), strict=True):
        known = own.setdefault(anchor, [place[anchor]] if anchor in place else [])
        known.append(place[second])
    anchors, vectors = unit_sides(model, examples.texts, candidates, batch_size)

    def comparisons() -> Iterator[tuple[float, np.ndarray]]:
        pairs = zip(examples.texts, examples.texts_b or (), strict=True)
        for start in range(0, len(anchors), _TOGETHER):
            for row in anchors[start : start + _TOGETHER] @ vectors.T:
                anchor, second = next(pairs)
                pair = float(row[place[second]])
                row[own[anchor]] = -np.inf
                yield pair, row

    return candidates, comparisons()


def mine_negatives(
    model: TextEmbedder, examples: PairExamples, *, max_share: float = 0.95, batch_size: int = 32
) -> PairExamples:
    """Add a hard negative to each pair: the most similar second text of a different pair.

    A text that is about as similar to the anchor as its own second text may well belong to it, so
    it is not used. If all texts are that similar, the least similar one is the negative.

    Source: Moreira et al. 2024 (NV-Retriever), "TopK with percentage to positive threshold".

    Args:
        model: The model that compares the texts, for example the one to be trained.
        examples: Pairs without scores.
        max_share: Maximum cosine of a negative, as a share of the cosine of the pair.
        batch_size: Texts per batch.

    Returns: the examples as triplets.

    Raises:
        ValueError: The model is not a `TextEmbedder`, the examples have scores or negatives, or
            all second texts belong to the same anchor.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog sat".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    pairs = kb.PairExamples(texts=["the cat", "the dog"], texts_b=["cat", "dog sat"])
    triplets = kb.mine_negatives(kb.TextEmbedder(bert, tokenizer=tokenizer), pairs)
    print(triplets.negatives)
    ```
    """
    check_kind(model, TextEmbedder)
    check_type("examples", examples, PairExamples, "Read a file with `read_examples`.")
    check_share("max_share", max_share)
    if examples.labels is not None or examples.negatives is not None:
        kind = "scores" if examples.labels is not None else "negatives"
        raise ValueError(f"`examples` must be pairs without {kind}. Received: {kind}.")
    mined = hard_negatives(model, examples, max_share, batch_size)
    return dataclasses.replace(examples, negatives=tuple(best for (best,) in mined))


def hard_negatives(
    model: TextEmbedder,
    examples: PairExamples,
    max_share: float,
    batch_size: int,
    number: int = 1,
    others: Sequence[str] = (),
) -> Iterator[list[str]]:
    """Yield the hard negatives of each pair.

    Args:
        model: As for `mine_negatives`.
        examples: As for `mine_negatives`.
        max_share: As for `mine_negatives`.
        batch_size: As for `mine_negatives`.
        number: Maximum number of negatives per pair, the most similar first.
        others: Texts that may be negatives besides the second texts.
    """
    candidates, comparisons = _compare(model, examples, batch_size, others)
    for anchor, (pair, cosines) in zip(examples.texts, comparisons, strict=True):
        is_other = np.isfinite(cosines)
        if not is_other.any():
            raise ValueError(
                "Each text needs a negative, a second text of a different pair. Received: "
                f"{shown(anchor)}, to which all second texts belong."
            )
        is_negative = is_other & (cosines <= pair - (1 - max_share) * abs(pair))
        chosen = np.flatnonzero(is_negative)
        chosen = chosen[np.argsort(-cosines[chosen], kind="stable")[:number]]
        if not len(chosen):
            chosen = np.where(is_other, cosines, np.inf).argsort()[:1]
        yield [candidates[place] for place in chosen]


def _retrieval_scores(examples: PairExamples, ranks: Sequence[int]) -> dict[str, float]:
    """Return the metrics of a search, as means over the queries, the different first texts.

    Source: `InformationRetrievalEvaluator` of sentence-transformers.

    Args:
        examples: The pairs.
        ranks: For each pair, the rank of its second text among itself and the wrong texts, from 1.

    Returns: `recall@1` and `recall@10`, the share of the correct texts of a query that are among
        the first 1 and 10; and `mean_reciprocal_rank`, of the first correct text.
    """
    of_query: dict[str, dict[str, int]] = {}
    for query, correct, rank in zip(examples.texts, examples.texts_b or (), ranks, strict=True):
        of_query.setdefault(query, {})[correct] = rank
    # A rank ignores the other correct texts, and those with a lower rank come first.
    found = [np.sort([*own.values()]) + np.arange(len(own)) for own in of_query.values()]
    metrics = {f"recall@{k}": float(np.mean([(own <= k).mean() for own in found])) for k in (1, 10)}
    return {**metrics, "mean_reciprocal_rank": float(np.mean([1 / own[0] for own in found]))}


def evaluate_pairs(model: TextEmbedder, examples: PairExamples, options: Options) -> Evaluation:
    """Evaluate the cosines of pairs with scores, or the search for the second text of each pair."""
    evaluate = _evaluate_cosines if examples.are_scored else _evaluate_retrieval
    return evaluate(model, examples, options["batch_size"])


def _evaluate_cosines(model: TextEmbedder, examples: PairExamples, batch_size: int) -> Evaluation:
    gold = examples.labels or ()
    first, second = unit_sides(model, examples.texts, examples.texts_b or (), batch_size)
    cosines = np.sum(first * second, axis=1)
    correlations = regression_scores(cast("tuple[float, ...]", gold), cosines.tolist())
    mistakes = score_mistakes(examples, cosines.tolist(), np.abs(cosines - as_cosines(gold)))
    metrics = {name: correlations[name] for name in ("spearman", "pearson")}
    return evaluation_of(examples, metrics, cosines.tolist(), mistakes)


def _evaluate_retrieval(model: TextEmbedder, examples: PairExamples, batch_size: int) -> Evaluation:
    candidates, comparisons = _compare(model, examples, batch_size)
    ranks, cosines, mistakes = [], [], []
    for name, anchor, right, (cosine, others) in zip(
        examples.ids, examples.texts, examples.texts_b or (), comparisons, strict=True
    ):
        # Ties count as errors, so that a model whose vectors are all equal finds nothing.
        # A model whose vectors are not numbers finds nothing, either.
        ranks.append(1 + int((~(others < cosine)).sum()))
        cosines.append(cosine)
        if ranks[-1] > 1:
            best = int(others.argmax())
            score = float(others[best])
            mistakes.append(Mistake(name, anchor, right, candidates[best], score))
    return evaluation_of(examples, _retrieval_scores(examples, ranks), cosines, mistakes)
