"""TokenStore: random access, and the detection of damaged stores."""

import json

import numpy as np
import pytest

from keras_bert_d2l.data.store import token_store
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

TEXT = [["w0 w1 w2", "w3"], ["w4 w5 w6"], ["w7", "w8 w9"]]
FILES = ["tokens.bin", "sentence_offsets.bin", "document_offsets.bin", "document_hashes.bin"]


@pytest.fixture
def built(documents, words, tmp_path):
    corpus = documents(TEXT)
    corpus.pieces = lambda: iter([TEXT[:1], TEXT[1:]])
    return build_store(corpus, words(10), tmp_path / "store")


def test_sentences_and_documents_are_found_by_index(built):
    assert [built.sentence(index).tolist() for index in range(5)] == [
        [5, 6, 7],
        [8],
        [9, 10, 11],
        [12],
        [13, 14],
    ]
    assert [ids.tolist() for ids in built.document(2)] == [[12], [13, 14]]


def test_every_token_is_located_in_its_document_and_sentence(built):
    documents, sentences = built.locate(np.arange(10).reshape(2, 5))
    assert documents.tolist() == [[0, 0, 0, 0, 1], [1, 1, 2, 2, 2]]
    assert sentences.tolist() == [[0, 0, 0, 1, 2], [2, 2, 3, 4, 4]]


@pytest.mark.parametrize("name", FILES)
def test_the_error_for_a_missing_or_truncated_file_explains_the_fix(built, name):
    path = built.directory / name
    content = path.read_bytes()
    for damaged in (content[:-1], b"", content + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name}.*bytes.*Delete the folder"):
            TokenStore.open(built.directory)
    path.unlink()
    with pytest.raises(ValueError, match=f"{name}: it is missing.*Delete the folder"):
        TokenStore.open(built.directory)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_flipped_bit_is_detected_with_its_file(built, name):
    built.verify()
    path = built.directory / name
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ValueError, match=f"{name}: .*Delete the folder"):
            TokenStore.open(built.directory).verify()
    path.write_bytes(content)
    TokenStore.open(built.directory).verify()


@pytest.mark.parametrize("at_once", [1, 2, 1 << 20])
@pytest.mark.parametrize(
    ("name", "dtype", "place", "value", "message"),
    [
        ("tokens.bin", "<u2", 3, 15, "ids must be from 0 to 14, but it has the id 15"),
        ("sentence_offsets.bin", "<i8", 0, 1, "do not ascend from 0 to 10"),
        ("sentence_offsets.bin", "<i8", 2, 3, "do not ascend from 0 to 10"),
        ("sentence_offsets.bin", "<i8", 5, 11, "do not ascend from 0 to 10"),
        ("document_offsets.bin", "<i8", 1, 5, "do not ascend from 0 to 5"),
    ],
)
def test_impossible_values_are_detected_when_a_store_is_opened(
    built, name, dtype, place, value, message, at_once, monkeypatch
):
    monkeypatch.setattr(token_store, "_VALUES_AT_ONCE", at_once)
    TokenStore.open(built.directory)
    values = np.fromfile(built.directory / name, dtype)
    values[place] = value
    values.tofile(built.directory / name)
    with pytest.raises(ValueError, match=f"{name}: its .*{message}.*Delete the folder"):
        TokenStore.open(built.directory)


@pytest.mark.parametrize(
    "change", [{"color": "red"}, {"num_tokens": "12"}, {"num_tokens": 11}, {"tokenizer": None}]
)
def test_a_changed_manifest_is_rejected(built, change):
    path = built.directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match="manifest.json: its SHA-256.*Delete the folder"):
        TokenStore.open(built.directory)


@pytest.mark.parametrize("name", ["tokens.bin", "vocab.txt", "manifest.json"])
def test_a_store_without_the_checksum_of_a_file_is_rejected(built, name):
    path = built.directory / "SHA256SUMS"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if name not in line))
    with pytest.raises(ValueError, match=f"{name}.*Delete the folder"):
        TokenStore.open(built.directory)


def test_a_store_with_filters_of_an_earlier_version_opens_but_is_not_taken_for_the_corpus(
    built, documents, words
):
    path = built.directory / "manifest.json"
    earlier = {"near_duplicates": None, "language": "en", "quality": [], "discarded": {"de": 1}}
    path.write_text(json.dumps({**earlier, **json.loads(path.read_text())}))
    write_checksums(built.directory)
    assert TokenStore.open(built.directory).fingerprint == built.fingerprint
    with pytest.raises(ValueError, match="earlier version .* language='en', so it lacks documents"):
        build_store(documents(TEXT), words(10), built.directory)


@pytest.mark.parametrize("version", [3, 5])
def test_a_store_of_a_different_version_is_rejected(built, version):
    (built.directory / "manifest.json").write_text(json.dumps({"version": version}))
    with pytest.raises(ValueError, match=rf"has version {version}.* version 4\..*Delete the"):
        TokenStore.open(built.directory)


@pytest.mark.parametrize("content", ["", "[]", '{"version": 4}', '{"version"', "\xff"])
def test_an_unreadable_manifest_is_rejected(built, content):
    (built.directory / "manifest.json").write_text(content, encoding="latin1")
    with pytest.raises(ValueError, match=r"manifest\.json.*Delete the folder"):
        TokenStore.open(built.directory)


def test_a_folder_without_a_store_cannot_be_opened(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match=r"build_store"):
            TokenStore.open(folder)


def test_a_different_tokenizer_is_rejected(built, words):
    built.check_tokenizer(words(10))
    with pytest.raises(ValueError, match=r"different vocabulary: 15 tokens.*has 16 tokens"):
        built.check_tokenizer(words(11))
    with pytest.raises(ValueError, match="lowercase=True.*tokenizer has lowercase=False"):
        built.check_tokenizer(words(10, lowercase=False))


@pytest.mark.slow
def test_the_fingerprint_identifies_the_content(built, documents, words, tmp_path):
    def fingerprint(text, num_words=10, name="other", **options):
        corpus = documents(text)
        corpus.pieces = lambda: iter([text[:1], text[1:]])
        name = f"{name}{len(list(tmp_path.iterdir()))}"
        return build_store(corpus, words(num_words), tmp_path / name, **options).fingerprint

    assert TokenStore.open(built.directory).fingerprint == built.fingerprint == fingerprint(TEXT)
    assert fingerprint(TEXT, deduplicate=True) == built.fingerprint, "the text has no duplicates"
    others = [
        fingerprint(TEXT, 11),
        fingerprint(TEXT[::-1]),
        fingerprint([[" ".join(document)] for document in TEXT]),
        fingerprint([*TEXT, TEXT[0]]),
    ]
    assert len({built.fingerprint, *others}) == 5
    assert fingerprint([*TEXT, TEXT[0]], deduplicate=True) == built.fingerprint


def test_a_store_returns_the_tokenizer_it_was_built_with(documents, words, tmp_path):
    tokenizer = Tokenizer(words(4).vocab, lowercase=False, compat="huggingface")
    store = build_store(documents([["w0 W1 w2"]]), tokenizer, tmp_path / "store")
    again = TokenStore.open(store.directory).tokenizer()
    store.check_tokenizer(again)
    assert again.vocab == tokenizer.vocab
    assert again.options == tokenizer.options


@pytest.mark.parametrize("content", ["", "[PAD]\n", "\xff", None])
def test_a_changed_vocabulary_is_detected(built, content):
    path = built.directory / "vocab.txt"
    text = path.read_text() + "more\n" if content is None else content
    path.write_text(text, encoding="latin1")
    for reading in (built.verify, built.tokenizer):
        with pytest.raises(ValueError, match=r"vocab\.txt.*Delete the folder"):
            reading()


def test_a_store_without_its_vocabulary_is_rejected(built):
    (built.directory / "vocab.txt").unlink()
    with pytest.raises(ValueError, match=r"vocab\.txt: it is missing.*Delete the folder"):
        TokenStore.open(built.directory)


def test_is_at_detects_the_folder_of_a_store(built, tmp_path):
    assert TokenStore.is_at(built.directory)
    assert not TokenStore.is_at(tmp_path)
    assert not TokenStore.is_at("docstrings")
