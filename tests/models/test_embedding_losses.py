import numpy as np
import pytest

from keras_bert_d2l import BERTAdamW, BERTModel, TextEmbedder, Tokenizer, Vocab
from keras_bert_d2l.checks import negative_of
from keras_bert_d2l.models.embedding_losses import ContrastiveLoss, MatryoshkaLoss, RankingLoss
from keras_bert_d2l.models.pair_losses import CosineLoss


def make_vectors(size=8, width=5):
    return np.random.default_rng(0).normal(size=(size, width)).astype("float32")


def slow_loss(groups, vectors, temperature=0.05, weights=None):
    """Compute equation 2 of Khosla et al., one vector and one partner at a time."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = np.exp(units.astype("float64") @ units.T / temperature)
    total = count = 0.0
    for i, group in enumerate(groups):
        partners = [j for j, other in enumerate(groups) if j != i and other == group >= 0]
        if not partners:
            continue
        weight = 1.0 if weights is None else weights[i]
        others = similar[i].sum() - similar[i, i]
        total -= weight * np.mean([np.log(similar[i, j] / others) for j in partners])
        count += weight
    return total / count


@pytest.mark.parametrize("groups", [[0, 0, 1, 1, 2, 2, 3, 3], [5, 1, 5, 5, 1, 9, -1, -1]])
def test_the_loss_matches_the_formula_of_the_paper(groups):
    vectors, weights = make_vectors(), np.linspace(0, 2, 8).astype("float32")
    loss = ContrastiveLoss()(np.array(groups), vectors)
    assert float(loss) == pytest.approx(slow_loss(groups, vectors), rel=1e-5)
    loss = ContrastiveLoss(0.5)(np.array(groups), vectors, weights)
    assert float(loss) == pytest.approx(slow_loss(groups, vectors, 0.5, weights), rel=1e-5)


def slow_ranking(groups, vectors):
    """Compute the cross entropy of finding the second text of each pair, one first text at a time.

    Pairs with the same group are all right.
    """
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    in_pairs = np.flatnonzero(np.array(groups) >= 0)
    first, candidates = in_pairs[::2], [i for i in range(len(groups)) if i not in in_pairs[::2]]
    losses = []
    for i in first:
        others = [j for j in candidates if groups[j] != negative_of(groups[i])]
        similar = {j: np.exp(units[i].astype("float64") @ units[j] / 0.05) for j in others}
        right = [j for j in others if groups[j] == groups[i]]
        losses.append(-np.mean([np.log(similar[j] / sum(similar.values())) for j in right]))
    return np.mean(losses)


@pytest.mark.parametrize(
    "groups",
    [
        [0, 0, 1, 1, 2, 2, 3, 3],
        [4, 4, -1, 2, 2, -1, 4, 4, -1],
        [3, 3, 3, 3, 0, 0],
        [0, 0, negative_of(1), 1, 1, negative_of(0)],  # the negatives are in the other pair
    ],
)
def test_ranking_finds_second_texts_from_first_texts(groups):
    vectors = make_vectors(len(groups))
    loss = RankingLoss()(np.array(groups), vectors)
    assert float(loss) == pytest.approx(slow_ranking(groups, vectors), rel=1e-5)


def test_a_negative_that_is_also_in_a_pair_is_no_negative_of_this_pair():
    vectors, loss = make_vectors(3), ContrastiveLoss()
    alone = loss(np.array([0, 0]), vectors[:2])
    own, other = (loss(np.array([0, 0, negative_of(g)]), vectors) for g in (0, 1))
    assert float(own) == pytest.approx(float(alone), abs=1e-6)
    assert own < other


def test_the_loss_is_zero_if_no_vector_has_a_partner():
    assert float(ContrastiveLoss()(np.array([0, 1, 2, -1]), make_vectors(4))) == 0
    assert float(ContrastiveLoss()(np.array([3]), make_vectors(1))) == 0


def test_loss_is_restored_from_its_config():
    loss = ContrastiveLoss(0.1, name="near")
    assert ContrastiveLoss.from_config(loss.get_config()).get_config() == loss.get_config()
    with pytest.raises(ValueError, match="temperature=0"):
        ContrastiveLoss(0)


@pytest.mark.long
def test_an_embedder_learns_to_separate_named_groups():
    bert = BERTModel(20, 16, 24, 2, 1, 0.0, 8)
    embedder = TextEmbedder(bert)
    tokens = np.random.default_rng(1).integers(5, 20, (8, 6), "int32")
    batch = {"tokens": tokens, "segments": np.zeros_like(tokens), "valid_lens": np.full(8, 6)}
    names = ["sport", "news"] * 4
    embedder.compile(BERTAdamW(1e-2, weight_decay=0.0), run_eagerly=True)
    embedder.fit(batch, names, epochs=10, verbose=0)
    cosines = np.asarray(embedder(batch)) @ np.asarray(embedder(batch)).T
    is_same = np.arange(8)[:, None] % 2 == np.arange(8) % 2
    assert cosines[is_same].min() > cosines[~is_same].max()


def test_pairs_of_texts_raise():
    vocab = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] good bad".split())
    embedder = TextEmbedder(BERTModel(7, 16, 24, 2, 1, 0.0, 8), tokenizer=Tokenizer(vocab))
    with pytest.raises(ValueError, match="takes strings as a list: .*texts_b"):
        embedder.predict({"texts": ["good"], "texts_b": ["bad"]}, verbose=0)


def test_a_loss_is_summed_over_vectors_of_several_widths():
    vectors, cosines = make_vectors(6), np.repeat([0.9, -0.2, 0.0], 2)
    loss = MatryoshkaLoss(CosineLoss(), [5, 2], [1.0, 0.5])
    expected = CosineLoss()(cosines, vectors) + 0.5 * CosineLoss()(cosines, vectors[:, :2])
    assert float(loss(cosines, vectors)) == pytest.approx(float(expected), rel=1e-5)
    restored = MatryoshkaLoss.from_config(loss.get_config())
    assert float(restored(cosines, vectors)) == float(loss(cosines, vectors))
    with pytest.raises(ValueError, match=r"`dims` must be at most 4, the width .*dims=\[5, 2\]"):
        loss(cosines, vectors[:, :4])
    with pytest.raises(ValueError, match=r"`weights` must be 2 numbers. Received: weights=\[1\]"):
        MatryoshkaLoss(CosineLoss(), [5, 2], [1])
    with pytest.raises(ValueError, match="`dims` must be a list of widths"):
        MatryoshkaLoss(CosineLoss(), [])
