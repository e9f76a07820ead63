import math

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.text_arguments import TruncationWarning
from tests.checkpoints.small import SMALL, random_model

QUERY = "the cat"
TEXTS = ["bad", "good", "the dog", "good good", "bad"]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@pytest.fixture
def reranker(open_task):
    return open_task(kb.Reranker, {("good", 0): 3.0, ("bad", 0): -3.0, (None, 0): 0.5})


def test_texts_are_sorted_by_their_score_and_ties_keep_their_order(reranker):
    found = kb.rerank(reranker, QUERY, TEXTS)
    assert [one.index for one in found][:3] == [3, 1, 2]
    assert [one.index for one in found][3:] == [0, 4]
    assert [one.text for one in found] == [TEXTS[one.index] for one in found]
    assert kb.rerank(reranker, QUERY, TEXTS, top_k=2) == found[:2]
    assert kb.rerank(reranker, QUERY, TEXTS, top_k=99) == found


def test_scores_are_the_activation_of_the_logits(reranker):
    logits = reranker.predict({"texts": [QUERY] * 5, "texts_b": TEXTS}, verbose=0)[:, 0]
    found = {one.index: one.score for one in kb.rerank(reranker, QUERY, TEXTS)}
    np.testing.assert_allclose([found[n] for n in range(5)], [*map(sigmoid, logits)], atol=1e-6)
    reranker.activation = "linear"
    found = {one.index: one.score for one in kb.rerank(reranker, QUERY, TEXTS)}
    np.testing.assert_allclose([found[n] for n in range(5)], logits, atol=1e-6)


def test_a_regressor_with_one_score_and_arrays_of_texts_are_taken(open_task):
    model = open_task(kb.SequenceRegressor, {("good", 0): 1.0})
    found = kb.rerank(model, QUERY, np.array(TEXTS))
    scores = [one.score for one in kb.regress(model, QUERY, TEXTS)]
    assert [one.score for one in found] == sorted(scores, reverse=True)
    assert type(found[0].text) is str


def test_no_texts_empty_texts_and_an_empty_query_are_taken(reranker):
    assert kb.rerank(reranker, QUERY, []) == []
    [one] = kb.rerank(reranker, "", [""])
    assert (one.index, one.text) == (0, "")
    assert one.score == pytest.approx(sigmoid(0.5))


def test_many_texts_of_all_lengths_have_the_scores_of_each_alone(reranker):
    texts = ["good " * (n % 4) + "bad " * (n % 3) for n in range(1000)]
    found = {one.index: one.score for one in kb.rerank(reranker, QUERY, texts, batch_size=100)}
    for n in (0, 1, 5, 7, 998):
        assert found[n] == pytest.approx(kb.rerank(reranker, QUERY, [texts[n]])[0].score, abs=1e-6)
    assert len(found) == 1000


def test_long_texts_are_truncated_to_the_models_length(open_task):
    model = open_task(kb.Reranker, {("good", 0): 3.0}, max_len=8)
    whole, kept = "the " * 9 + "good", "the the the"
    with pytest.warns(TruncationWarning, match="Truncated to 8 tokens.*1 pair"):
        [found] = kb.rerank(model, QUERY, [whole])
    assert found.score == pytest.approx(kb.rerank(model, QUERY, [kept])[0].score)
    with pytest.raises(ValueError, match="at most 8 tokens.*15 tokens.*index 1"):
        kb.rerank(model, QUERY, ["good", whole], truncate=False)
    with pytest.raises(ValueError, match="`max_len` must be from 5 to 8"):
        kb.rerank(model, QUERY, ["good"], max_len=16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], ["b"]), "`query` must be a `str`"),
        (("a", "b"), "`texts` must be a list of texts"),
        (("a", ["b", None]), "`texts`.*index 1"),
    ],
)
def test_wrong_texts_are_named(reranker, arguments, message):
    with pytest.raises(ValueError, match=message):
        kb.rerank(reranker, *arguments)


def test_wrong_models_and_options_are_named(reranker, open_task, open_bert, tmp_path):
    several = open_task(kb.SequenceRegressor, {}, labels=["x", "y"])
    with pytest.raises(ValueError, match=r"`model` must be a model with one score.*'x', 'y'"):
        kb.rerank(several, QUERY, TEXTS)
    with pytest.raises(ValueError, match="`model` must be a Reranker or a SequenceRegressor"):
        kb.rerank(open_bert, QUERY, TEXTS)
    with pytest.raises(ValueError, match="`top_k` must be .*at least 1"):
        kb.rerank(reranker, QUERY, TEXTS, top_k=0)
    with pytest.raises(ValueError, match="`labels` must be one name"):
        kb.Reranker(open_bert, ["x", "y"])
    for max_len in (4, 17):
        with pytest.raises(ValueError, match="`max_len` must be"):
            kb.Reranker(open_bert, max_len=max_len)
    reranker.head.bias.assign([np.nan])
    with pytest.raises(ValueError, match="finite outputs.*NaN"):
        kb.rerank(reranker, QUERY, TEXTS)


@pytest.fixture
def bert(words_tokenizer):
    fields = SMALL | {"vocab_size": len(words_tokenizer.vocab), "max_len": 16}
    bert = random_model(kb.BERTConfig.preset("huggingface", **fields))
    bert.tokenizer = words_tokenizer
    return bert


@pytest.mark.parametrize("format", ["native", "huggingface"])
def test_a_saved_reranker_is_loaded_as_one(bert, format, tmp_path):
    model = kb.Reranker(bert, ["fits"], activation="linear", max_len=12)
    kb.save_pretrained(model, tmp_path / "model", format=format)
    loaded = kb.load_pretrained(tmp_path / "model", verbose=False).model
    assert type(loaded) is kb.Reranker
    assert loaded.task_config() == model.task_config()
    assert kb.rerank(tmp_path / "model", QUERY, TEXTS) == kb.rerank(loaded, QUERY, TEXTS)


def test_a_regressor_in_the_form_of_transformers_can_be_loaded_as_a_reranker(bert, tmp_path):
    model = kb.SequenceRegressor(bert)
    kb.save_pretrained(model, tmp_path / "model", format="huggingface")
    loaded = kb.Reranker.from_pretrained(tmp_path / "model", verbose=False)
    assert (loaded.activation, loaded.max_len) == ("linear", None)  # as the folder says
    assert type(kb.load_pretrained(tmp_path / "model", verbose=False).model) is type(model)


@pytest.mark.long
def test_a_reranker_learns_from_logits(open_task):
    model = open_task(kb.Reranker, {})
    model.compile("adam")
    found = model.evaluate({"texts": [QUERY] * 2, "texts_b": TEXTS[:2]}, [0.0, 1.0], verbose=0)
    assert found[0] == pytest.approx(math.log(2))


@pytest.mark.filterwarnings("ignore:Truncated to")
@pytest.mark.parametrize("size", [0, 1, 70])
def test_the_signature_gives_the_same_scores(ask_signature, task_models, size):
    model, words = task_models["reranker"], ["red", "greenish", "blue", "green blue"]
    texts = [f"{words[n % 4]} " * (n % 9) for n in range(size)]
    found = ask_signature("reranker", "rerank", query="red blue", texts=texts)
    pairs = [one.score for one in kb.regress(model, "red blue", texts)] if size else []
    np.testing.assert_allclose(found["scores"], pairs, atol=1e-6)
    np.testing.assert_allclose(found["scores"], 1 / (1 + np.exp(-found["logits"])), atol=1e-6)
    lengths = model.preprocessor.rows(["red blue"] * size, texts)["num_tokens"] if size else []
    np.testing.assert_array_equal(found["num_tokens"], np.minimum(lengths, model.max_row_len))
    np.testing.assert_array_equal(found["truncated"], np.greater(lengths, model.max_row_len))
