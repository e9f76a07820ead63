"""Corpora, stores, checkpoints and runs in object stores: the same results as on disk."""

import gzip
import json
import math
import pathlib
import re
import sys

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l import remote
from keras_bert_d2l.cli import main
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.text import text_files

fsspec = pytest.importorskip("fsspec")
from tests.object_stores import Stopped, stopping_after  # noqa: E402

# Of the server of moto and of s3fs at shutdown.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

TEXT = "\n\n".join(f"The cat sat on mat {n}.\nThe dog ran away." for n in range(200))
WORDS = "the cat sat on mat dog ran away . 0 1 2 3 4 5 6 7 8 9".split()
PIECES = [*WORDS, *(f"##{digit}" for digit in range(10))]
ONLY_IN_MEMORY = pytest.mark.parametrize("bucket", ["memory"], indirect=True)
NAMES = ("config.json", "weights.bin")
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]


@pytest.fixture(scope="module")
def tokenizer():
    return kb.Tokenizer(kb.Vocab(VOCAB))


@pytest.fixture(scope="module")
def model(tokenizer):
    model = kb.BERTModel(len(VOCAB), 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model.tokenizer = tokenizer
    return model


def put(address, content):
    fs, name = remote.file_system(address)
    fs.makedirs(name.rpartition("/")[0], exist_ok=True)
    fs.pipe_file(name, content if isinstance(content, bytes) else content.encode())


def contents(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def remote_names(address):
    return sorted(remote.listing(address))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/text", "s3://bucket/text"),
        (pathlib.Path("s3://bucket/text"), "s3://bucket/text"),
        ("file:///tmp/text", "file:///tmp/text"),
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
    assert remote.url(path) == expected


def test_a_corpus_is_the_same_as_on_disk(bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "SECTION_BYTES", 4000)
    (tmp_path / "text" / "more").mkdir(parents=True)
    files = {"a.txt": TEXT, "more/b.text": "One.\nTwo.", "c.txt.gz": gzip.compress(TEXT.encode())}
    for name, content in files.items():
        put(f"{bucket}/{name}", content)
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "text" / name).write_bytes(raw)
    put(f"{bucket}/image.png", b"\0")
    for ending in ("", "/a.txt", "/*.txt*"):
        local = kb.Corpus.open(f"{tmp_path}/text{ending}", layout="lines")
        corpus = kb.Corpus.open(f"{bucket}{ending}", layout="lines")
        assert list(corpus) == list(local)
        assert [list(piece) for piece in corpus.pieces()] == [list(p) for p in local.pieces()]
    before = corpus.fingerprint()
    put(f"{bucket}/a.txt", TEXT.replace("cat", "cow"))
    assert corpus.fingerprint() != before


def test_a_corpus_that_does_not_exist_is_reported(bucket):
    with pytest.raises(FileNotFoundError, match="no text file at"):
        kb.Corpus.open(f"{bucket}/nothing")


def test_a_store_is_built_and_read_in_an_object_store(bucket, tokenizer, tmp_path):
    put(f"{bucket}/text/a.txt", TEXT)
    expected = kb.build_store(
        kb.Corpus.open(f"{bucket}/text", layout="lines"), tokenizer, tmp_path / "store"
    )
    address = f"{bucket}/stores/one"
    assert not kb.TokenStore.is_at(address)
    for _ in range(2):  # the second time, the store exists
        corpus = kb.Corpus.open(f"{bucket}/text", layout="lines")
        store = kb.build_store(corpus, tokenizer, address)
        assert store.fingerprint == expected.fingerprint
    assert kb.TokenStore.is_at(address)
    assert remote_names(address) == sorted(contents(expected.directory))
    opened = kb.TokenStore.open(address)
    opened.verify()
    assert contents(opened.directory) == contents(expected.directory)
    with pytest.raises(ValueError, match="token store"):
        kb.Corpus.open(address)


def test_a_copy_is_reused_until_the_remote_folder_changes(bucket, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(2):
        (folder / "number.txt").write_text(f"{number}")
        write_checksums(folder)
        remote.publish(folder, f"{bucket}/folder")
        local = remote.mirrored(f"{bucket}/folder")
        inode = (local / "number.txt").stat().st_ino
        assert (local / "number.txt").read_text() == f"{number}"
        assert (remote.mirrored(f"{bucket}/folder") / "number.txt").stat().st_ino == inode


def test_a_damaged_copy_is_rejected(bucket, tmp_path):
    put(f"{bucket}/folder/number.txt", "1")
    (tmp_path / "number.txt").write_text("2")
    write_checksums(tmp_path, ["number.txt"])
    put(f"{bucket}/folder/SHA256SUMS", (tmp_path / "SHA256SUMS").read_bytes())
    with pytest.raises(ValueError, match="does not match 'SHA256SUMS'"):
        remote.mirrored(f"{bucket}/folder")


@ONLY_IN_MEMORY
def test_a_folder_with_a_similar_name_is_neither_read_nor_deleted(bucket, model):
    kb.save_pretrained(model, f"{bucket}/model.new")
    with pytest.raises(FileNotFoundError):
        kb.load_pretrained(f"{bucket}/model")
    for _ in range(2):
        kb.save_pretrained(model, f"{bucket}/model")
    assert remote_names(f"{bucket}/model.new") == remote_names(f"{bucket}/model")


@ONLY_IN_MEMORY
def test_the_error_for_a_store_of_another_text_names_its_url(bucket, tokenizer):
    address = f"{bucket}/store"
    kb.build_store([["the cat sat .", "the dog ran ."]] * 2, tokenizer, address)
    others = [["the dog sat .", "the cat ran ."]] * 3
    with pytest.raises(ValueError, match=f"The folder {address} contains.*Delete the folder"):
        kb.build_store(others, tokenizer, address)
    remote.delete(address)
    assert kb.build_store(others, tokenizer, address).num_documents == 3


@ONLY_IN_MEMORY
def test_a_complete_version_exists_after_every_operation_of_a_write(bucket, tmp_path):
    """The program is stopped after each operation in turn."""

    def write(version, most=math.inf):
        folder = tmp_path / f"version{version}"
        folder.mkdir(exist_ok=True)
        for name in (f"only{version}.txt", *NAMES):
            (folder / name).write_text(f"{version}")
        write_checksums(folder)
        with stopping_after(most):
            remote.publish(folder, f"{bucket}/folder")

    write(1)
    for most in range(100):
        try:
            write(2, most)
        except Stopped:
            found = contents(remote.mirrored(f"{bucket}/folder"))
            version = found["config.json"].decode()
            assert set(found) == {*NAMES, f"only{version}.txt", "SHA256SUMS"}
            assert found["weights.bin"].decode() == version in ("1", "2")
            assert "weights.bin" in found["SHA256SUMS"].decode()
        else:
            break
        write(1)
    assert most > 10
    assert contents(remote.mirrored(f"{bucket}/folder"))["config.json"] == b"2"
    assert remote_names(f"{bucket}/folder") == sorted(contents(tmp_path / "version2"))
    assert not remote.listing(f"{bucket}/.folder.new")


def test_a_checkpoint_is_saved_loaded_and_replaced(bucket, model):
    address = f"{bucket}/model"
    for _ in range(2):
        kb.save_pretrained(model, address)
    loaded = kb.load_pretrained(address)
    for ours, theirs in zip(model.weights, loaded.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert kb.load_tokenizer(address).vocab == model.tokenizer.vocab
    put(f"{address}/thesis.txt", "years of work")
    with pytest.raises(FileExistsError, match=r"thesis\.txt"):
        kb.save_pretrained(model, address)


@ONLY_IN_MEMORY
def test_a_checkpoint_without_checksums_can_be_loaded(bucket, model, tmp_path):
    kb.save_pretrained(model, tmp_path / "model")
    for name, content in contents(tmp_path / "model").items():
        if name != "SHA256SUMS":
            put(f"{bucket}/model/{name}", content)
    kb.load_pretrained(f"{bucket}/model")
    with pytest.raises(FileNotFoundError, match="no folder"):
        kb.load_pretrained(f"{bucket}/nothing")


@ONLY_IN_MEMORY
def test_the_best_checkpoint_of_a_copied_run_is_found(bucket, model):
    put(f"{bucket}/run/run.yaml", "steps: 5")
    kb.save_pretrained(model, f"{bucket}/run/best")
    assert kb.inspect_checkpoint(f"{bucket}/run")[0].startswith(f"{bucket}/run")


def test_the_error_for_a_missing_package_explains_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"pip install .keras-bert-d2l\[remote\]"):
        kb.Corpus.open("s3://bucket/text")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError("Forbidden"), PermissionError),
        (FileNotFoundError(2, "The specified bucket does not exist."), FileNotFoundError),
        (type("NoNetworkError", (Exception,), {})("Forbidden."), OSError),
        (type("FrozenError", (PermissionError,), {})("Forbidden"), PermissionError),
    ],
)
def test_every_error_of_an_object_store_names_the_url_and_a_fix(error, kind, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "find", fail)
    with pytest.raises(kind) as caught:
        kb.TokenStore.open("memory://bucket/store")
    assert type(caught.value) is kind
    reason = str(error.strerror or error) if isinstance(error, OSError) else str(error)
    assert str(caught.value) == (
        f"Could not access 'memory://bucket/store': {reason.rstrip('.')} ({type(error).__name__}). "
        "Check the URL, the network and your credentials."
    )


def test_an_unknown_kind_of_url_is_rejected():
    with pytest.raises(ValueError, match="Could not access 'tape://bucket/text': Protocol not kn"):
        kb.Corpus.open("tape://bucket/text")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("credentials", r"Unable to locate credentials \(NoCredentialsError\)"),
        ("network", r"Could not connect to the endpoint URL.* \(EndpointConnectionError\)"),
        ("bucket", r"The specified bucket does not exist \(FileNotFoundError\)"),
    ],
)
def test_a_command_reports_what_is_wrong_with_s3_in_one_line(
    fault, reason, s3_server, tmp_path, monkeypatch, capsys
):
    s3fs = pytest.importorskip("s3fs")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
        if fault == "credentials":
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    address = "http://127.0.0.1:1" if fault == "network" else s3_server
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    s3fs.S3FileSystem.clear_instance_cache()
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB))
    url, vocab, out = "s3://missing-bucket/text", f"{tmp_path}/vocab.txt", f"{tmp_path}/store"
    with pytest.raises(SystemExit) as ended:
        main(["prepare", url, "--vocab", vocab, "--out", out])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert url in line
    assert re.search(reason, line)


def test_a_name_outside_the_folder_is_rejected(bucket, tmp_path, monkeypatch):
    put(f"{bucket}/folder/a", "1")
    found = remote.listing(f"{bucket}/folder")
    monkeypatch.setattr(remote, "listing", lambda path: {"../../a": found["a"]})
    with pytest.raises(ValueError, match="Rename it"):
        remote.mirrored(f"{bucket}/folder")
    assert json.dumps(found["a"]["size"]) == "1"
