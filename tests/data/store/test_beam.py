"""build_store_with_beam: the same bytes as build_store, for any number of workers."""

import contextlib
import errno
import importlib.util
import random
import sys

import pytest

from keras_bert_d2l.data.store import beam
from keras_bert_d2l.data.store.beam import build_store_with_beam
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.data.store.shards import make_shard
from keras_bert_d2l.text import text_files
from keras_bert_d2l.text.corpus import Corpus

PIECE_BYTES = 1500
LOCAL = "--runner=FnApiRunner"  # like DirectRunner, but without trying a download
THREADS = [LOCAL, "--direct_num_workers=2", "--direct_running_mode=multi_threading"]
PROCESSES = [LOCAL, "--direct_num_workers=2", "--direct_running_mode=multi_processing"]

DASK = ["--runner=apache_beam.runners.dask.dask_runner.DaskRunner"]

needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None, reason="needs Apache Beam, the extra [beam]"
)
# Beam itself causes these warnings in its threads and at shutdown.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A folder of two files in many pieces; every third document is a copy of the first."""
    monkeypatch.setattr(text_files, "SECTION_BYTES", PIECE_BYTES)
    draw = random.Random(0)
    words = [f"w{n}" for n in range(30)]
    documents = [
        "\n".join(" ".join(draw.choices(words, k=8)) for _ in range(draw.randint(1, 4)))
        for _ in range(250)
    ]
    documents = [documents[0] if n % 3 == 0 else text for n, text in enumerate(documents)]
    (tmp_path / "text").mkdir()
    for number in range(2):
        text = "\n\n".join(documents[number::2])
        (tmp_path / "text" / f"{number}.txt").write_text(text)
    return Corpus.open(tmp_path / "text", layout="lines")


def contents(store):
    return {path.name: path.read_bytes() for path in store.directory.iterdir()}


@needs_beam
@pytest.mark.parametrize(("workers", "deduplicate"), [([LOCAL], False), (THREADS, True)])
def test_the_store_has_the_same_bytes_as_one_from_build_store(
    corpus, words, tmp_path, workers, deduplicate
):
    expected = build_store(corpus, words(20), tmp_path / "one", deduplicate=deduplicate)
    reported = []
    store = build_store_with_beam(
        corpus,
        words(20),
        tmp_path / "beam",
        deduplicate=deduplicate,
        pipeline_options=workers,
        progress=lambda *done: reported.append(done),
    )
    assert contents(store) == contents(expected)
    assert bool(store.num_duplicates) == deduplicate
    num_pieces = len(list(corpus.pieces()))
    assert [numbers[:2] for numbers in reported] == [(n + 1, num_pieces) for n in range(num_pieces)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beam", "one", "text"]


@needs_beam
@pytest.mark.long
@pytest.mark.parametrize("workers", [PROCESSES, ["--runner=BundleBasedDirectRunner"], DASK])
def test_every_runner_builds_the_same_store(corpus, words, tmp_path, workers):
    if workers == DASK:
        pytest.importorskip("distributed")
    expected = build_store(corpus, words(20), tmp_path / "one", deduplicate=True)
    store = build_store_with_beam(
        corpus, words(20), tmp_path / "beam", deduplicate=True, pipeline_options=workers
    )
    assert contents(store) == contents(expected)


@needs_beam
def test_an_error_in_the_text_is_that_of_build_store(corpus, words, tmp_path):
    file = tmp_path / "text" / "1.txt"
    file.write_bytes(b"\xe9" + file.read_bytes())
    with pytest.raises(ValueError, match=r"1\.txt' must be UTF-8.*byte 0 is 0xe9"):
        build_store_with_beam(Corpus.open(tmp_path / "text"), words(20), tmp_path / "beam")


@needs_beam
@pytest.mark.slow
def test_a_pipeline_continues_with_the_shards_of_another_build(corpus, words, tmp_path):
    expected = contents(build_store(corpus, words(20), tmp_path / "one", deduplicate=True))

    class Stopped(Exception):
        pass

    def stop(num_done, *_):
        if num_done == 3:
            raise Stopped

    with pytest.raises(Stopped):
        build_store(corpus, words(20), tmp_path / "beam", deduplicate=True, progress=stop)
    first = tmp_path / "beam.building" / "000000" / "tokens.bin"
    made = first.stat().st_ino
    seen = []
    store = build_store_with_beam(
        corpus,
        words(20),
        tmp_path / "beam",
        deduplicate=True,
        progress=lambda *_: seen.append(first.stat().st_ino),
    )
    assert contents(store) == expected
    assert set(seen) == {made}


@needs_beam
def test_relative_paths_refer_to_the_folder_where_the_build_was_started(
    corpus, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    relative = Corpus.open("text", layout="lines")

    def make_elsewhere(*arguments):
        with contextlib.chdir(tmp_path / "text"):
            return make_shard(*arguments)

    monkeypatch.setattr(beam, "make_shard", make_elsewhere)
    store = build_store_with_beam(relative, words(20), "beam")
    assert contents(store) == contents(build_store(corpus, words(20), tmp_path / "one"))


@needs_beam
def test_finished_shards_survive_a_full_disk(corpus, words, tmp_path, monkeypatch):
    def make_two(piece, tokenizer, folder):
        if folder.name > "000001":
            raise OSError(errno.ENOSPC, "No space left on device")
        return make_shard(piece, tokenizer, folder)

    with monkeypatch.context() as patch:
        patch.setattr(beam, "make_shard", make_two)
        with pytest.raises(RuntimeError, match="No space left on device.*run the build again"):
            build_store_with_beam(corpus, words(20), tmp_path / "beam")
    assert not (tmp_path / "beam").exists()
    store = build_store_with_beam(corpus, words(20), tmp_path / "beam")
    assert contents(store) == contents(build_store(corpus, words(20), tmp_path / "one"))


@needs_beam
def test_a_worker_on_another_file_system_is_detected(corpus, words, tmp_path, monkeypatch):
    monkeypatch.setattr(beam._Worker, "__call__", lambda *_: None)
    with pytest.raises(OSError, match="without making .*000000.*shared file system"):
        build_store_with_beam(corpus, words(20), tmp_path / "beam")


def test_a_worker_without_the_folder_creates_nothing(corpus, words, tmp_path):
    tokenizer = words(20)
    worker = beam._Worker(tokenizer.vocab, tokenizer.options)
    with pytest.raises(FileNotFoundError, match=r"no folder .*beam\.building.*same path"):
        worker((next(corpus.pieces()), tmp_path / "beam.building" / "000000"))
    assert not (tmp_path / "beam.building").exists()


def test_the_error_for_a_missing_beam_explains_how_to_install_it(
    corpus, words, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"pip install .keras-bert-d2l\[beam\]"):
        build_store_with_beam(corpus, words(20), tmp_path / "beam")
    assert not (tmp_path / "beam.building").exists()
