"""A `TextEmbedder` loaded from a folder of sentence-transformers computes the same embeddings."""

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from tests.checkpoints.sbert_folders import FOLDERS, TEXT, VECTORS, write

NEEDED = "needs sentence-transformers: make test-peers"
sentence_transformers = pytest.importorskip("sentence_transformers", reason=NEEDED)


@pytest.mark.parametrize("doubled", [0, 1, 4])
def test_the_metrics_of_a_search_are_equal_also_for_several_correct_texts(doubled, tmp_path):
    evaluation = pytest.importorskip("sentence_transformers.evaluation", reason=NEEDED)
    queries = ["the cat", "the mat", "The cats", "café", "on café"]
    corpus = ["cat", "mat the", "The", "Café", "on on", "the cats", "on the mat", "cats", "cafe on"]
    pairs = [(n, n) for n in range(5)] + [(n, n + 5) for n in range(doubled)]
    correct = {str(n): {str(b) for a, b in pairs if a == n} for n in range(5)}
    named = ({str(n): text for n, text in enumerate(texts)} for texts in (queries, corpus))
    theirs = sentence_transformers.SentenceTransformer(str(write(tmp_path)), device="cpu")
    expected = evaluation.InformationRetrievalEvaluator(*named, correct)(theirs)
    texts, texts_b = zip(*((queries[a], corpus[b]) for a, b in pairs), strict=True)
    examples = kb.PairExamples(texts=texts, texts_b=texts_b, negatives=corpus[-len(pairs) :])
    found = kb.evaluate(kb.TextEmbedder.from_pretrained(tmp_path), examples).metrics
    for k in (1, 10):
        assert found[f"recall@{k}"] == pytest.approx(expected[f"cosine_recall@{k}"])
    assert found["mean_reciprocal_rank"] == pytest.approx(expected["cosine_mrr@10"])


@pytest.mark.parametrize("name", FOLDERS)
def test_the_stored_vectors_of_folders_are_right_and_saving_keeps_them(name, tmp_path):
    ours = kb.TextEmbedder.from_pretrained(write(tmp_path / "theirs", **FOLDERS[name]))
    kb.save_pretrained(ours, tmp_path / "saved", format="huggingface")
    for folder in ("theirs", "saved"):
        model = sentence_transformers.SentenceTransformer(str(tmp_path / folder), device="cpu")
        np.testing.assert_allclose(model.encode(TEXT), VECTORS[name], atol=2e-6)


SCORES = [0.9, 0.1, 0.5, 0.1]
GROUPS = [0, 0, 1, 1, 2, 2, 3, 3]
LOSSES = {  # ours with its labels; theirs with the number of texts and their labels
    "cosine": (kb.CosineLoss(), np.repeat(SCORES, 2), "CosineSimilarityLoss", {}, SCORES),
    "cosent": (kb.CoSENTLoss(), np.repeat(SCORES, 2), "CoSENTLoss", {}, SCORES),
    "ranking": (kb.RankingLoss(), GROUPS, "MultipleNegativesRankingLoss", {"scale": 20}, None),
    "ranking of triplets": (
        *(kb.RankingLoss(), [0, 0, -1, 1, 1, -1, 2, 2, -1]),
        *("MultipleNegativesRankingLoss", {"scale": 20}, None),
    ),
    "triplet": (kb.TripletLoss(), np.zeros(9), "TripletLoss", {}, None),
    "margin": (
        *(kb.MarginMSELoss("dot"), [[n // 3, [0, 9, 7][n % 3]] for n in range(9)]),
        *("MarginMSELoss", {}, [2.0, 2.0, 2.0]),
    ),
}


def theirs_and_gradient(kind, options, labels, vectors, number, dims):
    """Return a loss of sentence-transformers and the gradient of the vectors."""
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.losses", reason=NEEDED)
    tensor = torch.tensor(vectors, requires_grad=True)
    loss = getattr(losses, kind)(None, **options)
    labels = None if labels is None else torch.tensor(labels)
    value = 0.0
    for dim in dims or [None]:
        rows = tensor if dim is None else losses.matryoshka.shrink(tensor, dim)
        value += loss.compute_loss_from_embeddings([rows[n::number] for n in range(number)], labels)
    value.backward()
    return value.item(), tensor.grad.numpy()


@pytest.mark.parametrize("dims", [None, [6, 4, 2]])
@pytest.mark.parametrize("name", LOSSES)
def test_the_losses_and_their_gradients_are_equal(name, dims):
    ours, y, *theirs = LOSSES[name]
    number = len(y) // 4 if len(y) == 8 else 3
    vectors = np.random.default_rng(0).normal(size=(len(y), 6)).astype("float32")
    expected, gradient = theirs_and_gradient(*theirs, vectors, number, dims)
    variable = tf.Variable(vectors)
    loss = ours if dims is None else kb.MatryoshkaLoss(ours, dims)
    with tf.GradientTape() as tape:
        value = loss(np.array(y, "float32"), variable)
    assert float(value) == pytest.approx(expected, abs=1e-6, rel=1e-6)
    np.testing.assert_allclose(tape.gradient(value, variable), gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.long
def test_pairs_of_one_group_are_no_negatives_of_each_other():
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.losses", reason=NEEDED)
    vectors = np.eye(4, dtype="float32")[[0, 1, 0, 2, 3, 3]]  # the first texts 1 and 2 are the same
    loss = losses.MultipleNegativesRankingLoss(None, scale=20)
    theirs = loss.compute_loss_from_embeddings(
        [torch.tensor(vectors[::2]), torch.tensor(vectors[1::2])], None
    )
    different, same = (
        float(kb.RankingLoss()(np.array(groups), vectors))
        for groups in ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 2, 2])
    )
    assert different == pytest.approx(float(theirs), rel=1e-5)
    assert same == pytest.approx(2 / 3 * np.log(3), rel=1e-5)


def test_no_texts_have_vectors_of_the_usual_width(tmp_path):
    theirs = sentence_transformers.SentenceTransformer(str(write(tmp_path)), device="cpu")
    assert theirs.encode([]).shape == (0,)
    embedder = kb.TextEmbedder.from_pretrained(tmp_path, verbose=False)
    assert kb.embed(embedder, []).shape == (0, 4)
