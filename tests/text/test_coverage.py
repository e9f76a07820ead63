"""Coverage: counts of pieces and unknown words."""

import pytest

from keras_bert_d2l.text import coverage
from keras_bert_d2l.text.coverage import Coverage, measure_coverage
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab

TOKENIZER = Tokenizer(Vocab([*GOOGLE_SPECIALS, "the", "cat", "##s", ".", "[", "]", "mask"]))


def test_words_pieces_and_unknown_words_are_counted():
    corpus = [["The cats dog.", "Dög the dog."], ["a"]]
    measured = measure_coverage(corpus, TOKENIZER)
    unknown = (("dog", 2), ("Dög", 1), ("a", 1))
    assert measured == Coverage(9, 10, 4, unknown)
    assert measured.unknown_rate == 4 / 9
    assert measured.pieces_per_word == 10 / 9
    figures = "9 words, 1.111 pieces per word, 44.444% unknown"
    assert str(measured) == f"{figures}: dog (2), Dög (1), a (1)"


def test_special_tokens_in_the_text_do_not_count_as_words():
    corpus = [["the [UNK] [MASK] cat"]]
    assert measure_coverage(corpus, TOKENIZER) == Coverage(2, 2, 0, ())
    split = Tokenizer(TOKENIZER.vocab, split_special_tokens=True)
    assert measure_coverage(corpus, split) == Coverage(8, 8, 1, (("UNK", 1),))
    own = Tokenizer(TOKENIZER.vocab, special_tokens=["mask"])
    assert measure_coverage([["the mask cat dog"]], own) == Coverage(3, 3, 1, (("dog", 1),))
    book = Tokenizer(Vocab([*BOOK_SPECIALS, "the", "cat"]))
    assert measure_coverage([["the [UNK] <unk> cat"]], book) == Coverage(2, 2, 0, ())


def test_the_rarest_unknown_words_are_dropped_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(coverage, "_MAX_COUNTED", 10)
    measured = measure_coverage([[" ".join(f"w{i}" for i in range(50)), "dog dog"]], TOKENIZER)
    assert measured.num_unknown == 52
    assert measured.most_frequent_unknown[0] == ("dog", 2)


def test_a_corpus_without_words_is_rejected():
    for corpus in ([], [["[UNK]"]]):
        with pytest.raises(ValueError, match="no word"):
            measure_coverage(corpus, TOKENIZER)
