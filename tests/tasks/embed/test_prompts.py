"""Prompts before texts, in functions, graphs, training and files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat query passage :".split()
PROMPTS = {"query": "query : ", "document": "passage : ", "on": "on a "}
TEXTS = ["the cat sat", "", "a mat"]


@pytest.fixture(scope="module")
def bert():
    return kb.BERTModel(len(WORDS), 8, 16, num_heads=2, num_blks=1, dropout=0.0, max_len=12)


def embedder(bert, **options):
    tokenizer = kb.Tokenizer(kb.Vocab(WORDS))
    return kb.TextEmbedder(bert, tokenizer=tokenizer, **{"prompts": PROMPTS, **options})


def test_a_prompt_is_chosen_as_in_sentence_transformers(bert):
    model = embedder(bert, default_prompt_name="on")
    found = [model.prompt(name) for name in (None, "query", "document")]
    assert found == ["on a ", "query : ", "passage : "]
    bare = embedder(bert, prompts={"passage": "x"})
    assert [bare.prompt(name) for name in (None, "query", "document", "passage")] == [
        *["", "", ""],
        "x",
    ]
    with pytest.raises(ValueError, match="must be one of 'query', .*Received: 'passag'"):
        bare.prompt("passag")


def test_texts_get_the_prompt_that_is_asked_for(bert):
    model = embedder(bert, default_prompt_name="on")
    plain = embedder(bert, prompts=None)
    for options, prompt in (
        ({}, "on a "),
        ({"prompt_name": "query"}, "query : "),
        ({"prompt": "mat "}, "mat "),
        ({"prompt": ""}, ""),
    ):
        expected = kb.embed(plain, [prompt + text for text in TEXTS])
        np.testing.assert_allclose(kb.embed(model, TEXTS, **options), expected, atol=1e-6)
    expected = kb.embed(plain, ["on a the cat sat"])
    np.testing.assert_allclose(model.predict(TEXTS[:1], verbose=0), expected, atol=1e-6)
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(3)
    in_graph = next(iter(dataset.map(model.preprocessor)))["tokens"]
    np.testing.assert_array_equal(in_graph, model.preprocessor(TEXTS)["tokens"])
    with pytest.raises(ValueError, match="either `prompt` or `prompt_name`"):
        kb.embed(model, TEXTS, prompt="a", prompt_name="query")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.long
def test_the_tokens_of_a_prompt_may_be_left_out_of_the_pooling(bert, pooling, tmp_path):
    model = embedder(bert, pooling=pooling, include_prompt=False, normalize=False)
    found = kb.embed(model, TEXTS, prompt_name="query")
    plain = embedder(bert, prompts=None).preprocessor([PROMPTS["query"] + t for t in TEXTS])
    encoded = bert.encoder(plain["tokens"], plain["segments"], plain["valid_lens"]).numpy()
    for vector, row, length in zip(found, encoded, plain["valid_lens"], strict=True):
        rest = row[3:length]  # without [CLS] and the two words of the prompt
        expected = rest[0] if pooling == "cls" else rest.mean(axis=0)
        np.testing.assert_allclose(vector, expected, atol=1e-6)
    folder = kb.export_saved_model(model, tmp_path / "served")
    serve = tf.saved_model.load(str(folder)).signatures["embed_query"]
    served = serve(text=tf.constant(TEXTS))["embedding"]
    np.testing.assert_allclose(served, found, atol=1e-6)


def test_all_arguments_are_saved(bert, tmp_path):
    steps = [{"units": 6, "activation": "silu"}]
    options = {"steps": steps, "similarity": "dot", "truncate_dim": 3, "include_prompt": False}
    model = embedder(bert, pooling=("max", "last"), default_prompt_name="on", **options)
    model.save(tmp_path / "model.keras")
    kb.save_pretrained(model, tmp_path / "folder")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for again in (loaded, kb.TextEmbedder.from_pretrained(tmp_path / "folder", verbose=False)):
        assert again.task_config() == model.task_config()
        np.testing.assert_array_equal(kb.embed(again, TEXTS), kb.embed(model, TEXTS))


def test_truncated_vectors_are_the_first_elements(bert):
    model = embedder(bert, truncate_dim=3)
    whole = kb.embed(embedder(bert), TEXTS)
    assert model.embedding_width == 3
    np.testing.assert_allclose(kb.embed(model, TEXTS), whole[:, :3], atol=1e-6)
    np.testing.assert_allclose(kb.embed(model, TEXTS, truncate_dim=5), whole[:, :5], atol=1e-6)
    with pytest.raises(ValueError, match="`truncate_dim` must be at most 8, the width"):
        kb.embed(model, TEXTS, truncate_dim=9)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_a_search_uses_both_prompts_and_the_similarity(bert, similarity):
    model = embedder(bert, similarity=similarity, normalize=False)
    query = kb.embed(model, "cat", prompt_name="query")
    vectors = kb.embed(model, TEXTS, prompt_name="document")
    score = {
        "cosine": lambda x: query @ x / np.linalg.norm(query) / np.linalg.norm(x),
        "dot": lambda x: query @ x,
        "euclidean": lambda x: -np.sqrt(np.sum((query - x) ** 2)),
        "manhattan": lambda x: -np.abs(query - x).sum(),
    }[similarity]
    for found in (
        kb.similar(model, "cat", TEXTS),
        kb.similar(model, "cat", TEXTS, vectors=vectors),
    ):
        scores = {match.index: match.score for match in found}
        expected = {index: score(vector) for index, vector in enumerate(vectors)}
        assert scores == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert [match.score for match in found] == sorted(scores.values(), reverse=True)
        assert [match.text for match in found] == [TEXTS[match.index] for match in found]


def test_pairs_are_learned_with_the_prompts_of_queries_and_documents(bert):
    model = embedder(bert, include_prompt=False)
    pairs = kb.PairExamples(texts=["the cat"], texts_b=["sat"], negatives=["a mat"])
    rows = kb.TaskRows.encode(pairs, model.tokenizer, max_len=12, model=model)
    features, _ = next(iter(rows.batches(1)))
    names = ("query", "document", "document")
    texts = [[text] for text in ("the cat", "sat", "a mat")]
    expected = [
        kb.embed(model, text, prompt_name=name) for text, name in zip(texts, names, strict=True)
    ]
    np.testing.assert_array_equal(features["prompt_lens"], [3, 3, 3])
    np.testing.assert_allclose(model(features), np.concatenate(expected), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompts": ["query: "]}, "`prompts` must be texts by names"),
        ({"prompts": {"query": 3}}, "`prompts` must be texts by names"),
        ({"default_prompt_name": "x"}, "name must be one of .*Received: 'x'"),
        ({"include_prompt": False, "long_texts": "mean"}, "`include_prompt` must be True with"),
        ({"similarity": "maxsim"}, "`similarity` must be one of"),
        ({"truncate_dim": 0}, "`truncate_dim` must be .* least 1"),
    ],
)
def test_wrong_arguments_are_errors(bert, options, message):
    with pytest.raises(ValueError, match=message):
        embedder(bert, **options)
