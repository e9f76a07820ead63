import json

import numpy as np
import pytest

from keras_bert_d2l import QuestionAnswerer, TextEmbedder, load_pretrained
from keras_bert_d2l.tasks.embed import predictions
from keras_bert_d2l.tasks.embed.predictions import embed, similar
from keras_bert_d2l.text_arguments import TruncationWarning

TEXTS = ["the cat sat", "", "the dog ran on the rug", "good", "a cat sat on the mat badly ."]


def test_given_vectors_are_used_instead_of_encoding_the_texts(embedder, monkeypatch):
    texts = [*TEXTS, TEXTS[0]]
    vectors, expected = embed(embedder, texts), similar(embedder, ["good", "a dog"], texts)
    found = similar(embedder, ["good", "a dog"], texts, vectors=vectors)
    for one, other in zip(found, expected, strict=True):
        assert [x.index for x in one] == [x.index for x in other]
        assert [x.score for x in one] == pytest.approx([x.score for x in other], abs=1e-6)
    monkeypatch.setattr(predictions, "_vectors", lambda model, tokenizer, some, *_: vectors[3:4])
    [match] = similar(embedder, "good", texts, vectors=vectors, top_k=1)  # encodes the query alone
    assert (match.index, match.score) == (3, pytest.approx(1))
    with pytest.raises(ValueError, match=r"`vectors` must be an array of the shape \(6, 8\)"):
        similar(embedder, "good", texts, vectors=vectors[1:])
    with pytest.raises(ValueError, match="`vectors` contain NaN or infinity"):
        similar(embedder, "good", texts, vectors=vectors * np.nan)


def test_the_nearest_rows_are_found_across_blocks_and_ties_keep_their_order(monkeypatch):
    monkeypatch.setattr(predictions, "_ROWS_AT_ONCE", 3)
    vectors = np.array([[1, 0], [0, 1], [1, 0], [-1, 0], [0, -1], [1, 0], [0, 1]], np.float32)
    [first, second] = predictions.nearest(vectors[:2], vectors, 2)
    assert (first, second) == ([(0, 1), (2, 1)], [(1, 1), (6, 1)])
    places = np.array([0, 1, 2, 3, 4, 0, 1])
    best = next(predictions.nearest(vectors[:1], vectors[:5], 9, places=places))
    assert [place for place, _ in best] == [0, 2, 5, 1, 4, 6, 3]


@pytest.mark.long
def test_vectors_do_not_depend_on_the_batch_size(embedder, words_tokenizer):
    expected = np.concatenate([embedder(words_tokenizer([text])) for text in TEXTS])
    vectors = embed(embedder, TEXTS, batch_size=2)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    np.testing.assert_array_equal(embed(embedder, TEXTS[2]), embed(embedder, TEXTS[2:3])[0])
    assert embed(embedder, []).shape == (0, 8)


@pytest.mark.long
def test_texts_keep_their_order_across_chunks(embedder, monkeypatch):
    monkeypatch.setattr("keras_bert_d2l.inference.prediction.BATCHES_SORTED", 2)
    vectors = embed(embedder, TEXTS * 2, batch_size=2)
    np.testing.assert_allclose(vectors, np.tile(vectors[:5], (2, 1)), rtol=0, atol=1e-6)


def test_a_plain_bert_returns_mean_vectors_of_length_1(words_bert, words_tokenizer):
    vectors = embed(words_bert, TEXTS)
    expected = embed(TextEmbedder(words_bert, tokenizer=words_tokenizer), TEXTS)
    np.testing.assert_array_equal(vectors, expected)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


@pytest.mark.slow
def test_long_texts_have_the_mean_vector_of_their_windows(words_bert, words_tokenizer):
    model = TextEmbedder(words_bert, long_texts="mean", tokenizer=words_tokenizer)
    text = "the cat sat on the mat good dog ran on bad rug the mat sat good dog ran the cat"
    words = text.split()  # windows of 14 tokens, and a new one after 10
    parts = embed(
        TextEmbedder(words_bert),
        [" ".join(words[:14]), " ".join(words[10:])],
        tokenizer=words_tokenizer,
    )
    expected = parts.mean(axis=0) / np.linalg.norm(parts.mean(axis=0))
    np.testing.assert_allclose(embed(model, text), expected, rtol=0, atol=1e-5)


def test_ties_keep_their_order_and_top_k_may_exceed_the_number_of_texts(embedder):
    found = similar(embedder, "good", ["good", "the cat", "good"], top_k=9)
    assert [match.index for match in found] == [0, 2, 1]
    assert similar(embedder, "good", []) == []
    # Rows of one batch have other padding, and so other rounding, than those of another.
    texts = ["the cat", "good", "the cat", "the cat sat the cat", "the cat", "the dog sat"]
    found = similar(embedder, "the cat sat", texts, top_k=9, batch_size=2)
    same = [match for match in found if match.text == "the cat"]
    assert [match.index for match in same] == [0, 2, 4]
    assert len({match.score for match in same}) == 1


def test_a_text_that_is_too_long_is_rejected_or_truncated(embedder):
    long, cut = " ".join(["good"] * 15), " ".join(["good"] * 14)
    with pytest.raises(ValueError, match="at most 16 tokens.*17 tokens in 'good"):
        embed(embedder, ["good", long], truncate=False)
    with pytest.warns(TruncationWarning, match="16 tokens, .*: 1 text. Where `truncate=False`"):
        vectors = embed(embedder, [long, cut])
    # Without oneDNN, the rounding of a matrix product depends on the place of the row.
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_models_that_cannot_embed_are_rejected(words_bert, embedder):
    answerer = QuestionAnswerer(words_bert)
    with pytest.raises(ValueError, match="Received: a QuestionAnswerer"):
        embed(answerer, TEXTS)
    with pytest.raises(ValueError, match="top_k=0"):
        similar(embedder, "good", TEXTS, top_k=0)
    with pytest.raises(ValueError, match="a list of texts"):
        similar(embedder, "good", "good")


@pytest.mark.long
def test_embeddings_with_real_weights_match_sentence_transformers(minilm_dir, data_dir):
    golden = np.load(data_dir / "golden/minilm/io.npz")
    sentences = json.loads((data_dir / "golden/minilm/sentences.json").read_text())
    model, tokenizer, _ = load_pretrained(minilm_dir, verbose=False)
    vectors = embed(model, sentences, tokenizer=tokenizer)
    np.testing.assert_allclose(vectors, golden["sentence_embedding"], rtol=0, atol=1e-5)
