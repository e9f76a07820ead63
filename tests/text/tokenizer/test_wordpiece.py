"""WordPieces: all characters of Unicode 14, tokens that are hard to reach, and offsets."""

import random
import unicodedata

import pytest
import tensorflow as tf

from keras_bert_d2l.text.normalization import Normalization
from keras_bert_d2l.text.tokenizer.framing import answer_spans
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.wordpiece import WordPieces
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab

pytestmark = pytest.mark.usefixtures("engine")

UNK = 1
FIRST_PRIVATE = 0xF0000  # of the large areas, of which a sample is enough


def cut(texts, tokens=(), **options):
    normalized = Normalization(GOOGLE_SPECIALS, **options)(tf.constant(texts))
    word_pieces = WordPieces(
        Vocab([*GOOGLE_SPECIALS, *tokens]), Normalization(GOOGLE_SPECIALS, **options)
    )
    return normalized, *word_pieces(normalized)


def words_of(texts, **options):
    """Split into words: without pieces in the vocabulary, each unknown token is a word."""
    normalized, _, starts, ends = cut(texts, **options)
    rows = zip(normalized.numpy(), starts.to_list(), ends.to_list(), strict=True)
    return [[text[s:e].decode() for s, e in zip(a, b, strict=True)] for text, a, b in rows]


def test_pieces_of_all_lengths_are_found_from_the_left_and_the_longest_wins():
    long = "ab" * 40
    tokens = ["a", "ab", "##b", "##ba", "##" + long, long, "#", "##"]
    [_, *_], ids, starts, _ = cut([f"abba a{long} {long}b aab #b abx"], tokens)
    first = len(GOOGLE_SPECIALS)
    places = [tokens.index(piece) for piece in ("ab", "##ba", "a", "##" + long, long, "##b")]
    expected = [*(first + place for place in places), UNK, first + tokens.index("#"), UNK, UNK]
    assert ids.to_list() == [expected]
    assert starts.to_list()[0][:6] == [0, 2, 5, 6, 87, 167]


@pytest.mark.parametrize(
    "step", [37, pytest.param(1, marks=pytest.mark.long)], ids=["sample", "all"]
)
@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_characters_of_unicode_14_are_split_as_in_googles_code(google, lowercase, step):
    if unicodedata.unidata_version != "14.0.0":
        pytest.skip(f"Unicode 14 is that of Python 3.11; here is {unicodedata.unidata_version}")
    codes = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    assert len(codes) == 282_229  # including 137,468 private-use characters
    texts = [f"a{chr(code)}b" for code in codes[::step] if code < FIRST_PRIVATE or code % 37 == 0]
    pairs = zip(texts, words_of(texts, lowercase=lowercase), strict=True)
    assert [text for text, found in pairs if found != google.words(text, lowercase)] == []


def test_each_piece_has_its_byte_offsets():
    _, ids, starts, ends = cut(["un\u00e9s [MASK]x"], ["un", "##e", "##s"])
    assert ids.to_list() == [[5, 6, 7, 4, UNK]]
    assert starts.to_list() == [[0, 2, 3, 6, 13]]
    assert ends.to_list() == [[2, 3, 4, 12, 14]]


@pytest.mark.parametrize("lowercase", [True, False])
def test_hugging_face_treats_characters_newer_than_unicode_8_as_letters(lowercase):
    newer = "\u2e43\u061d\U0002b820\U0001e944"
    tokens = ["a", "##b", *(f"##{character}" for character in newer), *newer]
    texts = [f"a{character}b" for character in newer]
    _, ids, _, _ = cut(texts, tokens, lowercase=lowercase, compat="huggingface")
    assert ids.to_list() == [[5, 7 + n, 6] for n in range(len(newer))]


def test_hugging_face_treats_punctuation_of_unicode_8_as_separate_words():
    text = "a\u166db\U000111c9"
    tokens = ["a", "\u166d", "b", "\U000111c9"]
    assert cut([text], tokens, compat="huggingface")[1].to_list() == [[5, 6, 7, 8]]
    assert cut([text], tokens)[1].to_list() == [[UNK]]


def test_private_use_tokens_are_unreachable_with_hugging_face():
    tokens = ["\ue000", "a\ue001", "##\ue002", "a"]
    assert cut(["\ue000 a\ue001 a\ue002 \u061d"], tokens, compat="huggingface")[1].to_list() == [
        [8, 8, UNK]
    ]
    assert cut(["\ue000 a\ue001 a\ue002"], tokens)[1].to_list() == [[5, 6, 8, 7]]


@pytest.mark.parametrize("compat", ["google", "huggingface"])
def test_white_space_in_the_vocabulary_is_never_part_of_a_word(compat):
    spaces = ["\u2028", "\u2029", "\u00a0", "\u3000", "##\u2028", "a\u2003b"]
    texts = ["a\u2028b", "a\u2029b", "a\u00a0b", "a\u3000b", "a##\u2028b", "a\u2003b"]
    ids = cut(texts, ["a", "b", "#", *spaces], compat=compat)[1].to_list()
    assert ids == [*[[5, 6]] * 4, [5, 7, 7, 6], [5, 6]]  # as from transformers


LETTERS = "abcdefghij"
TOKENS = [*GOOGLE_SPECIALS, *LETTERS, *(f"##{c}" for c in LETTERS), ".", "東", "ᄀ", "##ᅡ"]


@pytest.fixture(scope="module", params=["google", "huggingface"])
def tokenizer(request):
    return Tokenizer(Vocab(TOKENS), compat=request.param)


def slices(tokenizer, text):
    offsets = {name: rows.to_list()[0] for name, rows in tokenizer.with_offsets([text]).items()}
    return [text[s:e] for s, e in zip(offsets["starts"], offsets["ends"], strict=True)]


def test_offsets_give_the_characters_of_each_token(tokenizer):
    expected = {
        "ab. C": ["a", "b", ".", "C"],
        "ÀB É": ["À", "B", "É"],
        "A\u0300b\u0301 c": ["A", "b", "c"],
        "a\u00ad\u200bb\x00 c": ["a", "b", "c"],
        "\ufeffa 東b東": ["a", "東", "b", "東"],
        "a[MASK]b [SEP]": ["a", "[MASK]", "b", "[SEP]"],
        "[MASK][MASK]": ["[MASK]", "[MASK]"],
        "[MASK": ["[", "MASK"],
        "가 a": ["가", "가", "a"],
        "𝒜𝒜 a": ["𝒜𝒜", "a"],
        "a\x01b \x01MASK\x01": ["a", "b", "MASK"],
        "": [],
        " \t\n": [],
        "x" * 300 + " a": ["x" * 300, "a"],
    }
    offsets = tokenizer.with_offsets([*expected])
    for i, (text, pieces) in enumerate(expected.items()):
        places = (offsets[name][i].numpy().tolist() for name in ("starts", "ends"))
        assert [text[start:end] for start, end in zip(*places, strict=True)] == pieces


def test_offsets_of_special_tokens_of_the_book_and_of_the_user():
    tokenizer = Tokenizer(Vocab([*BOOK_SPECIALS, *LETTERS]))
    assert slices(tokenizer, "a<mask> b[UNK]") == ["a", "<mask>", "b", "[UNK]"]
    own = ["[E1]", "@", "<é>"]
    tokenizer = Tokenizer(Vocab([*TOKENS, *own]), special_tokens=own)
    text = "[E1]ÀB[E1] @@ [MASK]@<é>\u200b É<é>\x03a"
    pieces = ["[E1]", "À", "B", "[E1]", "@", "@", "[MASK]", "@", "<é>", "É", "<é>", "a"]
    assert slices(tokenizer, text) == pieces
    window = tokenizer.windows("a", text, max_len=20)
    spans = tf.stack([window["starts"], window["ends"]], axis=-1)[0, 3:15].numpy()
    assert [text[start:end] for start, end in spans] == pieces


@pytest.mark.slow
def test_offsets_do_not_depend_on_the_batch(tokenizer):
    draw = random.Random(0)
    alphabet = [*LETTERS, *"ÀÉ東가 .", "\u0301", "\u200b", "[MASK]", "𝒜", "  "]
    texts = ["".join(draw.choices(alphabet, k=draw.randrange(30))) for _ in range(50)]
    batch = tokenizer.with_offsets(texts)
    assert batch["tokens"].to_list() == tokenizer.tokenize(texts).to_list()
    for i, text in enumerate(texts[:4]):
        for name, rows in tokenizer.with_offsets(text).items():
            assert rows.to_list()[0] == batch[name][i].numpy().tolist()
            assert rows.dtype == tf.int32
    starts, ends = batch["starts"].to_list(), batch["ends"].to_list()
    slices = [
        text[start:end]
        for text, *pieces in zip(texts, starts, ends, strict=True)
        for start, end in zip(*pieces, strict=True)
    ]
    tokens = tokenizer.vocab.to_tokens(batch["tokens"].flat_values)
    for token, ids in zip(tokens, tokenizer.tokenize(slices).to_list(), strict=True):
        alone = [piece.removeprefix("##") for piece in tokenizer.vocab.to_tokens(ids)]
        assert token.removeprefix("##") in alone


def test_bytes_that_are_not_utf8_count_as_characters(tokenizer):
    texts = tf.constant([b"a\xff b", b"\xf0\x9f a"])
    offsets = tokenizer.with_offsets(texts)
    assert offsets["tokens"].to_list() == tokenizer.tokenize(texts).to_list()
    assert offsets["starts"].to_list() == [[0, 3], [0, 2]]


def test_ranges_of_characters_map_to_spans_of_tokens(tokenizer):
    text = "ab É 가 [MASK]\u200b."
    ranges = [*((i, i + 1) for i in range(len(text))), (0, 2), (1, 4), (3, 6), (4, 14)]
    tokens = [0, 1, None, 2, None, 3, None, *[5] * 6, None, 6]
    expected = [(token, 4 if token == 3 else token) for token in tokens]
    expected += [(0, 1), (1, 2), (2, 4), (3, 5)]
    windows = tokenizer.windows([""] * len(ranges), [text] * len(ranges), max_len=12)
    spans = answer_spans(windows, *zip(*ranges, strict=True)).numpy().tolist()
    found = [(first - 2, last - 2) if first else (None, None) for first, last in spans]
    for characters, one, other in zip(ranges, found, expected, strict=True):
        assert one == other, characters
