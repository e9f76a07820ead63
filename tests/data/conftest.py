"""Documents of the words `w0 w1 ...`, where word n has the id 5 + n, and their token stores."""

import hashlib
import json
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


def numbered_words(lengths):
    """Return documents with sentences of the given lengths, in which every word is different."""
    words = iter(range(10**9))
    return [
        [" ".join(f"w{next(words)}" for _ in range(length)) for length in document]
        for document in lengths
    ]


def word_tokenizer(num_words, lowercase=True):
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *(f"w{n}" for n in range(num_words))]), lowercase)


@pytest.fixture
def make_store(tmp_path):
    """A function that builds a store of distinct words from the sentence lengths of each document.

    It returns a namespace of `store` and `tokenizer`. Token n of the store is the id 5 + n.
    """

    def make(lengths, name="store"):
        tokenizer = word_tokenizer(sum(map(sum, lengths)))
        store = build_store(Documents(numbered_words(lengths)), tokenizer, tmp_path / name)
        return SimpleNamespace(store=store, tokenizer=tokenizer)

    return make


@pytest.fixture
def documents():
    """The class `Documents`."""
    return Documents


@pytest.fixture
def words():
    """The function `word_tokenizer`."""
    return word_tokenizer


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
