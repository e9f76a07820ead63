"""learn_vocab and extend_vocab: deterministic WordPiece vocabularies of the requested size."""

import random
from collections import Counter

import numpy as np
import pytest

from keras_bert_d2l.text import vocab_learning
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.text.vocab_learning import extend_vocab, learn_vocab
from tests.family import unigram

OLD = [["the cat sat on the mat", "the cats sat"] * 5]
NEW = [["the neuron fires", "the neurons fire", "a neuronal network fires", "the cat"] * 5]
STEMS = ("walk", "talk", "jump", "play", "look", "turn", "open", "clean")
ENDINGS = ("", "s", "ed", "ing", "er")


def documents(num_documents=30, seed=0):
    draw = random.Random(seed)
    return [
        [
            " ".join(draw.choice(STEMS) + draw.choice(ENDINGS) for _ in range(8)).capitalize() + "."
            for _ in range(6)
        ]
        for _ in range(num_documents)
    ]


def test_frequent_words_and_endings_are_pieces():
    vocab = learn_vocab(documents(), 65)
    assert vocab.tokens[:5] == GOOGLE_SPECIALS
    assert {"talk", "open", "##ing", "##ed", "##er"} <= set(vocab)
    assert set(STEMS) <= set(learn_vocab(documents(), 90))


def test_the_vocabulary_has_the_requested_size_or_less_if_the_text_is_small():
    for size in (50, 60, 70):
        assert len(learn_vocab(documents(), size)) == size
    vocab = learn_vocab([["the cat", "the dog the dog"]], 1000)
    assert 5 < len(vocab) < 100
    assert {"the", "dog"} <= set(vocab)
    assert "cat" not in vocab, "seen once"


def test_the_result_depends_neither_on_the_order_of_the_documents_nor_on_the_process():
    """Each process orders sets of strings in its own way."""
    corpus = documents()
    for some in (corpus, corpus[::-1]):
        assert learn_vocab(some, 70).fingerprint.startswith("7b0a5634912b4b4b")


@pytest.mark.long
def test_every_text_of_the_corpus_survives_tokenize_and_detokenize():
    sentences = [sentence for document in documents() for sentence in document]
    tokenizer = Tokenizer(learn_vocab([sentences], 70))
    ids = tokenizer.tokenize(sentences)
    assert tokenizer.vocab.unk_id not in ids.flat_values
    assert [text.decode() for text in tokenizer.detokenize(ids).numpy()] == [
        sentence.lower() for sentence in sentences
    ]


def test_special_tokens_in_the_text_are_not_learned():
    vocab = learn_vocab([["the [UNK] cat [MASK] the cat"] * 5], 100)
    assert not {"<", "[", "unk", "mask", "##nk"} & set(vocab)
    assert not [token for token in vocab if "\x01" in token]


def test_case_and_accents_are_kept_without_lowercase():
    corpus = [["Élan Élan élan"] * 5]
    assert "elan" in learn_vocab(corpus, 100)
    assert {"Élan", "élan"} <= set(learn_vocab(corpus, 100, lowercase=False))


def test_punctuation_and_chinese_characters_are_never_continuations():
    vocab = learn_vocab([["a, b. c! 東京 ab ba", "a, b. c! 東京 ab ba"]], 100)
    assert {",", ".", "!", "東", "京", "##a", "##b"} <= set(vocab)
    assert not {"##,", "##.", "##!", "##東"} & set(vocab)


def test_the_rarest_words_are_dropped_when_there_are_too_many(monkeypatch):
    corpus = [[*(f"word{i}" for i in range(200)), "the the the the"]] * 2
    monkeypatch.setattr(vocab_learning, "_MAX_COUNTED_WORDS", 50)
    monkeypatch.setattr(vocab_learning, "_BATCH_CHARACTERS", 1)
    vocab = learn_vocab(corpus, 500)
    assert "the" in vocab
    assert "word150" not in vocab


@pytest.mark.parametrize("least_count", [2, 5, 20])
def test_the_pieces_equal_those_of_tensorflow_text(tensorflow_text, monkeypatch, least_count):
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as original

    draw = random.Random(least_count)
    texts = ("".join(draw.choices("aeinst", k=draw.randint(1, 8))) for _ in range(3000))
    words = Counter(texts).most_common()
    parameters = original.Params(
        upper_thresh=None,
        lower_thresh=None,
        num_iterations=4,
        max_input_tokens=-1,
        max_token_length=50,
        max_unique_chars=1000,
        vocab_size=None,
        slack_ratio=None,
        include_joiner_token=True,
        joiner="##",
        reserved_tokens=[],
    )
    pieces = original.learn_with_thresh(words, least_count, parameters)
    expected = [piece for piece in pieces if len(piece.removeprefix("##")) > 1]
    monkeypatch.setattr(vocab_learning, "_LEAST_COUNT", least_count)
    assert vocab_learning._frequent_pieces(words, len(words)) == expected
    assert any(piece.startswith("##") for piece in expected)


def test_invalid_arguments_are_rejected(vocab):
    for size in (9, 8000.0, None):
        with pytest.raises(ValueError, match="integer of at least 10"):
            learn_vocab(documents(), size)
    with pytest.raises(ValueError, match="`lowercase` must be True or False"):
        learn_vocab(documents(), 60, lowercase="yes")
    with pytest.raises(ValueError, match="`vocab` must be a `Vocab`. Received: 'vocab.txt'"):
        extend_vocab("vocab.txt", NEW, 100)
    with pytest.raises(ValueError, match=f"at least {len(vocab)}"):
        extend_vocab(vocab, NEW, 5)
    with pytest.raises(ValueError, match="must be a vocabulary of WordPiece.*'unigram'"):
        extend_vocab(unigram(), NEW, 100)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        *((corpus, "no word") for corpus in ([], [["\u200b", "[UNK]"]])),
        *(
            (corpus, r"each a list of sentences. Received.*Corpus\.open")
            for corpus in ("a.txt", ["a sentence"], None, [["a", 3]], {"a": ["b"]})
        ),
    ],
)
def test_a_corpus_without_words_or_lists_of_sentences_is_rejected(corpus, message):
    with pytest.raises(ValueError, match=message):
        learn_vocab(corpus, 100)


@pytest.mark.slow
def test_a_vocabulary_learned_from_wikitext_fits_it(data_dir):
    corpus = Corpus.open(data_dir / "corpus" / "wikitext-2" / "wiki.valid.tokens.gz")
    vocab = learn_vocab(corpus, 2000)
    assert len(vocab) == 2000
    tokenizer = Tokenizer(vocab)
    document = next(iter(corpus))
    ids = tokenizer.tokenize(document).flat_values.numpy()
    num_words = sum(len(sentence.split()) for sentence in document)
    assert 1 < len(ids) / num_words < 1.7


@pytest.fixture(params=[GOOGLE_SPECIALS, BOOK_SPECIALS], ids=["google", "book"])
def vocab(request):
    return Vocab([*request.param, *learn_vocab(OLD, 60).tokens[5:]])


def test_old_tokens_keep_their_ids_and_new_words_are_added(vocab):
    extended = extend_vocab(vocab, NEW, len(vocab) + 60)
    assert extended.tokens[: len(vocab)] == vocab.tokens
    assert extend_vocab(vocab, [NEW[0][::-1]], len(vocab) + 60) == extended
    assert {"neuron", "fire", "f", "##k"} <= set(extended.tokens[len(vocab) :])
    before, after = (
        np.mean(Tokenizer(v).tokenize(NEW[0]).flat_values.numpy() == v.unk_id)
        for v in (vocab, extended)
    )
    assert before > 0.3
    assert after == 0


def test_an_extended_vocabulary_has_the_requested_size(vocab):
    for more in (0, 1, 7, 20):
        assert len(extend_vocab(vocab, NEW, len(vocab) + more)) == len(vocab) + more
    assert len(vocab) < len(extend_vocab(vocab, NEW, 10_000)) < 300


def test_text_that_is_already_covered_adds_nothing(vocab):
    assert extend_vocab(vocab, [["the cat"] * 3], 1000) == vocab
    assert extend_vocab(vocab, [], 1000) == vocab


def test_the_most_frequent_missing_characters_come_first_and_leave_room_for_pieces(vocab):
    rare = [f"{chr(code)}x" for code in range(0x430, 0x450)]  # Cyrillic, which follows Greek
    corpus = [[*rare, *rare, *["ωn neuron neurons"] * 70]]

    def added(number):
        return extend_vocab(vocab, corpus, len(vocab) + number).tokens[len(vocab) :]

    assert added(1) == ("##o",)
    assert added(7) == ("##o", "r", "##r", "u", "##u", "ω", "x")
    assert {"##o", "r", "ω", "x", "neuron", "neurons"} < set(added(30))
