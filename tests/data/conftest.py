"""Documents of the words `w0 w1 ...`, where word n has the id 5 + n, and their token stores."""

import functools
import hashlib
import itertools
import json
import random
from types import SimpleNamespace

import pytest

from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab


class Documents(Corpus):
    """A corpus in memory that counts how often it is read."""

    description = "documents of a test"

    def __init__(self, documents):
        self.documents = documents
        self.times_read = 0

    def __iter__(self):
        self.times_read += 1
        return iter(self.documents)

    def pieces(self):
        yield self

    def fingerprint(self):
        return hashlib.sha256(json.dumps(self.documents).encode()).hexdigest()


@functools.cache
def word_tokenizer(num_words, lowercase=True):
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *(f"w{n}" for n in range(num_words))]), lowercase)


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """A namespace of `store` and `tokenizer`: thirty documents, whose token n is the id 5 + n."""
    draw = random.Random(0)
    words = map("w{}".format, itertools.count())
    documents = [
        [" ".join(itertools.islice(words, draw.randint(1, 9))) for _ in range(draw.randint(2, 16))]
        for _ in range(30)
    ]
    tokenizer = word_tokenizer(int(next(words)[1:]))
    store = build_store(Documents(documents), tokenizer, tmp_path_factory.mktemp("text") / "store")
    return SimpleNamespace(store=store, tokenizer=tokenizer)


@pytest.fixture(scope="session")
def documents():
    """The class `Documents`."""
    return Documents


@pytest.fixture(scope="session")
def words():
    """The function `word_tokenizer`."""
    return word_tokenizer
