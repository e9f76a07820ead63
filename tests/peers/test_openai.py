"""Tests of the development server with OpenAI's client."""

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served import Limits
from keras_bert_d2l.serving.server.served_model import ServedModel

openai = pytest.importorskip("openai", reason="needs openai: make test-peers")

TEXTS = ["a cat", "the mat", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a the cat mat".split()))


@pytest.fixture(scope="module")
def model(tokenizer):
    config = kb.BERTConfig(len(tokenizer.vocab), 8, 16, 2, 1, 0.1, max_len=16)
    return kb.BERTModel.from_bert_config(config)


@pytest.fixture(scope="module")
def client(model, tokenizer, tmp_path_factory):
    path = kb.export_saved_model(model, tmp_path_factory.mktemp("cats"), tokenizer=tokenizer)
    with (
        running(LocalServer(ServedModel(path), "cats", limits=Limits(max_rows=4))) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


def test_the_client_gets_the_vectors_of_texts(client, model, tokenizer):
    model.tokenizer = tokenizer
    right = kb.embed(model, TEXTS)
    # Without a format, the client asks for base64.
    for options in ({}, {"encoding_format": "float", "dimensions": 8, "user": "me"}):
        answer = client.embeddings.create(model="cats", input=TEXTS, **options)
        vectors = [one.embedding for one in answer.data]
        np.testing.assert_allclose(vectors, right, rtol=0, atol=1e-5)
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (10, 10)


def test_the_client_understands_errors(client):
    with pytest.raises(openai.NotFoundError, match="must be 'cats'") as error:
        client.embeddings.create(model="dogs", input="a")
    assert (error.value.param, error.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.BadRequestError, match="must be from 1 to 8, or omitted") as error:
        client.embeddings.create(model="cats", input="a", dimensions=9)
    assert (error.value.param, error.value.type) == ("dimensions", "invalid_request_error")
    with pytest.raises(openai.APIStatusError, match="at most 4 rows") as error:
        client.embeddings.create(model="cats", input=["a"] * 5)
    assert error.value.status_code == 413
