"""extend_vocab: adds tokens for new text and keeps the ids of the existing ones."""

import pytest

from keras_bert_d2l.text.coverage import measure_coverage
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.text.vocab_learning import extend_vocab, learn_vocab

OLD = [["the cat sat on the mat", "the cats sat"] * 5]
NEW = [["the neuron fires", "the neurons fire", "a neuronal network fires", "the cat"] * 5]


@pytest.fixture(params=[GOOGLE_SPECIALS, BOOK_SPECIALS], ids=["google", "book"])
def vocab(request):
    return Vocab([*request.param, *learn_vocab(OLD, 60).tokens[5:]])


def test_old_tokens_keep_their_ids_and_new_words_are_added(vocab):
    extended = extend_vocab(vocab, NEW, len(vocab) + 60)
    assert extended.tokens[: len(vocab)] == vocab.tokens
    assert {"neuron", "fire", "f", "##k"} <= set(extended.tokens[len(vocab) :])
    before, after = (measure_coverage(NEW, Tokenizer(v)) for v in (vocab, extended))
    assert before.unknown_rate > 0.5
    assert after.unknown_rate == 0


def test_the_vocabulary_has_the_requested_size(vocab):
    for more in (0, 1, 7, 20):
        assert len(extend_vocab(vocab, NEW, len(vocab) + more)) == len(vocab) + more
    assert len(vocab) < len(extend_vocab(vocab, NEW, 10_000)) < 300


def test_text_that_is_already_covered_adds_nothing(vocab):
    assert extend_vocab(vocab, [["the cat"] * 3], 1000) == vocab
    assert extend_vocab(vocab, [], 1000) == vocab


def test_the_order_of_the_documents_does_not_matter(vocab):
    corpus = [[sentence] for sentence in NEW[0]]
    extended = extend_vocab(vocab, corpus, len(vocab) + 30)
    assert extend_vocab(vocab, corpus[::-1], len(vocab) + 30) == extended


def test_the_most_frequent_missing_characters_come_first_and_leave_room_for_pieces(vocab):
    rare = [f"{chr(code)}x" for code in range(0x430, 0x450)]  # Cyrillic, which follows Greek
    corpus = [[*rare, *rare, *["ωn neuron neurons"] * 70]]

    def added(number):
        return extend_vocab(vocab, corpus, len(vocab) + number).tokens[len(vocab) :]

    assert added(1) == ("##o",)
    assert added(7) == ("##o", "r", "##r", "u", "##u", "ω", "x")
    assert {"##o", "r", "ω", "x", "neuron", "neurons"} < set(added(30))


def test_a_path_instead_of_a_vocabulary_is_rejected():
    with pytest.raises(ValueError, match="`vocab` must be a `Vocab`. Received: 'vocab.txt'"):
        extend_vocab("vocab.txt", NEW, 100)


@pytest.mark.parametrize("size", [5, 0, 100.0, True, None])
def test_a_smaller_size_is_rejected(vocab, size):
    with pytest.raises(ValueError, match=f"at least {len(vocab)}"):
        extend_vocab(vocab, NEW, size)
