"""Compare the texts of pairs with each other, for evaluation and for mining hard negatives.

N: examples, C: candidates, all different second texts and negatives of the examples.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind
from keras_bert_d2l.checks import check_share, check_type, shown
from keras_bert_d2l.tasks.embed.examples import PairExamples
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.embed.predictions import embed, unit

_TOGETHER = 256  # anchors that are compared with all candidates at once


class Comparison(NamedTuple):
    """The similarities of one anchor.

    Attributes:
        pair: The cosine of the anchor and its own second text.
        others: The cosines of the anchor and the candidates, float32 `(C,)`; -inf for the anchor
            itself and the texts that belong to it.
    """

    pair: float
    others: np.ndarray


def pair_cosines(model: TextEmbedder, examples: PairExamples, batch_size: int) -> np.ndarray:
    """Return the cosine of the two texts of each pair, float32 `(N,)`."""
    first, second = (
        _vectors(model, texts, batch_size) for texts in (examples.texts, examples.texts_b or ())
    )
    return np.sum(first * second, axis=1)


def compare(
    model: TextEmbedder, examples: PairExamples, batch_size: int
) -> tuple[list[str], Iterator[Comparison]]:
    """Compare the anchor of each example with all candidates.

    Args:
        model: The model.
        examples: The examples.
        batch_size: Texts per batch.

    Returns: the C candidates, and the comparisons of the N anchors.
    """
    candidates = list(dict.fromkeys((*(examples.texts_b or ()), *(examples.negatives or ()))))
    place = {text: number for number, text in enumerate(candidates)}
    own: dict[str, list[int]] = {}
    for anchor, second in zip(examples.texts, examples.texts_b or (), strict=True):
        known = own.setdefault(anchor, [place[anchor]] if anchor in place else [])
        known.append(place[second])
    anchors = _vectors(model, examples.texts, batch_size)
    vectors = _vectors(model, candidates, batch_size)

    def comparisons() -> Iterator[Comparison]:
        pairs = zip(examples.texts, examples.texts_b or (), strict=True)
        for start in range(0, len(anchors), _TOGETHER):
            for row in anchors[start : start + _TOGETHER] @ vectors.T:
                anchor, second = next(pairs)
                pair = float(row[place[second]])
                row[own[anchor]] = -np.inf
                yield Comparison(pair, row)

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
    check_kind(model, TextEmbedder, remedy="load it with `load_task(TextEmbedder, path)`")
    check_type("examples", examples, PairExamples, "Read a file with `read_examples`.")
    check_share("max_share", max_share)
    if examples.labels is not None or examples.negatives is not None:
        kind = "scores" if examples.labels is not None else "negatives"
        raise ValueError(f"`examples` must be pairs without {kind}. Received: {kind}.")
    candidates, comparisons = compare(model, examples, batch_size)
    negatives = []
    for anchor, (pair, others) in zip(examples.texts, comparisons, strict=True):
        is_other = np.isfinite(others)
        if not is_other.any():
            raise ValueError(
                "Each text needs a negative, a second text of a different pair. Received: "
                f"{shown(anchor)}, to which all second texts belong."
            )
        is_negative = is_other & (others <= pair - (1 - max_share) * abs(pair))
        if is_negative.any():
            chosen = np.where(is_negative, others, -np.inf).argmax()
        else:
            chosen = np.where(is_other, others, np.inf).argmin()
        negatives.append(candidates[int(chosen)])
    return dataclasses.replace(examples, negatives=tuple(negatives))


def _vectors(model: TextEmbedder, texts: Sequence[str], batch_size: int) -> np.ndarray:
    """Return the vectors of texts, of length 1, computing that of each different text once."""
    different = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    vectors = unit(embed(model, list(different), batch_size=batch_size, truncate=True))
    return vectors[[different[text] for text in texts]]
