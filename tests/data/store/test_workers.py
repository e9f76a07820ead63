"""Several processes: the same bytes as with one process, even if they are killed at any time."""

import multiprocessing
import random
import time

import pytest

from keras_bert_d2l.data.store import shards
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text import text_files
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from tests.nightly import nightly_except

PIECE_BYTES = 2000
NUM_PIECES = 8


def build(source, vocab, folder, workers, finished):
    """Build a store in a process that is killed, and send a message after each part."""

    def progress(num_done, num_parts, num_tokens):
        finished.send(num_done)
        time.sleep(0.02 if num_done < num_parts else 60)  # the last part waits for the kill

    text_files.SECTION_BYTES = PIECE_BYTES
    tokenizer = Tokenizer(Vocab.from_file(vocab))
    build_store(Corpus.open(source), tokenizer, folder, workers=workers, progress=progress)


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "SECTION_BYTES", PIECE_BYTES)
    path = tmp_path / "corpus.txt"
    words = random.Random(0).choices([f"w{n}" for n in range(30)], k=PIECE_BYTES * NUM_PIECES // 4)
    sentences = [" ".join(words[start : start + 10]) for start in range(0, len(words), 10)]
    documents = ["\n".join(sentences[start : start + 5]) for start in range(0, len(sentences), 5)]
    path.write_text("\n\n".join(documents))
    return Corpus.open(path)


@pytest.fixture
def undisturbed(corpus, words, tmp_path):
    return contents(build_store(corpus, words(20), tmp_path / "undisturbed").directory)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("workers", nightly_except({1}, [1, 2]))
def test_a_build_killed_at_a_random_moment_gives_the_same_bytes(
    corpus, words, undisturbed, tmp_path, workers
):
    words(20).vocab.to_file(tmp_path / "vocab.txt")
    processes = shards._context()
    first_part, finished = processes.Pipe(duplex=False)
    paths = corpus.source, tmp_path / "vocab.txt", tmp_path / "store"
    process = processes.Process(target=build, args=(*paths, workers, finished))
    process.start()
    finished.close()
    first_part.recv()
    time.sleep(random.SystemRandom().uniform(0, 0.05))
    process.kill()
    process.join()
    assert (tmp_path / "store.building").exists()
    assert not (tmp_path / "store").exists()
    store = build_store(corpus, words(20), tmp_path / "store", workers=2)
    assert contents(store.directory) == undisturbed
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"store", "undisturbed", "corpus.txt", "vocab.txt"}


@pytest.mark.long
def test_a_worker_that_dies_is_reported_and_the_build_can_continue(
    corpus, words, undisturbed, tmp_path
):
    before = multiprocessing.active_children()  # of other tests

    def kill_one(num_done, *_):
        if num_done == 3:
            next(x for x in multiprocessing.active_children() if x not in before).kill()

    with pytest.raises(ChildProcessError, match=r"process has died.*run the build again"):
        build_store(corpus, words(20), tmp_path / "store", workers=2, progress=kill_one)
    assert len(list((tmp_path / "store.building").glob("0*"))) >= 3
    store = build_store(corpus, words(20), tmp_path / "store", workers=8)
    assert contents(store.directory) == undisturbed


@pytest.mark.slow
def test_an_error_in_a_worker_is_raised_by_the_build(corpus, words, tmp_path):
    path = tmp_path / "corpus.txt"
    content = path.read_bytes()
    path.write_bytes(content[:-100] + b"\xe9" + content[-99:])
    with pytest.raises(ValueError, match=rf"corpus\.txt.*byte {len(content) - 100} is 0xe9"):
        build_store(corpus, words(20), tmp_path / "store", workers=2)
