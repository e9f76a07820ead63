"""Tests of the development server with Cohere's client."""

import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served_model import ServedModel

cohere = pytest.importorskip("cohere", reason="needs cohere: make test-peers")
httpx = pytest.importorskip("httpx", reason="needs cohere: make test-peers")

QUERY, TEXTS = "the mat", ["a cat", "the mat", ""]


@pytest.fixture(scope="module")
def model():
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a the cat mat".split()))
    config = kb.BERTConfig(len(tokenizer.vocab), 8, 16, 2, 1, 0.1, max_len=16)
    return kb.Reranker(kb.BERTModel.from_bert_config(config), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def url(model, tmp_path_factory):
    path = kb.export_saved_model(model, tmp_path_factory.mktemp("cats"))
    with running(LocalServer(ServedModel(path), "cats")) as url:
        yield url


@pytest.mark.parametrize("kind", ["Client", "ClientV2"])
def test_the_client_gets_sorted_texts_and_errors(url, model, kind):
    with httpx.Client() as connections:  # the client itself never closes them
        client = getattr(cohere, kind)(api_key="any", base_url=url, httpx_client=connections)
        answer = client.rerank(model="cats", query=QUERY, documents=TEXTS, top_n=2)
        with pytest.raises(cohere.NotFoundError) as error:
            client.rerank(model="dogs", query=QUERY, documents=TEXTS)
    assert "must be 'cats'" in error.value.body["message"]
    right = kb.rerank(model, QUERY, TEXTS, top_k=2)
    assert [one.index for one in answer.results] == [one.index for one in right]
    scores = [one.relevance_score for one in answer.results]
    assert scores == pytest.approx([one.score for one in right], abs=1e-5)
