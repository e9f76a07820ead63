"""TokenStore: what it holds, that it is whole or not there, and what it refuses."""

import errno
import json

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l.data.store as store_module
from keras_bert_d2l.data.store import TokenStore, cached_store
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

TEXT = [
    ["w0 w1 w2", "w3", "", "w4 unknown"],
    ["", "   "],
    [],
    ["w5 [MASK] w6"],
    ["w7", "w8 w9"],
]
TOKENS = [5, 6, 7, 8, 9, 1, 10, 4, 11, 12, 13, 14]
FILES = ["tokens.bin", "sentence_offsets.bin", "document_offsets.bin", "document_hashes.bin"]


@pytest.fixture
def built(documents, words, tmp_path):
    return TokenStore.build(documents(TEXT), words(10), tmp_path / "store")


def test_it_holds_the_ids_and_where_sentences_and_documents_begin(built):
    assert built.tokens.tolist() == TOKENS
    assert built.sentence_offsets.tolist() == [0, 3, 4, 6, 9, 10, 12]
    assert built.document_offsets.tolist() == [0, 3, 4, 6]
    assert (built.num_tokens, built.num_sentences, built.num_documents) == (12, 6, 3)


def test_opened_again_it_is_the_same(built, words):
    opened = TokenStore.open(built.directory)
    for name in ("tokens", "sentence_offsets", "document_offsets", "document_hashes"):
        np.testing.assert_array_equal(getattr(opened, name), getattr(built, name))
    assert opened.vocab_fingerprint == words(10).vocab.fingerprint
    assert (opened.vocab_size, opened.lowercase) == (15, True)


def test_arrays_are_memory_mapped_and_small(built):
    assert isinstance(built.tokens, np.memmap)
    assert built.tokens.dtype == np.uint16
    assert built.sentence_offsets.dtype == built.document_offsets.dtype == np.int64


@pytest.mark.parametrize(("size", "dtype"), [(65_536, np.uint16), (65_537, np.int32)])
def test_the_last_id_of_a_large_vocabulary_fits(documents, words, tmp_path, size, dtype):
    last = size - len(GOOGLE_SPECIALS) - 1
    corpus = documents([[f"w{last} w0"]])
    store = TokenStore.build(corpus, words(last + 1), tmp_path / "store")
    assert store.tokens.dtype == dtype
    assert store.tokens.tolist() == [size - 1, 5]


@pytest.mark.parametrize("characters", [1, 7, 20])
def test_the_size_of_batches_changes_nothing(
    built, documents, words, tmp_path, monkeypatch, characters
):
    monkeypatch.setattr(store_module, "_BATCH_CHARACTERS", characters)
    other = TokenStore.build(documents(TEXT), words(10), tmp_path / "other")
    for name in FILES:
        assert (other.directory / name).read_bytes() == (built.directory / name).read_bytes()


def test_a_document_is_hashed_by_its_text_alone(built, documents, words, tmp_path):
    other = TokenStore.build(documents(TEXT[::-1]), words(20), tmp_path / "other")
    assert other.document_hashes.tolist() == built.document_hashes.tolist()[::-1]
    assert len(set(built.document_hashes.tolist())) == 3


def test_building_again_opens_what_is_there(built, documents, words):
    corpus = documents(TEXT)
    again = TokenStore.build(corpus, words(10), built.directory)
    assert corpus.times_read == 0
    assert again.tokens.tolist() == TOKENS


def test_the_cache_keeps_a_store_for_each_corpus_and_tokenizer(
    documents, words, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    corpus = documents(TEXT)
    first = cached_store(corpus, words(10))
    assert first.directory.parent == tmp_path / "keras_bert_d2l"
    assert cached_store(corpus, words(10)).directory == first.directory
    assert corpus.times_read == 1
    others = [
        cached_store(corpus, words(11)),
        cached_store(corpus, words(10, lowercase=False)),
        cached_store(documents(TEXT[1:]), words(10)),
    ]
    assert len({store.directory for store in (first, *others)}) == 4


def test_a_build_that_fails_leaves_nothing(documents, words, tmp_path):
    def text_with_an_end():
        yield ["w0 w1"]
        raise ValueError("the text ends here")

    corpus = documents(text_with_an_end())
    corpus.fingerprint = lambda: "one"
    with pytest.raises(ValueError, match="the text ends here"):
        TokenStore.build(corpus, words(10), tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_or_changed_file_is_named_with_the_remedy(built, name):
    path = built.directory / name
    content = path.read_bytes()
    changed = bytes([content[0] ^ 1]) + content[1:]
    for damaged in (content[:-1], b"", content + b"\0", changed):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name}.*Delete the folder"):
            TokenStore.open(built.directory)
    path.unlink()
    with pytest.raises(ValueError, match=f"{name}.*Delete the folder"):
        TokenStore.open(built.directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version is 2, not 1"),
        ({"colour": "red"}, "exactly the keys version, corpus_fingerprint"),
        ({"num_tokens": "12"}, "num_tokens is '12'"),
        ({"num_tokens": 11}, "tokens.bin: it has 24 bytes, not 22"),
        ({"checksums": {}}, "checksums"),
    ],
)
def test_a_manifest_with_something_else_is_refused(built, change, message):
    path = built.directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=f"{message}.*Delete the folder"):
        TokenStore.open(built.directory)


@pytest.mark.parametrize("content", ["", "[]", '{"version": 1}', '{"version"'])
def test_a_manifest_that_is_none_is_refused(built, content):
    (built.directory / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"manifest\.json.*Delete the folder"):
        TokenStore.open(built.directory)


def test_a_folder_without_a_store_is_no_store(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"TokenStore\.build"):
        TokenStore.open(tmp_path)


def test_a_folder_in_use_is_left_alone(documents, words, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for path in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(ValueError, match="a new or an empty folder"):
            TokenStore.build(documents(TEXT), words(10), path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_store_of_something_else_is_not_taken(built, documents, words):
    with pytest.raises(ValueError, match="another corpus.*Delete the folder"):
        TokenStore.build(documents(TEXT[1:]), words(10), built.directory)
    with pytest.raises(ValueError, match=r"another vocabulary: 15 tokens.*has 16 tokens"):
        TokenStore.build(documents(TEXT), words(11), built.directory)
    with pytest.raises(ValueError, match="lowercase=True; the tokenizer has lowercase=False"):
        TokenStore.build(documents(TEXT), words(10, lowercase=False), built.directory)


@pytest.mark.parametrize("text", [[], [[]], [[""], ["  "]]])
def test_a_corpus_without_text_is_refused(documents, words, tmp_path, text):
    with pytest.raises(ValueError, match="holds no text: documents of a test"):
        TokenStore.build(documents(text), words(10), tmp_path / "store")


@pytest.mark.parametrize("wrong", [-1, 15, 70_000])
def test_an_id_outside_the_vocabulary_is_refused(documents, tmp_path, wrong):
    class Wrong:
        vocab = Vocab([*GOOGLE_SPECIALS, *(f"w{n}" for n in range(10))])
        lowercase = True

        def tokenize(self, texts):
            return tf.ragged.constant([[5, 6], [], [7, wrong]], tf.int32)

    corpus = documents([["one", "", "two words"]])
    with pytest.raises(ValueError, match=f"the id {wrong}, outside .* 15 tokens, in 'two words'"):
        TokenStore.build(corpus, Wrong(), tmp_path / "store")


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(documents, words, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file/store: .*set `cache_dir`"):
        TokenStore.build(documents(TEXT), words(10), tmp_path / "file" / "store")


def test_a_full_disk_is_named_with_the_way_out(documents, words, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "_write", full)
    with pytest.raises(OSError, match="No space left on device.*free space.*`cache_dir`"):
        TokenStore.build(documents(TEXT), words(10), tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
