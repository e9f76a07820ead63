import pytest

from keras_bert_d2l import TextEmbedder


@pytest.fixture(scope="module")
def embedder(words_bert, words_tokenizer):
    model = TextEmbedder(words_bert, "max", normalize=False, tokenizer=words_tokenizer)
    model.run_eagerly = True
    return model
