import functools

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.tasks.embed import static
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS

WORDS = "the cat dog sat ran on mat rug good bad ##s ##ly".split()
TEXTS = ["the cat sat", "good dogs ran on the mat", "bad rug", "the dog sat on the rug badly"]


@pytest.fixture(scope="module")
def teacher():
    tokenizer = kb.Tokenizer(kb.Vocab([*GOOGLE_SPECIALS, *WORDS]))
    bert = kb.BERTModel(len(tokenizer.vocab), 8, 16, 2, 1, 0.0, 16)
    rng = np.random.default_rng(0)
    for weight in bert.weights:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    return kb.TextEmbedder(bert, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def student(teacher):
    return kb.distill_static(teacher, num_hiddens=8)


def token_vectors(teacher):
    """Return the vectors that model2vec's recipe gives to the words, without a rotation."""
    tokenizer, found = teacher.tokenizer, []
    for word in WORDS:
        row = tokenizer.vocab.cls_id, tokenizer.vocab[word], tokenizer.vocab.sep_id
        found.append(np.asarray(teacher(np.array([row]), np.zeros((1, 3), int)))[0])
    zipf = 1 / np.arange(2, len(WORDS) + 2)
    weights = 1e-4 / (1e-4 + zipf / zipf.sum())
    return (found - np.mean(found, axis=0)) * weights[:, None]


def counts(tokenizer, texts):
    tokens = tokenizer.tokenize(tf.constant(texts)).to_list()
    return np.array([np.bincount(row, minlength=len(tokenizer.vocab)) for row in tokens])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
def test_a_text_has_the_mean_of_the_weighted_vectors_of_its_tokens(teacher, student):
    words = counts(teacher.tokenizer, TEXTS)[:, len(GOOGLE_SPECIALS) :]
    expected = unit(words @ token_vectors(teacher))
    found = kb.embed(student, TEXTS)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-5)
    same = kb.embed(student, ["the cat sat", "sat the cat", "cat ☃ the sat"])
    np.testing.assert_allclose(same[1:], same[:2], atol=1e-6)
    assert not kb.embed(student, "☃").any()


def test_fewer_dimensions_keep_the_principal_components(teacher, student):
    small = kb.distill_static(teacher, num_hiddens=3)
    tables = [one.encoder.token_embedding.embeddings.numpy() for one in (student, small)]
    left, sizes, _ = np.linalg.svd(tables[0], full_matrices=False)
    best = (left[:, :3] * sizes[:3] ** 2) @ left[:, :3].T
    np.testing.assert_allclose(tables[1] @ tables[1].T, best, atol=1e-5)


@pytest.mark.slow
def test_texts_change_the_table_as_ridge_regression_does(teacher, student):
    before = student.encoder.token_embedding.embeddings.numpy().astype("float64")
    fitted = kb.distill_static(teacher, TEXTS, num_hiddens=8)
    after = fitted.encoder.token_embedding.embeddings.numpy()
    tokens = counts(teacher.tokenizer, TEXTS)
    means = tokens / tokens.sum(axis=1, keepdims=True)
    # The student without texts has other axes, so compare inner products.
    plain = np.zeros((len(teacher.tokenizer.vocab), 8))
    plain[len(GOOGLE_SPECIALS) :] = token_vectors(teacher)
    np.testing.assert_allclose(plain @ plain.T, before @ before.T, atol=1e-5)
    targets = kb.embed(teacher, TEXTS).astype("float64")
    scale = np.sum(means @ plain * targets) / np.sum((means @ plain) ** 2)
    inverse = np.linalg.inv(means.T @ means + static._PENALTY * np.eye(len(plain)))
    expected = scale * plain + inverse @ means.T @ (targets - scale * means @ plain)
    np.testing.assert_allclose(after @ after.T, expected @ expected.T, atol=1e-4)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Truncated to")
def test_the_student_reads_texts_as_far_as_the_teacher(teacher):
    bert = kb.BERTModel.from_bert_config(teacher.bert_config)
    long = "the cat sat on the mat " * 30
    for long_texts in ("cut", "mean"):
        model = kb.TextEmbedder(bert, long_texts=long_texts, tokenizer=teacher.tokenizer)
        texts = long, long + " rug bad" * 9  # differ beyond the longest row of 8 windows
        students = [kb.distill_static(model, [*TEXTS, text]) for text in texts]
        tables = [one.encoder.token_embedding.embeddings.numpy() for one in students]
        np.testing.assert_array_equal(*tables)
        assert students[0].max_row_len == model.max_row_len


def test_the_solver_stops_where_float32_ends():
    rng = np.random.default_rng(0)
    for _ in range(4):
        means, right = rng.random((4, 17)) / 4, rng.normal(size=(17, 8))
        matrix = means.T @ means + static._PENALTY * np.eye(17)
        product = functools.partial(tf.matmul, tf.constant(matrix, tf.float32))
        found = static._solve(product, tf.constant(right, tf.float32))
        np.testing.assert_allclose(found, np.linalg.solve(matrix, right), atol=1e-3)


@pytest.mark.long
def test_a_static_embedder_is_saved_and_trained_like_any_other(student, tmp_path):
    kb.save_pretrained(student, tmp_path / "static")
    loaded = kb.TextEmbedder.from_pretrained(tmp_path / "static")
    assert (loaded.bert_config.num_blks, loaded.bert_config.positions) == (0, "none")
    vectors = kb.embed(student, TEXTS)
    np.testing.assert_array_equal(kb.embed(loaded, TEXTS), vectors)
    assert kb.similar(loaded, TEXTS[0], TEXTS)[0].index == 0
    kb.save_pretrained(student, tmp_path / "hf", format="huggingface")
    again = kb.TextEmbedder.from_pretrained(tmp_path / "hf")
    np.testing.assert_array_equal(kb.embed(again, TEXTS), vectors)
    assert (again.max_row_len, again.include_special) == (student.max_row_len, False)
    loaded.compile(kb.BERTAdamW(1e-2), run_eagerly=True)
    loaded.fit(TEXTS, [0, 0, 1, 1], shuffle=False, verbose=0)
    assert np.abs(kb.embed(loaded, TEXTS) - vectors).max() > 1e-3


def test_wrong_arguments_are_rejected(teacher):
    with pytest.raises(ValueError, match="at most 8, the width of the teacher"):
        kb.distill_static(teacher, num_hiddens=9)
    with pytest.raises(ValueError, match="`texts` must contain at least one text"):
        kb.distill_static(teacher, [])
    with pytest.raises(ValueError, match="must be a TextEmbedder"):
        kb.distill_static(kb.BERTModel(9, 8, 8, 2, 1, 0.0, 8))
    with pytest.raises(ValueError, match="need a tokenizer"):
        kb.distill_static(kb.TextEmbedder(kb.BERTModel(9, 8, 8, 2, 1, 0.0, 8)))
