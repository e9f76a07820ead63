"""Documents of the words `w0 w1 ...`, where word n has the id 5 + n, and their token stores."""

import hashlib
import json
import random
import string
from types import SimpleNamespace

import pytest

from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text.corpus import sections
from keras_bert_d2l.text.corpus.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import GOOGLE_SPECIALS, Vocab

ENGLISH = (
    "the of and with have that house road night garden river window letter morning friend father "
    "mother sister brother water light stone bread table summer winter village church market horse "
    "walked talked looked thought wanted carried opened closed followed answered remembered under "
    "over between behind before after through against because although while where small large "
    "old young quiet bright dark heavy empty narrow golden broken sudden gentle"
).split()


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


@pytest.fixture
def web_pages(tmp_path, monkeypatch):
    """A corpus of many pieces, a tokenizer, and options of `build_store` that select documents.

    Every tenth page is a copy, a near-duplicate, too short, in German, or has a curly bracket.
    """
    pytest.importorskip("py3langid")
    monkeypatch.setattr(sections, "SECTION_BYTES", 10_000)
    draw = random.Random(0)
    pages = [
        "\n".join(f"{' '.join(draw.choices(ENGLISH, k=15))}." for _ in range(8)) for _ in range(150)
    ]
    for n in range(10, 150, 10):
        pages[n] = pages[n - 5]
        pages[n + 1] = pages[n - 4].replace(" ", " indeed ", 2)
        pages[n + 2] = pages[n + 2][:200]
        pages[n + 3] = (
            "Das alte Haus stand am Ende der Straße, und niemand hatte dort gewohnt.\n" * 8
        )
        pages[n + 4] += " {"
    path = tmp_path / "pages.txt"
    path.write_text("\n\n".join(pages))
    letters = string.ascii_lowercase
    vocab = Vocab([*GOOGLE_SPECIALS, *letters, *(f"##{letter}" for letter in letters), *".{"])
    options = {
        "deduplicate": True,
        "near_duplicates": 0.8,
        "language": "en",
        "quality": ["c4", "gopher"],
    }
    return Corpus.open(path, layout="lines"), Tokenizer(vocab), options


@pytest.fixture
def selected(web_pages, tmp_path):
    """The store of `web_pages`, built in this process."""
    corpus, tokenizer, options = web_pages
    assert len(list(corpus.pieces())) > 5
    store = build_store(corpus, tokenizer, tmp_path / "one", **options)
    assert store.num_duplicates == 14
    assert store.discarded == {
        "C4: curly bracket": 14,
        "C4: few sentences": 14,
        "language: de": 14,
        "near-duplicate": 14,
    }
    return store
