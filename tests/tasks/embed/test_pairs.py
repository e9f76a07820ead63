import dataclasses

import numpy as np
import pytest

from keras_bert_d2l import PairExamples, TextEmbedder, embed, evaluate, mine_negatives
from keras_bert_d2l.tasks.embed.task import TASK

PAIRS = PairExamples(
    texts=["the cat sat", "good dog", "the cat sat", "bad rug", "on"],
    texts_b=["the cat", "dog ran", "good cat", "the cat", "bad rug"],
)


@pytest.fixture(scope="module")
def cosine(embedder):
    """A function that returns the cosine of two texts of the pairs."""
    texts = sorted({*PAIRS.texts, *PAIRS.texts_b})
    vectors = dict(zip(texts, embed(embedder, texts).astype("float64"), strict=True))

    def of_texts(one, other):
        one, other = vectors[one], vectors[other]
        return one @ other / np.linalg.norm(one) / np.linalg.norm(other)

    return of_texts


def others(anchor):
    """Return the candidates that do not belong to an anchor."""
    own = {b for a, b in zip(PAIRS.texts, PAIRS.texts_b, strict=True) if a == anchor}
    return sorted(set(PAIRS.texts_b) - own - {anchor})


@pytest.mark.slow
def test_recall_is_the_share_of_second_texts_that_are_found_for_each_first_text(embedder, cosine):
    ranks = [
        1 + sum(cosine(a, x) >= cosine(a, b) for x in others(a))
        for a, b in zip(PAIRS.texts, PAIRS.texts_b, strict=True)
    ]
    assert len(set(ranks)) > 1
    firsts = np.array([min(ranks[0], ranks[2]), ranks[1], *ranks[3:]])  # two for the first query
    found = evaluate(embedder, PAIRS)
    assert found.metrics == {
        "recall@1": pytest.approx(np.mean((firsts == 1) * [0.5, 1, 1, 1])),
        "recall@10": 1.0,
        "mean_reciprocal_rank": pytest.approx(np.mean(1 / firsts)),
    }
    assert len(found.errors) == sum(rank > 1 for rank in ranks)
    expected = [cosine(*pair) for pair in zip(PAIRS.texts, PAIRS.texts_b, strict=True)]
    np.testing.assert_allclose(found.predictions, expected, atol=1e-5)


def test_equal_vectors_find_nothing(words_bert, words_tokenizer):
    embedder = TextEmbedder(words_bert, tokenizer=words_tokenizer)
    same = PairExamples(texts=["the", "cat", "dog"], texts_b=["  the", "the ", "the\t"])
    assert evaluate(embedder, same).metrics["recall@1"] == 0


@pytest.mark.slow
def test_pairs_with_scores_are_evaluated_by_rank_correlation(embedder, cosine):
    cosines = [cosine(*pair) for pair in zip(PAIRS.texts, PAIRS.texts_b, strict=True)]
    scored = dataclasses.replace(PAIRS, labels=tuple(np.argsort(np.argsort(cosines)) ** 3.0))
    found = evaluate(embedder, scored)
    assert found.metrics["spearman"] == pytest.approx(1)
    assert 0 < found.metrics["pearson"] < 1
    assert found.errors[0].score == max(one.score for one in found.errors)
    assert {one.gold for one in found.errors} == {f"{score:g}" for score in scored.labels}


@pytest.mark.slow
def test_a_mined_negative_is_the_most_similar_text_that_is_less_similar_than_the_pair(
    embedder, cosine
):
    mined = mine_negatives(embedder, PAIRS, max_share=0.99)
    for anchor, second, negative in zip(mined.texts, mined.texts_b, mined.negatives, strict=True):
        pair = cosine(anchor, second)
        cosines = {x: cosine(anchor, x) for x in others(anchor)}
        allowed = [x for x in cosines if cosines[x] <= 0.99 * pair]
        if allowed:
            assert negative == max(allowed, key=cosines.get)
        else:
            assert negative == min(cosines, key=cosines.get)
    with pytest.raises(ValueError, match="pairs without negatives"):
        mine_negatives(embedder, mined)
    with pytest.raises(ValueError, match="Each text needs a negative.*'the cat sat'"):
        mine_negatives(embedder, PAIRS.subset([0, 2]))


def test_development_pairs_get_negatives_too_unless_they_have_scores(embedder):
    dev, options = PAIRS.subset([0, 1, 3]), {"loss": "triplet"}
    with pytest.raises(ValueError, match="`dev` must be triplets for the loss 'triplet'.*='pairs'"):
        TASK.for_loss(mine_negatives(embedder, PAIRS), dev, options)
    train, mined = TASK.with_negatives(embedder, PAIRS, dev, 4, print)
    assert TASK.for_loss(train, mined, options).kind == "triplets"
    scored = dataclasses.replace(dev, labels=(1.0, 2.0, 3.0))
    assert TASK.with_negatives(embedder, PAIRS, scored, 4, print)[1] is scored
