"""build_store: the files it writes, the input it rejects, and resuming after interruptions."""

import concurrent.futures
import errno
import threading

import numpy as np
import pytest

from keras_bert_d2l.data.store import shards
from keras_bert_d2l.data.store.building import TokenStore, build_store, cached_store
from keras_bert_d2l.data.store.token_store import token_dtype
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS

TEXT = [["w0 w1 w2", "w3", "", "w4 unknown"], ["", "   "], [], ["w5 [MASK] w6"], ["w7", "w8 w9"]]
TOKENS = [5, 6, 7, 8, 9, 1, 10, 4, 11, 12, 13, 14]
FILES = ["tokens.bin", "sentence_offsets.bin", "document_offsets.bin", "document_hashes.bin"]


@pytest.fixture(scope="module")
def built(documents, words, tmp_path_factory):
    return build_store(documents(TEXT), words(10), tmp_path_factory.mktemp("built") / "store")


def test_a_store_contains_the_ids_and_the_offsets_of_sentences_and_documents(built, words):
    assert (built.num_tokens, built.num_sentences, built.num_documents) == (12, 6, 3)
    for store in (built, TokenStore.open(built.directory)):
        assert store.tokens.tolist() == TOKENS
        assert store.sentence_offsets.tolist() == [0, 3, 4, 6, 9, 10, 12]
        assert store.document_offsets.tolist() == [0, 3, 4, 6]
        np.testing.assert_array_equal(store.document_hashes, built.document_hashes)
        assert store.vocab_fingerprint == words(10).vocab.fingerprint
        assert store.vocab_size == 15
        assert store.tokenizer_options["lowercase"] is True
        assert isinstance(store.tokens, np.memmap)
        assert store.tokens.dtype == np.uint16
        assert store.sentence_offsets.dtype == store.document_offsets.dtype == np.int64


@pytest.mark.slow
def test_the_last_id_of_a_large_vocabulary_fits(documents, words, tmp_path):
    assert token_dtype(65_536) == np.uint16
    last = 65_536 - len(GOOGLE_SPECIALS)
    store = build_store(documents([[f"w{last} w0"]]), words(last + 1), tmp_path / "store")
    assert store.tokens.dtype == np.int32
    assert store.tokens.tolist() == [65_536, 5]


@pytest.mark.parametrize("number", [1, 7, 20])
def test_the_batch_size_does_not_change_the_store(
    built, documents, words, tmp_path, monkeypatch, number
):
    monkeypatch.setattr(shards, "_BATCH_CHARACTERS", number)
    monkeypatch.setattr(shards, "_DOCUMENTS_AT_ONCE", number)
    other = build_store(documents(TEXT), words(10), tmp_path / "other")
    for name in FILES:
        assert (other.directory / name).read_bytes() == (built.directory / name).read_bytes()


def test_a_document_hash_depends_only_on_the_text(built, documents, words, tmp_path):
    other = build_store(documents(TEXT[::-1]), words(20), tmp_path / "other")
    assert other.document_hashes.tolist() == built.document_hashes.tolist()[::-1]
    assert len(set(built.document_hashes.tolist())) == 3


def test_building_again_opens_the_existing_store(built, documents, words):
    corpus = documents(TEXT)
    again = build_store(corpus, words(10), built.directory)
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


def test_a_tokenizer_of_a_subclass_is_rejected(documents, words, tmp_path):
    class Reversed(Tokenizer):
        def tokenize(self, texts):
            return super().tokenize(texts)[:, ::-1]

    for build in (build_store, cached_store):
        with pytest.raises(ValueError, match="a `Tokenizer` and not of a subclass"):
            build(documents(TEXT), Reversed(words(10).vocab), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_failed_build_leaves_no_files(documents, words, tmp_path):
    def text_with_an_end():
        yield ["w0 w1"]
        raise ValueError("the text ends here")

    corpus = documents(text_with_an_end())
    corpus.fingerprint = lambda: "one"
    with pytest.raises(ValueError, match="the text ends here"):
        build_store(corpus, words(10), tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_not_touched(documents, words, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    for path in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(ValueError, match="a new or empty folder"):
            build_store(documents(TEXT), words(10), path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_store_of_a_different_corpus_or_tokenizer_is_not_reused(built, documents, words):
    with pytest.raises(ValueError, match="a different corpus.*Delete the folder"):
        build_store(documents(TEXT[1:]), words(10), built.directory)
    with pytest.raises(ValueError, match="15 tokens, .*Received: 16 tokens"):
        build_store(documents(TEXT), words(11), built.directory)


def test_a_corpus_without_text_is_rejected(documents, words, tmp_path):
    for text in ([], [[]], [[""], ["  "]]):
        with pytest.raises(ValueError, match="contains no text: documents of a test"):
            build_store(documents(text), words(10), tmp_path / "store")
        assert list(tmp_path.iterdir()) == []


def test_the_error_for_an_unwritable_folder_names_it(documents, words, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="/file"):
        build_store(documents(TEXT), words(10), tmp_path / "file" / "store")


def test_the_number_of_workers_must_be_positive(documents, words, tmp_path):
    with pytest.raises(ValueError, match="at least 1. Received: workers=0"):
        build_store(documents(TEXT), words(10), tmp_path / "store", workers=0)


class Pieces(Corpus):
    """A corpus of three pieces. Reading a piece in `broken` fails."""

    description = "pieces of a test"

    def __init__(self):
        self.times_read = [0, 0, 0]
        self.broken = set()
        self.version = "first"

    def fingerprint(self):
        return self.version

    def pieces(self):
        return [self.piece(number) for number in range(3)]

    def piece(self, number):
        self.times_read[number] += 1
        yield [f"w{number} w0"]
        if number in self.broken:
            raise ValueError(f"piece {number} is broken")
        yield ["w1"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "store"
    return contents(build_store(Pieces(), words(3), folder).directory)


@pytest.mark.parametrize("change", ["none", "flipped", "truncated", "missing"])
def test_a_failed_build_continues_with_the_intact_shards(undisturbed, words, tmp_path, change):
    corpus = Pieces()
    corpus.broken = {2}
    with pytest.raises(ValueError, match="piece 2 is broken"):
        build_store(corpus, words(3), tmp_path / "store")
    shard = tmp_path / "store.building" / "000001"
    content = (shard / "tokens.bin").read_bytes()
    if change == "missing":
        (shard / "tokens.bin").unlink()
    elif change != "none":
        flipped = bytes([content[0] ^ 1]) + content[1:]
        (shard / "tokens.bin").write_bytes(flipped if change == "flipped" else content[:-1])
    # Files that a killed process leaves:
    (tmp_path / ".store.a1b2c3d4.tmp").mkdir()
    (tmp_path / "store.building" / ".000002.a1b2c3d4.tmp").mkdir()
    corpus.broken = set()
    store = build_store(corpus, words(3), tmp_path / "store")
    assert corpus.times_read == [1, 1 if change == "none" else 2, 2]
    assert contents(store.directory) == undisturbed
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


def test_progress_is_reported_and_leftovers_of_a_completed_build_are_removed(words, tmp_path):
    corpus, told = Pieces(), []
    build_store(corpus, words(3), tmp_path / "store", progress=lambda *done: told.append(done))
    assert told == [(1, 3, 3), (2, 3, 6), (3, 3, 9)]
    (tmp_path / "store.building").mkdir()
    (tmp_path / "store.building" / "lock").write_bytes(b"")
    build_store(corpus, words(3), tmp_path / "store")
    assert corpus.times_read == [1, 1, 1]
    assert {path.name for path in tmp_path.iterdir()} == {"store"}


def test_an_unfinished_store_of_a_different_corpus_is_not_touched(words, tmp_path):
    corpus = Pieces()
    corpus.broken = {1}
    with pytest.raises(ValueError, match="piece 1 is broken"):
        build_store(corpus, words(3), tmp_path / "store")
    before = sorted(path.name for path in (tmp_path / "store.building").iterdir())
    corpus.version = "second"
    with pytest.raises(ValueError, match="unfinished.*changed since.*Delete"):
        build_store(corpus, words(3), tmp_path / "store")
    assert sorted(path.name for path in (tmp_path / "store.building").iterdir()) == before


def test_text_that_changes_while_it_is_read_is_rejected(words, tmp_path):
    corpus = Pieces()

    def change(num_done, *_):
        corpus.version = f"after {num_done}"

    with pytest.raises(ValueError, match="changed while it was read.*store.building"):
        build_store(corpus, words(3), tmp_path / "store", progress=change)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("num_writes", "num_finished"), [(5, 1), (12, 3)])
def test_finished_shards_survive_a_full_disk(
    undisturbed, words, tmp_path, monkeypatch, num_writes, num_finished
):
    room = iter(range(num_writes))  # three writes make a shard

    def put_if_there_is_room(file, array):
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        file.write(array.tobytes())

    corpus = Pieces()
    with monkeypatch.context() as patch:
        patch.setattr(shards, "put", put_if_there_is_room)
        with pytest.raises(OSError, match="No space left"):
            build_store(corpus, words(3), tmp_path / "store")
    assert {path.name for path in tmp_path.iterdir()} == {"store.building"}
    before = list(corpus.times_read)
    store = build_store(corpus, words(3), tmp_path / "store")
    assert corpus.times_read[:num_finished] == before[:num_finished] == [1] * num_finished
    assert contents(store.directory) == undisturbed


def test_two_processes_cannot_build_the_same_store(undisturbed, words, tmp_path):
    corpus = Pieces()

    def begin_again(*_):
        with pytest.raises(BlockingIOError, match="Another process is building .*store"):
            build_store(corpus, words(3), tmp_path / "store")

    store = build_store(corpus, words(3), tmp_path / "store", progress=begin_again)
    assert contents(store.directory) == undisturbed


@pytest.mark.slow
def test_a_second_call_for_a_cached_store_waits_for_the_first_build(words, tmp_path):
    corpus = Pieces()
    reading, waiting = corpus.piece, threading.Event()

    def slow_piece(number):
        waiting.wait(0.2)
        yield from reading(number)

    corpus.piece = slow_piece
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(cached_store, corpus, words(3), tmp_path) for _ in range(2)]
        stores = [call.result() for call in calls]
    assert stores[0].directory == stores[1].directory
    assert corpus.times_read == [1, 1, 1]
    assert list(tmp_path.iterdir()) == [stores[0].directory]


def test_duplicate_documents_are_skipped_on_request(documents, words, tmp_path, monkeypatch):
    pieces = [[["w0 w1", "w2"], ["w3"], ["w0 w1", "w2"]], [["w3"], ["w0 w1 w2"]], [["w3"]]]
    corpus = documents(pieces)
    corpus.pieces = lambda: iter(pieces)
    for at_once in (1, 2, 100):
        monkeypatch.setattr(shards, "_HASHES_AT_ONCE", at_once)
        store = build_store(corpus, words(4), tmp_path / str(at_once), deduplicate=True)
        sentences = [[ids.tolist() for ids in store.document(n)] for n in range(3)]
        assert sentences == [[[5, 6], [7]], [[8]], [[5, 6, 7]]]
        assert (store.num_documents, store.num_sentences, store.num_tokens) == (3, 4, 7)
        assert store.num_duplicates == 3
        store.verify()
    everything = build_store(corpus, words(4), tmp_path / "everything")
    assert (everything.num_documents, everything.num_duplicates) == (6, None)
    with pytest.raises(ValueError, match="Received: .*deduplicate=True"):
        build_store(corpus, words(4), everything.directory, deduplicate=True)
