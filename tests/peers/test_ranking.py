"""The losses and the metrics of rerankers equal those of sentence-transformers."""

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb

NEEDED = "needs sentence-transformers: make test-peers"
torch = pytest.importorskip("torch", reason=NEEDED)
losses = pytest.importorskip("sentence_transformers.cross_encoder.losses", reason=NEEDED)
pair_losses = pytest.importorskip("sentence_transformers.losses", reason=NEEDED)


class Stub(torch.nn.Module):
    """A cross-encoder whose scores are given: the text of a pair is the number of its score."""

    num_labels, device = 1, "cpu"

    def __init__(self, scores):
        super().__init__()
        self.scores = torch.tensor(scores, requires_grad=True)

    def preprocess(self, pairs, **kwargs):
        return {"ids": torch.tensor([int(text) for _, text in pairs])}

    def forward(self, inputs):
        return {"scores": self.scores[inputs["ids"]]}


def gradient(loss, labels, outputs):
    """Return our loss and its gradient."""
    import tensorflow as tf

    outputs = tf.constant(outputs)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = loss(labels, outputs)
    return float(value), tape.gradient(value, outputs).numpy()


@pytest.mark.parametrize("counts", [[4, 4], [2, 5, 3], [1, 3], [6]])
@pytest.mark.parametrize("graded", [False, True])
def test_lambda_loss_and_its_gradient_are_equal(counts, graded):
    random = np.random.default_rng(sum(counts))
    number = sum(counts)
    scores = random.normal(size=number).astype("float32") * 3
    labels = random.integers(0, 4 if graded else 2, number).astype("float32")
    parts = np.split(np.arange(number), np.cumsum(counts)[:-1])
    stub = Stub(scores)
    texts = [[str(n) for n in part] for part in parts]
    loss = losses.LambdaLoss(stub)
    inputs = [["query"] * len(counts), texts]
    expected = loss(inputs, [torch.tensor(labels[part]) for part in parts])
    queries = np.repeat(np.arange(len(counts)), counts)
    found, slope = gradient(kb.LambdaLoss(), np.stack([queries, labels], 1), scores[:, None])
    assert found == pytest.approx(expected.item(), abs=1e-6, rel=1e-6)
    if expected.requires_grad:
        expected.backward()
        np.testing.assert_allclose(slope[:, 0], stub.scores.grad, atol=1e-6)


@pytest.mark.parametrize("number", [2, 4])
def test_the_margin_loss_of_a_reranker_is_equal(number, monkeypatch):
    monkeypatch.setattr(losses.margin_mse, "CrossEncoder", Stub)  # it checks the class
    scores, teacher = np.random.default_rng(0).normal(size=(2, 3 * number)).astype("float32")
    columns = [[str(n) for n in range(first, 3 * number, number)] for first in range(number)]
    loss = losses.MarginMSELoss(Stub(scores))
    expected = loss([["query"] * 3, *columns], torch.tensor(teacher.reshape(3, number)))
    labels = np.stack([np.repeat(np.arange(3), number), teacher], 1)
    assert float(kb.MarginMSELoss()(labels, scores[:, None])) == pytest.approx(
        expected.item(), rel=1e-6
    )


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("number", [2, 4])
def test_the_margin_loss_of_vectors_is_equal(similarity, number):
    util = pytest.importorskip("sentence_transformers.util", reason=NEEDED)
    random = np.random.default_rng(1)
    vectors = random.normal(size=(3, number + 1, 5)).astype("float32")
    teacher = random.normal(size=(3, number)).astype("float32")
    function = {"dot": util.pairwise_dot_score, "cosine": util.pairwise_cos_sim}[similarity]
    sides = [torch.tensor(vectors[:, n]) for n in range(number + 1)]
    loss = pair_losses.MarginMSELoss(None, similarity_fct=function)
    expected = loss.compute_loss_from_embeddings(sides, torch.tensor(teacher))
    scores = np.concatenate([np.full((3, 1), 99, "float32"), teacher], 1)  # 99 is ignored
    labels = np.stack([np.repeat(np.arange(3), number + 1), scores.ravel()], 1)
    found = kb.MarginMSELoss(similarity)(labels, keras.ops.reshape(vectors, (-1, 5)))
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)


def test_the_metrics_are_equal(tmp_path):
    evaluation = pytest.importorskip("sentence_transformers.cross_encoder.evaluation")
    retrieval = pytest.importorskip("sentence_transformers.evaluation")
    random = np.random.default_rng(0)
    sizes = random.integers(2, 30, 20)
    labels = [random.permutation([1] + [int(x < 0.3) for x in random.random(n)]) for n in sizes]
    scores = [random.normal(size=n + 1).astype("float32") for n in sizes]
    labels[3][:] = 0  # no text is right
    of_text = {f"{q} {n}": s for q, own in enumerate(scores) for n, s in enumerate(own)}
    samples = [
        {
            "query": str(q),
            **{
                key: [f"{q} {n}" for n, label in enumerate(own) if label == value]
                for key, value in (("positive", 1), ("negative", 0))
            },
        }
        for q, own in enumerate(labels)
    ]

    class Model:
        def predict(self, pairs, **kwargs):
            return np.array([of_text[text] for _, text in pairs])

    evaluator = evaluation.CrossEncoderRerankingEvaluator(samples, write_csv=False)
    evaluator.store_metrics_in_model_card_data = lambda *args: None
    expected = evaluator(Model())
    found = kb.ranking_metrics(labels, scores)
    for name in ("map", "mrr@10", "ndcg@10"):
        assert found[name] == pytest.approx(expected[name], abs=1e-9), name

    # Their search skips queries without a right text.
    kept = [q for q in range(20) if any(labels[q])]
    right = {str(q): {f"{q} {n}" for n in np.flatnonzero(labels[q])} for q in kept}
    search = retrieval.InformationRetrievalEvaluator(
        {str(q): str(q) for q in kept}, {text: text for text in of_text}, right
    )
    ranked = [
        [{"corpus_id": f"{q} {n}", "score": scores[q][n]} for n in range(len(scores[q]))]
        for q in kept
    ]
    expected = search.compute_metrics(ranked)
    found = kb.ranking_metrics([labels[q] for q in kept], [scores[q] for q in kept])
    assert found["recall@10"] == pytest.approx(expected["recall@k"][10])
    assert found["mrr@10"] == pytest.approx(expected["mrr@k"][10])
    assert found["ndcg@10"] == pytest.approx(expected["ndcg@k"][10])
