"""Corpora, stores, checkpoints and runs in object stores: the same results as on disk."""

import gzip
import os
import pathlib
import sys

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.files import url, write_checksums
from keras_bert_d2l.remote import mirrored
from keras_bert_d2l.text import text_files

fsspec = pytest.importorskip("fsspec")

# Of the server of moto and of s3fs at shutdown.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

TEXT = "\n\n".join(f"The cat sat on mat {n}.\nThe dog ran away." for n in range(200))
WORDS = "the cat sat on mat dog ran away . 0 1 2 3 4 5 6 7 8 9".split()
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"##{n}" for n in range(10))]


@pytest.fixture(scope="module")
def tokenizer():
    return kb.Tokenizer(kb.Vocab(VOCAB))


@pytest.fixture(scope="module")
def model(tokenizer):
    model = kb.BERTModel(len(VOCAB), 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model.tokenizer = tokenizer
    return model


def put(address, content):
    fs, name = fsspec.url_to_fs(address)
    fs.makedirs(name.rpartition("/")[0], exist_ok=True)
    fs.pipe_file(name, content if isinstance(content, bytes) else content.encode())


def upload(folder, address):
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            put(f"{address}/{path.relative_to(folder)}", path.read_bytes())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/text", "s3://bucket/text"),
        (pathlib.Path("s3://bucket/text"), "s3://bucket/text"),
        (pathlib.Path("file:///tmp/text"), "file:///tmp/text"),
        ("hf://datasets/owner/name", "hf://datasets/owner/name"),
        ("books/text", None),
        ("/books/text", None),
        ("C:/books", None),
        ("C:\\books", None),
        ("owner/name@main", None),
    ],
)
def test_a_url_is_recognized_also_in_a_path(path, expected):
    assert url(path) == expected


def test_a_corpus_is_the_same_as_on_disk(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "SECTION_BYTES", 4000)
    (tmp_path / "text" / "more").mkdir(parents=True)
    files = {"a.txt": TEXT, "more/b.text": "One.\nTwo.", "c.txt.gz": gzip.compress(TEXT.encode())}
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "text" / name).write_bytes(raw)
    upload(tmp_path / "text", bucket)
    put(f"{bucket}/image.png", b"\0")
    for ending in ("", "/a.txt", "/*.txt*"):
        local = kb.Corpus.open(f"{tmp_path}/text{ending}", layout="lines")
        corpus = kb.Corpus.open(f"{bucket}{ending}", layout="lines")
        assert list(corpus) == list(local)
        assert [list(piece) for piece in corpus.pieces()] == [list(p) for p in local.pieces()]
    before = corpus.fingerprint()
    put(f"{bucket}/a.txt", TEXT.replace("cat", "cow"))
    assert corpus.fingerprint() != before
    with pytest.raises(FileNotFoundError, match="no text file at"):
        kb.Corpus.open(f"{bucket}/nothing")


def test_a_store_is_read_from_an_object_store(bucket, tokenizer, tmp_path):
    expected = kb.build_store([["the cat sat .", "the dog ran ."]], tokenizer, tmp_path / "store")
    address = f"{bucket}/stores/one"
    assert not kb.TokenStore.is_at(address)
    upload(expected.directory, address)
    assert kb.TokenStore.is_at(address)
    opened = kb.TokenStore.open(address)
    opened.verify()
    assert opened.fingerprint == expected.fingerprint
    with pytest.raises(ValueError, match="token store"):
        kb.Corpus.open(address)


def test_a_copy_is_reused_until_the_remote_folder_changes(bucket, tmp_path):
    for number in range(2):
        (tmp_path / "folder").mkdir(exist_ok=True)
        (tmp_path / "folder" / "number.txt").write_text(f"{number}")
        write_checksums(tmp_path / "folder")
        upload(tmp_path / "folder", f"{bucket}/folder")
        local = mirrored(f"{bucket}/folder")
        inode = (local / "number.txt").stat().st_ino
        assert (local / "number.txt").read_text() == f"{number}"
        assert (mirrored(f"{bucket}/folder") / "number.txt").stat().st_ino == inode
    put(f"{bucket}/folder/number.txt", "3")
    with pytest.raises(ValueError, match="does not match 'SHA256SUMS'"):
        mirrored(f"{bucket}/folder")


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_checkpoint_and_the_best_one_of_a_run_are_loaded(has_checksums, bucket, model, tmp_path):
    kb.save_pretrained(model, tmp_path / "run" / "best")
    (tmp_path / "run" / "run.yaml").touch()
    if not has_checksums:
        os.remove(tmp_path / "run" / "best" / "SHA256SUMS")
    upload(tmp_path / "run", f"{bucket}/run")
    put(f"{bucket}/run.new/config.json", "{}")
    for address in (f"{bucket}/run", f"{bucket}/run/best"):
        loaded = kb.load_pretrained(address)
        for ours, theirs in zip(model.weights, loaded.model.weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert kb.load_tokenizer(address).vocab == model.tokenizer.vocab
    with pytest.raises(FileNotFoundError, match="no folder"):
        kb.load_pretrained(f"{bucket}/nothing")


@pytest.mark.parametrize(
    "write",
    [
        lambda model, path: kb.save_pretrained(model, path),
        lambda model, path: kb.save_tokenizer(model.tokenizer, path),
        lambda model, path: kb.build_store([["the cat"]], model.tokenizer, path),
        lambda model, path: kb.export_saved_model(model, path),
    ],
)
def test_a_url_is_refused_as_an_output(write, model):
    with pytest.raises(ValueError, match="must be a local path. Received: 's3://bucket/a'.*own to"):
        write(model, "s3://bucket/a")


def test_the_error_for_a_missing_package_explains_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"pip install .keras-bert-d2l\[remote\]"):
        kb.Corpus.open("s3://bucket/text")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError("Forbidden"), OSError),
        (FileNotFoundError(2, "The specified bucket does not exist."), FileNotFoundError),
        (type("NoNetworkError", (Exception,), {})("Forbidden."), OSError),
    ],
)
def test_every_error_of_an_object_store_names_the_url_and_a_fix(error, kind, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", fail)
    reason = str(getattr(error, "strerror", None) or error).rstrip(".")
    expected = rf"'memory://bucket/store': {reason} \({type(error).__name__}\)"
    with pytest.raises(kind, match=expected):
        kb.TokenStore.open("memory://bucket/store")


def test_a_name_outside_the_folder_is_rejected(bucket, monkeypatch):
    def find(self, path, **options):
        return {f"{path}/../../a": {"size": 1}}

    monkeypatch.setattr(type(fsspec.url_to_fs(bucket)[0]), "find", find)
    with pytest.raises(ValueError, match="Rename it"):
        mirrored(f"{bucket}/folder")
