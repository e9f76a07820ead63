"""Near-duplicates: word n-grams, sketches, and which documents a store keeps."""

import hashlib
import itertools
import random
import string

import numpy as np
import pytest

from keras_bert_d2l.data.store import near_duplicates, partitions, sketches
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.data.store.sketches import BANDS, Sketcher, jaccard
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab.vocab import GOOGLE_SPECIALS, Vocab

LETTERS = Vocab(
    [*GOOGLE_SPECIALS, *string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase)]
)


def tokenized(texts, vocab=LETTERS):
    ragged = Tokenizer(vocab).tokenize(texts)
    return ragged.values.numpy(), ragged.row_lengths().numpy()


def word_ngrams(text):
    words = text.split()
    return {tuple(words[n : n + 5]) for n in range(max(len(words) - 4, 1))}


def exact(first, second):
    mine, others = word_ngrams(first), word_ngrams(second)
    return len(mine & others) / len(mine | others)


def random_text(draw, size):
    return " ".join("".join(draw.choices("abcdefgh", k=draw.randint(1, 4))) for _ in range(size))


def edited(text, draw, count):
    words = text.split()
    for place in draw.sample(range(len(words)), count):
        words[place] = "new"
    return " ".join(words)


def test_each_document_has_the_ngrams_of_its_words():
    texts = ["a bb ccc dd e f", "bb", "a bb ccc dd e", "bb bb bb bb bb bb bb", "z a bb ccc dd e"]
    hashes, counts = Sketcher(LETTERS).ngrams(*tokenized(texts))
    assert counts.tolist() == [2, 1, 1, 3, 2]
    found = np.split(hashes.tolist(), np.cumsum(counts)[:-1])
    expected = [
        [tuple(text.split()[n : n + 5]) for n in range(count)]
        for text, count in zip(texts, counts, strict=True)
    ]
    pairs = set(zip(itertools.chain(*found), itertools.chain(*expected), strict=True))
    assert len(pairs) == len(set(itertools.chain(*found))) == len(set(itertools.chain(*expected)))


def test_the_order_of_pieces_and_of_words_matters():
    sets = Sketcher(LETTERS).ngram_sets(*tokenized(["ab c", "ba c", "c ab", "a b c"]))
    assert len({tuple(some) for some in sets}) == 4


def test_the_similarity_is_that_of_word_ngrams_with_every_vocabulary():
    draw = random.Random(0)
    words = [f"{first}{second}" for first, second in itertools.product("abcd", "efgh")]
    texts = [" ".join(draw.choices(words, k=100))]
    texts.append(edited(texts[0], draw, 3))
    whole = Vocab([*GOOGLE_SPECIALS, *words, "new"])
    for vocab in (LETTERS, whole):
        first, second = Sketcher(vocab).ngram_sets(*tokenized(texts, vocab))
        assert jaccard(first, second) == exact(*texts)


def test_the_similarity_of_long_documents_is_estimated():
    draw = np.random.default_rng(0)
    values = np.sort(draw.integers(0, 2**63, 60_000, np.uint64))
    first, second = values[:50_000], values[10_000:]  # in sorted order: nothing at random
    shuffled = draw.permutation(values)
    sets = [
        np.sort(shuffled[some])[: sketches._MOST_NGRAMS]
        for some in (slice(0, 50_000), slice(10_000, None))
    ]
    assert jaccard(*sets) == pytest.approx(40 / 60, abs=0.03)
    assert jaccard(first[:100], second[:100]) == 0


@pytest.mark.slow
def test_a_sketch_does_not_depend_on_the_batch():
    draw = random.Random(0)
    texts = [random_text(draw, size) for size in (1, 2, 5, 30, 300)]
    together = Sketcher(LETTERS).bands(*tokenized(texts))
    alone = [Sketcher(LETTERS).bands(*tokenized([text])) for text in texts]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    assert together.shape == (5, BANDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "edits", "least", "most"), [(300, 6, 0.97, 1), (300, 60, 0, 0.05)]
)
def test_similar_documents_share_a_band_and_others_do_not(size, edits, least, most):
    draw = random.Random(0)
    texts = [random_text(draw, size) for _ in range(100)]
    copies = [edited(text, draw, edits) for text in texts]
    similarities = [exact(*pair) for pair in zip(texts, copies, strict=True)]
    mean = np.mean(similarities)
    assert mean > 0.8 if edits == 6 else mean < 0.3
    first, second = (Sketcher(LETTERS).bands(*tokenized(some)) for some in (texts, copies))
    assert least <= (first == second).any(axis=1).mean() <= most


@pytest.fixture(scope="module")
def planted():
    """Documents, and those whose similarity with an earlier one is at least 0.8."""
    draw = random.Random(1)
    originals = [random_text(draw, draw.randint(60, 240)) for _ in range(100)]
    copies = [edited(text, draw, draw.randint(1, 5)) for text in draw.choices(originals, k=100)]
    texts = [*originals, *copies]
    draw.shuffle(texts)
    sets = [word_ngrams(text) for text in texts]
    return texts, {
        n
        for n, mine in enumerate(sets)
        if any(len(mine & other) >= 0.8 * len(mine | other) for other in sets[:n])
    }


def kept(store, texts):
    hashes = set(store.document_hashes.tolist())
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
    return {n for n, one in enumerate(digests) if int.from_bytes(one[:8], "little") in hashes}


@pytest.mark.slow
def test_a_store_discards_what_an_exact_comparison_finds(planted, tmp_path):
    texts, expected = planted
    documents = [[text] for text in texts]
    store = build_store(documents, Tokenizer(LETTERS), tmp_path / "store", near_duplicates=0.8)
    discarded = set(range(len(texts))) - kept(store, texts)
    assert len(expected) > 40
    assert len(discarded & expected) >= 0.95 * len(expected)
    assert discarded <= expected
    assert store.discarded == {"near-duplicate": len(discarded)}


@pytest.mark.slow
def test_blocks_and_files_of_any_size_give_the_same_store(planted, tmp_path, monkeypatch):
    documents = [[text] for text in planted[0]]
    contents = []
    for entries, files, pairs, tokens in (
        (1 << 22, 512, 1 << 11, 1 << 22),
        (500, 512, 3, 1000),
        (500, 2, 7, 10_000),  # several levels of files
        (1, 3, 1, 1),
    ):
        monkeypatch.setattr(partitions, "ENTRIES_AT_ONCE", entries)
        monkeypatch.setattr(partitions, "_MOST_FILES", files)
        monkeypatch.setattr(near_duplicates, "_PAIRS_AT_ONCE", pairs)
        monkeypatch.setattr(near_duplicates, "_TOKENS_AT_ONCE", tokens)
        store = build_store(
            documents, Tokenizer(LETTERS), tmp_path / f"{entries}{files}", near_duplicates=0.8
        )
        contents.append({path.name: path.read_bytes() for path in store.directory.iterdir()})
    assert all(content == contents[0] for content in contents)


def test_equal_documents_count_as_duplicates_first(tmp_path):
    draw = random.Random(0)
    text = random_text(draw, 100)
    documents = [[text], [text], [edited(text, draw, 1)], [random_text(draw, 100)]]
    store = build_store(
        documents, Tokenizer(LETTERS), tmp_path / "both", deduplicate=True, near_duplicates=0.8
    )
    assert (store.num_documents, store.num_duplicates) == (2, 1)
    assert store.discarded == {"near-duplicate": 1}
    without = build_store(documents, Tokenizer(LETTERS), tmp_path / "near", near_duplicates=0.8)
    assert without.discarded == {"near-duplicate": 2}


@pytest.mark.parametrize("value", [0.3, 1.5, "0.8"])
def test_a_threshold_that_is_too_low_or_not_a_number_is_rejected(tmp_path, value):
    with pytest.raises(ValueError, match="`near_duplicates` must be"):
        build_store([["a b"]], Tokenizer(LETTERS), tmp_path / "store", near_duplicates=value)
