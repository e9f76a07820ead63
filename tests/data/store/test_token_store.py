"""TokenStore: random access, and the detection of damaged stores."""

import json
import shutil

import pytest

from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

TEXT = [["w0 w1 w2", "w3"], ["w4 w5 w6"], ["w7", "w8 w9"]]
FILES = ["tokens.bin", "sentence_offsets.bin", "document_offsets.bin", "document_hashes.bin"]


@pytest.fixture(scope="module")
def original(documents, words, tmp_path_factory):
    corpus = documents(TEXT)
    corpus.pieces = lambda: iter([TEXT[:1], TEXT[1:]])
    return build_store(corpus, words(10), tmp_path_factory.mktemp("original") / "store")


@pytest.fixture
def built(original, tmp_path):
    """A copy of the store that a test may damage."""
    return TokenStore.open(shutil.copytree(original.directory, tmp_path / "store"))


def test_sentences_documents_and_tokens_are_found_by_index(original):
    sentences = [original.sentence(index).tolist() for index in range(5)]
    assert sentences == [[5, 6, 7], [8], [9, 10, 11], [12], [13, 14]]
    assert [ids.tolist() for ids in original.document(2)] == sentences[3:]


@pytest.mark.parametrize("name", FILES)
def test_the_error_for_a_missing_or_damaged_file_explains_the_fix(built, name):
    built.verify()
    path = built.directory / name
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ValueError, match=f"{name}: .*Delete the folder"):
            TokenStore.open(built.directory).verify()
    for damaged in (content[:-1], b"", content + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name}.*bytes.*Delete the folder"):
            TokenStore.open(built.directory)
    path.unlink()
    with pytest.raises(ValueError, match=f"{name}: it is missing.*Delete the folder"):
        TokenStore.open(built.directory)


@pytest.mark.parametrize("name", ["tokens.bin", "vocab.txt", "manifest.json"])
def test_a_store_without_the_checksum_of_a_file_is_rejected(built, name):
    path = built.directory / "SHA256SUMS"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if name not in line))
    with pytest.raises(ValueError, match=f"{name}.*Delete the folder"):
        TokenStore.open(built.directory)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a JSON object"),
        ("\xff", "not a JSON object"),
        ('{"version": 3}', r"has version 3.* version 4\."),
        ('{"version": 4}', "its SHA-256"),
    ],
)
def test_a_changed_manifest_is_rejected(built, content, message):
    (built.directory / "manifest.json").write_text(content, encoding="latin1")
    with pytest.raises(ValueError, match=rf"{message}.*Delete the folder"):
        TokenStore.open(built.directory)


def test_a_manifest_with_an_unknown_key_is_rejected(built):
    path = built.directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "color": "red"}))
    write_checksums(built.directory)
    with pytest.raises(ValueError, match=r"manifest\.json: its keys.*'color'"):
        TokenStore.open(built.directory)


def test_a_folder_without_a_store_cannot_be_opened(original, tmp_path):
    assert TokenStore.is_at(original.directory)
    for folder in (tmp_path, tmp_path / "missing"):
        assert not TokenStore.is_at(folder)
        with pytest.raises(FileNotFoundError, match=r"build_store"):
            TokenStore.open(folder)


def test_a_different_tokenizer_is_rejected(original, words):
    original.check_tokenizer(words(10))
    with pytest.raises(ValueError, match="15 tokens, .*Received: 16 tokens"):
        original.check_tokenizer(words(11))
    with pytest.raises(ValueError, match="'lowercase': True.*'lowercase': False"):
        original.check_tokenizer(words(10, lowercase=False))


def test_the_fingerprint_identifies_the_content(original, documents, words, tmp_path):
    def fingerprint(text, num_words=10, name="other", **options):
        corpus = documents(text)
        corpus.pieces = lambda: iter([text[:1], text[1:]])
        name = f"{name}{len(list(tmp_path.iterdir()))}"
        return build_store(corpus, words(num_words), tmp_path / name, **options).fingerprint

    assert (
        TokenStore.open(original.directory).fingerprint == original.fingerprint == fingerprint(TEXT)
    )
    assert fingerprint(TEXT, deduplicate=True) == original.fingerprint, "the text has no duplicates"
    others = [
        fingerprint(TEXT, 11),
        fingerprint(TEXT[::-1]),
        fingerprint([[" ".join(document)] for document in TEXT]),
        fingerprint([*TEXT, TEXT[0]]),
    ]
    assert len({original.fingerprint, *others}) == 5
    assert fingerprint([*TEXT, TEXT[0]], deduplicate=True) == original.fingerprint


def test_a_store_returns_the_tokenizer_it_was_built_with(documents, words, tmp_path):
    tokenizer = Tokenizer(words(4).vocab, lowercase=False, compat="huggingface")
    store = build_store(documents([["w0 W1 w2"]]), tokenizer, tmp_path / "store")
    again = TokenStore.open(store.directory).tokenizer()
    store.check_tokenizer(again)
    assert again.vocab == tokenizer.vocab
    assert again.options == tokenizer.options


def test_a_changed_or_missing_vocabulary_is_detected(built):
    path = built.directory / "vocab.txt"
    for content in ("", "[PAD]\n", "\xff", path.read_text() + "more\n"):
        path.write_text(content, encoding="latin1")
        for reading in (built.verify, built.tokenizer):
            with pytest.raises(ValueError, match=r"vocab\.txt"):
                reading()
    path.unlink()
    with pytest.raises(ValueError, match=r"vocab\.txt: it is missing.*Delete the folder"):
        TokenStore.open(built.directory)
