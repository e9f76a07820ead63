"""Byte-level BPE: words, merges, added tokens, offsets and texts, by the rules of GPT-2."""

import itertools
import json
import pickle
import random

import keras
import pytest
import tensorflow as tf

from keras_bert_d2l.text.definition import BYTES, from_json
from keras_bert_d2l.text.tokenizer.byte_pairs import WORD_END, mark_words
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.text.word_patterns import GPT2, pattern_of
from tests.nightly import nightly_except
from tests.text.tokenizer.byte_level import roberta_fields

pytestmark = pytest.mark.usefixtures("engine")


def tokenizer_of(fields):
    return Tokenizer(Vocab(*from_json(fields)))


@pytest.fixture(scope="module")
def roberta():
    return tokenizer_of(roberta_fields())


@pytest.fixture(scope="module")
def with_nfc():
    """Return a tokenizer like that of ModernBERT: NFC, tokens of spaces, offsets with spaces."""
    fields = roberta_fields(normalizer={"type": "NFC"})
    fields["added_tokens"].append({"id": 272, "content": "   ", "normalized": True})
    template = [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]
    end = {"SpecialToken": {"id": "</s>"}}
    fields["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [*template, end],
        "pair": [*template, end, {"Sequence": {"id": "B"}}, end],
    }
    return tokenizer_of(fields)


def tokens(tokenizer, text):
    return tokenizer.vocab.to_tokens(tokenizer.tokenize([text]).to_list()[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's they'll I'd we've", "It|'s| they|'ll| I|'d| we|'ve"),
        ("'s's'S !'s 're", "'s|'s|'|S| !'|s| '|re"),
        ("a  b\n\nc \n d  ", "a| | b|\n|\n|c| \n| d|  "),
        ("a\r\nb\u00a0c\u00a0\u00a0 d", "a|\r|\n|b|\u00a0|c|\u00a0\u00a0| d"),
        ("x2 2\u0968\u00bd. \u0416\u4e2d?!", "x|2| 2\u0968\u00bd|.| \u0416\u4e2d|?!"),
    ],
)
def test_texts_are_split_into_words_as_by_the_pattern_of_gpt_2(text, words):
    found = mark_words(tf.constant([text]), pattern_of(GPT2)).numpy()[0].split(WORD_END)
    assert [word.decode() for word in found if word] == words.split("|")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat sat", "t he Ġcat Ġ sat"),  # no merge joins "Ġ" and "sat"
        ("aaaaa caaat", "aa aa a Ġc aa at"),
        ("   in the", "ĠĠ Ġ in Ġthe"),
        ("\u0915", "à¤ ķ"),
        ("a<mask>in  <mask></s>", "a <mask> in <mask> </s>"),
        ("", ""),
    ],
)
def test_the_first_pair_of_the_merges_is_joined_first(roberta, text, expected):
    assert tokens(roberta, text) == expected.split()


def merged(word, merges):
    """Return the tokens of a word, one merge at a time."""
    symbols, ranks = [*word], {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    while pairs := [(ranks[p], n) for n, p in enumerate(itertools.pairwise(symbols)) if p in ranks]:
        _, place = min(pairs)
        symbols[place : place + 2] = ["".join(symbols[place : place + 2])]
    return symbols


@pytest.mark.slow
def test_long_words_have_the_tokens_of_short_ones():
    fields = roberta_fields()
    merges = [*fields["model"]["merges"], "aa a", "b c", "c b", "aaa bc", "cb aaa", "bc bc", "d bc"]
    tokens = [merge.replace(" ", "") for merge in merges]
    vocab = fields["model"]["vocab"]
    vocab |= {t: len(vocab) + n for n, t in enumerate(t for t in tokens if t not in vocab)}
    fields["model"]["merges"] = merges
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdt", k=size)) for size in (256, 257, 600, 2000)]
    words += ["a" * 1000, "x" + "a" * 777 + words[2] + "a" * 500, "bc" * 400]
    tokenizer = tokenizer_of(fields)
    found = tokenizer.tokenize(words).to_list()
    assert [tokenizer.vocab.to_tokens(ids) for ids in found] == [merged(w, merges) for w in words]


PUNCTUATION = {"type": "Punctuation", "behavior": "Isolated"}
BYTES_ONLY = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


STEPS = [
    (
        [{"type": "Whitespace"}, {"type": "ByteLevel"}, PUNCTUATION],  # as in RobBERT 2023
        "in (the)\u00a7 sat<mask>  cat",
        "Ġ in Ġ ( Ġthe Ġ ) Â § Ġ sat <mask> Ġcat",
    ),
    (
        [split({"Regex": GPT4}), BYTES_ONLY],
        "it'S  the\n\n  cat 1 5 15 aa!\n",
        "i t 'S Ġ Ġthe ĊĊ Ġ Ġcat Ġ 1 Ġ 5 Ġ 15 Ġ aa ! Ċ",
    ),
    ([{"type": "Digits", "individual_digits": True}, BYTES_ONLY], "in 15", "in Ġ 1 5"),
    ([{"type": "Digits", "individual_digits": False}, BYTES_ONLY], "in 15", "in Ġ 15"),
    ([split({"String": "<>"}, "Removed"), BYTES_ONLY], "<>in<><> the<>", "in Ġthe"),
    (
        [split({"Regex": r"[a-z]+|\p{N}"}, "Removed", invert=True), BYTES_ONLY],
        "in!the 12<mask>",
        "in t he 1 2 <mask>",
    ),
    (
        [{"type": "WhitespaceSplit"}, {**PUNCTUATION, "behavior": "Contiguous"}, BYTES_ONLY],
        "in?! the..  ",
        "in ? ! t he ..",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("number", nightly_except(range(1), range(len(STEPS))))
def test_steps_around_the_bytes_split_texts(number):
    steps, text, expected = STEPS[number]  # the tokens are those of tokenizers 0.23.3
    fields = roberta_fields(pre_tokenizer={"type": "Sequence", "pretokenizers": steps})
    vocab = fields["model"]["vocab"]
    more = ["1 5", ". .", "Ċ Ċ", "Ċ Ġ", "' S", "§ Ġ", "Â §"]
    vocab |= {merge.replace(" ", ""): len(vocab) + n for n, merge in enumerate(more)}
    fields["model"]["merges"] = [*fields["model"]["merges"], *more]
    tokenizer = tokenizer_of(fields)
    found = {name: rows.to_list()[0] for name, rows in tokenizer.with_offsets([text]).items()}
    assert tokenizer.vocab.to_tokens(found["tokens"]) == expected.split()
    assert tokens(tokenizer, text) == expected.split()
    for token, start, end in zip(expected.split(), found["starts"], found["ends"], strict=True):
        assert token in text[start:end] or not token.isascii()


@pytest.mark.parametrize(
    "pattern", [r"\d+", "a(?=b)", "a++", "a*", "(", r" ?\w+|\s+(?!\S)|\s+", r"\p{Lu}"]
)
def test_other_patterns_are_named(pattern):
    steps = {"type": "Sequence", "pretokenizers": [split({"Regex": pattern}), BYTES_ONLY]}
    with pytest.raises(
        ValueError, match=r"not supported: pre_tokenizer=.* \((the pattern|miss).*\)"
    ):
        Vocab(*from_json(roberta_fields(pre_tokenizer=steps)))


@pytest.mark.slow
def test_all_added_tokens_may_be_normalized_and_there_may_be_none():
    fields = roberta_fields()
    normalized = [{**entry, "normalized": True} for entry in fields["added_tokens"]]
    tokenizer = tokenizer_of(fields | {"added_tokens": normalized})  # as in the file of RoBERTa
    assert tokens(tokenizer, "in  <mask></s>") == ["in", "<mask>", "</s>"]
    del fields["added_tokens"]
    assert tokens(tokenizer_of(fields), "in</s>") == ["in", *"</s>"]


@pytest.mark.slow
def test_tokens_may_be_long_and_bytes_that_no_text_has_may_be_missing():
    fields = roberta_fields()
    vocab = [t for t in fields["model"]["vocab"] if t not in {BYTES[n] for n in (192, 193, 255)}]
    vocab = {token: number for number, token in enumerate([*vocab, "a" * 512])}
    fields["added_tokens"][-1]["id"] = vocab["<mask>"]
    fields["model"]["vocab"] = vocab
    assert tokens(tokenizer_of(fields), "aa\u00e9<mask>") == ["aa", "Ã", "©", "<mask>"]
    fields["model"]["vocab"] = {"bb" if t == "b" else t: n for t, n in vocab.items()}
    with pytest.raises(ValueError, match=r"vocab without tokens for the bytes \[98\]"):
        Vocab(*from_json(fields))


@pytest.mark.slow
def test_offsets_exclude_spaces_and_count_characters(roberta):
    found = roberta.with_offsets(["\U0001f600 the  <mask>", "\u00e9"])
    assert found["starts"].to_list() == [[0, 0, 0, 0, 2, 7], [0, 0]]
    assert found["ends"].to_list() == [[1, 1, 1, 1, 5, 13], [1, 1]]


@pytest.mark.long
def test_normalized_texts_have_the_offsets_of_the_original(with_nfc):
    text = "e\u0301 \u212b    \u1112\u1161\u11abx"
    found = with_nfc.with_offsets([text])
    spans = list(zip(found["starts"].to_list()[0], found["ends"].to_list()[0], strict=True))
    # as from tokenizers 0.23.3
    expected = [(0, 1), (0, 1), (2, 3), (3, 4), (3, 4), (4, 7), (7, 8), *[(8, 9)] * 3, (11, 12)]
    assert spans == expected
    assert with_nfc.detokenize(found["tokens"]).numpy()[0].decode() == "\u00e9 \u00c5    \ud55cx"


@pytest.mark.slow
def test_pairs_have_the_separators_of_the_post_processor(roberta):
    number = roberta.vocab["Ġthe"]
    row = roberta([" the"], [" the"])["tokens"].numpy().tolist()
    assert row == [[0, number, 2, 2, number, 2]]


@pytest.mark.slow
def test_words_that_are_split_already_have_spaces_before_them(roberta):
    words = roberta.tokenize_words([["the", "cat", "</s>", "<mask>", "the"]])
    expected = [["t", "he"], ["Ġcat"], ["</s>"], ["<mask>"], ["Ġthe"]]
    assert roberta.vocab.to_tokens(words) == expected


@pytest.mark.slow
def test_texts_come_back_with_their_bytes(roberta):
    texts = ["the cat\n sat\x00 \U0001f600 \u0915", "<mask>in", ""]
    ids = roberta(texts)["tokens"]
    assert [text.decode() for text in roberta.detokenize(ids).numpy()] == texts


@pytest.mark.slow
def test_bytes_that_are_not_utf_8_count_as_the_replacement_character(roberta):
    assert roberta.tokenize(tf.constant([b"a\xff"])).to_list() == (
        roberta.tokenize(["a\ufffd"]).to_list()
    )


@pytest.mark.slow
def test_a_file_and_a_configuration_have_the_same_tokenizer(roberta, tmp_path):
    roberta.vocab.to_file(tmp_path / "tokenizer.json")
    assert Vocab.from_file(tmp_path / "tokenizer.json") == roberta.vocab
    configured = Tokenizer.from_config(json.loads(json.dumps(roberta.get_config())))
    for again in (configured, pickle.loads(pickle.dumps(roberta))):
        assert tokens(again, "the cat") == tokens(roberta, "the cat")
    assert roberta.options == {}
    with pytest.raises(ValueError, match=r"must end with \.json"):
        roberta.vocab.to_file(tmp_path / "vocab.txt")


def test_special_tokens_with_other_names_keep_their_roles(tmp_path):
    text = json.dumps(roberta_fields()).replace("<pad>", "[filler]")
    vocab = Vocab(*from_json(json.loads(text), ["[filler]", None, None, None, None]))
    vocab.to_file(tmp_path / "tokenizer.json")
    assert Vocab.from_file(tmp_path / "tokenizer.json").special_tokens[0] == "[filler]"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder": None}, "decoder=None"),
        ({"post_processor": None}, "post_processor=None"),
        ({"normalizer": {"type": "Nmt"}}, "normalizer="),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "model.unk_token=None, .*decoder="),
    ],
)
def test_parts_of_a_definition_that_are_not_supported_are_named(changes, message):
    with pytest.raises(ValueError, match=f"not supported: .*{message}"):
        tokenizer_of(roberta_fields(**changes))


def test_options_of_wordpiece_are_refused(roberta):
    with pytest.raises(ValueError, match="`lowercase` is an option of WordPiece"):
        Tokenizer(roberta.vocab, lowercase=False)


@pytest.mark.parametrize(
    "change",
    [
        {"added_tokens": [{"content": "<s>", "id": 9}]},
        {"model": {"type": "BPE", "vocab": {"a": 1}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}},
        {"model": 3},
        {"model": {"type": "WordPiece", "vocab": {"a": 0}}},
    ],
)
def test_damaged_files_are_errors(change, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(roberta_fields(**change)))
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        Vocab.from_file(path)


def test_the_tokenizer_works_after_the_session_is_cleared(roberta):
    before = tokens(roberta, "hug pugs")
    keras.utils.clear_session()
    assert tokens(roberta, "hug pugs") == before
