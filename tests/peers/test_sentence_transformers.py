"""A `TextEmbedder` loaded from a folder of sentence-transformers computes the same embeddings."""

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.layers.heads import Pooling
from tests.checkpoints.sbert_folders import FOLDERS, TEXT, write

NEEDED = "needs sentence-transformers: make test-peers"
sentence_transformers = pytest.importorskip("sentence_transformers", reason=NEEDED)
models = pytest.importorskip("sentence_transformers.models", reason=NEEDED)

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat ##s in paris .".split()
TEXTS = ["the cats sat in Paris.", "the mat"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a small BERT without heads."""
    sizes = {"num_hiddens": 16, "ffn_num_hiddens": 24, "num_heads": 2, "num_blks": 2}
    config = kb.BERTConfig.preset(
        "huggingface", vocab_size=len(WORDS), pooler=False, next_sentence=False, **sizes
    )
    folder = tmp_path_factory.mktemp("bert") / "bert"
    model = kb.BERTModel.from_bert_config(config)
    kb.save_pretrained(model, folder, tokenizer=kb.Tokenizer(kb.Vocab(WORDS)), format="huggingface")
    return folder


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_embeddings_are_equal(pooling, normalize, bert, tmp_path):
    modules = [models.Transformer(str(bert)), models.Pooling(16, pooling)]
    modules += [models.Normalize()] if normalize else []
    theirs = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    theirs.save(str(tmp_path / "saved"))
    ours = kb.load_task(kb.TextEmbedder, tmp_path / "saved").model
    assert (ours.pooling, ours.normalize) == (pooling, normalize)
    np.testing.assert_allclose(kb.embed(ours, TEXTS), theirs.encode(TEXTS), atol=2e-6)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_a_saved_embedder_loads_in_sentence_transformers(pooling, normalize, bert, tmp_path):
    ours = kb.load_task(kb.TextEmbedder, bert, pooling=pooling, normalize=normalize).model
    for _ in range(2):  # the second one replaces the first
        kb.save_pretrained(ours, tmp_path / "saved", format="huggingface")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), kb.embed(ours, TEXTS), atol=2e-6)
    assert theirs.max_seq_length == ours.bert_config.max_len


@pytest.mark.parametrize("doubled", [0, 1, 4])
def test_the_metrics_of_a_search_are_equal_also_for_several_correct_texts(doubled, bert):
    evaluation = pytest.importorskip("sentence_transformers.evaluation", reason=NEEDED)
    queries = ["the cat", "the mat", "sat on", "in paris", "paris ."]
    corpus = ["cat", "mat .", "cat sat", "in", "paris", "the cats", "on the mat", "sat", "in cat"]
    pairs = [(n, n) for n in range(5)] + [(n, n + 5) for n in range(doubled)]
    correct = {str(n): {str(b) for a, b in pairs if a == n} for n in range(5)}
    named = ({str(n): text for n, text in enumerate(texts)} for texts in (queries, corpus))
    ours = kb.load_task(kb.TextEmbedder, bert, pooling="mean").model
    steps = [models.Transformer(str(bert)), models.Pooling(16, "mean")]
    theirs = sentence_transformers.SentenceTransformer(modules=steps, device="cpu")
    expected = evaluation.InformationRetrievalEvaluator(*named, correct)(theirs)
    texts, texts_b = zip(*((queries[a], corpus[b]) for a, b in pairs), strict=True)
    examples = kb.PairExamples(texts=texts, texts_b=texts_b, negatives=corpus[-len(pairs) :])
    found = kb.evaluate(ours, examples).metrics
    for k in (1, 10):
        assert found[f"recall@{k}"] == pytest.approx(expected[f"cosine_recall@{k}"])
    assert found["mean_reciprocal_rank"] == pytest.approx(expected["cosine_mrr@10"])


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_padding_may_be_on_the_left(pooling):
    torch = pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("float32")
    mask = np.arange(5) >= np.array([[0], [1], [3], [4]])
    features = {"token_embeddings": torch.tensor(X), "attention_mask": torch.tensor(mask).int()}
    expected = models.Pooling(3, pooling)(features)["sentence_embedding"]
    found = Pooling(pooling, normalize=False)(X, mask)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_stored_vectors_of_folders_are_right_and_saving_keeps_them(name, tmp_path):
    options, expected = FOLDERS[name]
    ours = kb.load_task(kb.TextEmbedder, write(tmp_path / "theirs", **options)).model
    kb.save_pretrained(ours, tmp_path / "saved", format="huggingface")
    for folder in ("theirs", "saved"):
        model = sentence_transformers.SentenceTransformer(str(tmp_path / folder), device="cpu")
        np.testing.assert_allclose(model.encode(TEXT), expected, atol=2e-6)


@pytest.mark.long
def test_the_cosine_loss_is_equal():
    torch = pytest.importorskip("torch")
    vectors = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
    cosines = np.linspace(-1, 1, 4).astype("float32")
    first, second = torch.tensor(vectors[::2]), torch.tensor(vectors[1::2])
    similarity = torch.nn.functional.cosine_similarity(first, second)
    expected = torch.nn.functional.mse_loss(similarity, torch.tensor(cosines))
    found = kb.CosineLoss()(np.repeat(cosines, 2), vectors)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("groups", [[0, 0, 1, 1, 2, 2], [0, 0, -1, 1, 1, -1]])
def test_the_ranking_loss_is_equal(groups):
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.losses", reason=NEEDED)
    vectors = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    number = 3 if -1 in groups else 2
    sides = [torch.tensor(vectors[first::number]) for first in range(number)]
    loss = losses.MultipleNegativesRankingLoss(None, scale=20)
    expected = loss.compute_loss_from_embeddings(sides, None)
    found = kb.RankingLoss(temperature=0.05)(np.array(groups), vectors)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


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


def test_no_texts_have_vectors_of_the_usual_width(bert):
    theirs = sentence_transformers.SentenceTransformer(
        modules=[models.Transformer(str(bert)), models.Pooling(16)], device="cpu"
    )
    assert theirs.encode([]).shape == (0,)
    embedder = kb.load_task(kb.TextEmbedder, bert, verbose=False).model
    assert kb.embed(embedder, []).shape == (0, 16)
