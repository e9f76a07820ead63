"""learn_vocab: deterministic WordPiece vocabularies of the requested size."""

import json
import random
from collections import Counter

import pytest
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as original

from keras_bert_d2l.text import vocab_learning
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS
from keras_bert_d2l.text.vocab_learning import learn_vocab

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


def test_the_vocabulary_has_the_requested_size():
    for size in (50, 60, 70):
        assert len(learn_vocab(documents(), size)) == size


def test_a_small_text_gives_fewer_tokens_than_requested():
    vocab = learn_vocab([["the cat", "the dog the dog"]], 1000)
    assert 5 < len(vocab) < 100
    assert {"the", "dog"} <= set(vocab)
    assert "cat" not in vocab, "seen once"


def test_the_order_of_the_documents_does_not_matter():
    corpus = documents()
    vocab = learn_vocab(corpus, 70)
    assert learn_vocab(corpus, 70) == vocab
    assert learn_vocab(corpus[::-1], 70) == vocab


@pytest.mark.slow
def test_every_text_of_the_corpus_survives_tokenize_and_detokenize():
    corpus = documents()
    tokenizer = Tokenizer(learn_vocab(corpus, 70))
    for document in corpus:
        assert tokenizer.vocab.unk_id not in tokenizer.tokenize(document).flat_values
        assert tokenizer.detokenize(tokenizer.tokenize(document)).numpy().tolist() == [
            sentence.lower().encode() for sentence in document
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


@pytest.mark.parametrize("least_count", [2, 3, 5, 20])
def test_the_pieces_equal_those_of_tensorflow_text(monkeypatch, least_count):
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


@pytest.mark.slow
def test_another_process_learns_the_same_bytes(tmp_path, fresh_process):
    corpus = documents()
    code = """
        import json, sys
        from keras_bert_d2l.text.vocab_learning import learn_vocab
        print(learn_vocab(json.load(open(sys.argv[1])), 70).fingerprint)
    """
    (tmp_path / "corpus.json").write_text(json.dumps(corpus))
    found = fresh_process(code, tmp_path / "corpus.json", PYTHONHASHSEED="1")  # ours is random
    assert found.strip() == learn_vocab(corpus, 70).fingerprint


@pytest.mark.parametrize("size", [9, 0, -1, 8000.0, True, "8000", None])
def test_a_size_that_is_too_small_is_rejected(size):
    with pytest.raises(ValueError, match="integer of at least 10"):
        learn_vocab(documents(), size)


@pytest.mark.parametrize("corpus", [[], [[]], [[""]], [["\u200b", "[UNK]"]]])
def test_a_corpus_without_words_is_rejected(corpus):
    with pytest.raises(ValueError, match="no word"):
        learn_vocab(corpus, 100)


@pytest.mark.parametrize(
    "corpus", ["corpus.txt", ["a sentence", "another"], 3, None, [3], [["a", 3]], {"a": ["b"]}]
)
def test_a_corpus_of_strings_is_rejected(corpus):
    with pytest.raises(ValueError, match=r"each a list of sentences. Received.*Corpus\.open"):
        learn_vocab(corpus, 100)


def test_lowercase_must_be_a_boolean():
    with pytest.raises(ValueError, match="`lowercase` must be True or False"):
        learn_vocab(documents(), 60, lowercase="yes")


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
