"""Normalization: google's rules as TensorFlow ops, compared with the same rules in Python."""

import pytest
import tensorflow as tf

from keras_bert_d2l.text.normalization import Normalization, split_words
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS


def normalize(texts, specials=GOOGLE_SPECIALS, lowercase=True, **options):
    return Normalization(specials, lowercase, **options)(tf.constant(texts))


def tensor_words(texts: list[str], lowercase: bool) -> list[list[str]]:
    words = split_words(normalize(texts, lowercase=lowercase))
    return [[word.decode() for word in row] for row in words.to_list()]


def test_text_is_cleaned_lowercased_stripped_and_split():
    text = " \tHeLLo!how  \n Are yoU? ÄÖ\u00ad\u200bÜ 東京x"
    assert tensor_words([text], True) == [
        ["hello", "!", "how", "are", "you", "?", "aou", "東", "京", "x"]
    ]
    assert tensor_words([text], False) == [
        ["HeLLo", "!", "how", "Are", "yoU", "?", "ÄÖÜ", "東", "京", "x"]
    ]


def test_a_final_sigma_is_lowercased_as_in_python(google):
    assert tensor_words(["ΟΔΥΣΣΕΥΣ. ΑΣ Σ"], True) == [google.words("ΟΔΥΣΣΕΥΣ. ΑΣ Σ", True)]


@pytest.mark.parametrize(
    "text", ["the \x01 cat\0", "\u2c2f Σ\0Σ", "Σ\0\u0899a", "aΣ\x05b\u0899 aΣ\ufffdb"]
)
def test_a_nul_in_a_text_with_rare_characters_is_removed(text, google):
    assert tensor_words([text, "the"], True) == [google.words(text, True), ["the"]]


def test_hugging_face_has_no_final_sigma():
    assert normalize(["ΑΣ ς"], compat="huggingface").numpy()[0].decode() == "ασ ς"


def test_hugging_face_removes_private_use_characters_and_google_keeps_them():
    texts = ["a\ue000b\U000f0000"]
    assert normalize(texts, compat="huggingface").numpy().tolist() == [b"ab"]
    assert normalize(texts).numpy()[0].decode() == texts[0]


@pytest.mark.parametrize("lowercase", [True, False])
def test_removing_characters_does_not_create_special_tokens(lowercase):
    texts = ["[MA\u200bSK] [\ue000SEP]"]
    for compat in ("google", "huggingface"):
        assert b"\x01" not in normalize(texts, lowercase=lowercase, compat=compat).numpy()[0]


def test_special_tokens_can_be_treated_as_ordinary_text():
    texts = ["a[MASK] \x01MASK\x01"]
    assert normalize(texts, split_special_tokens=True).numpy().tolist() == [b"a[mask] mask"]


@pytest.mark.parametrize("specials", [GOOGLE_SPECIALS, BOOK_SPECIALS], ids=["google", "book"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_special_tokens_become_separate_words(specials, lowercase):
    texts = [f"A{specials[4]}b{specials[0]}{specials[1]} {specials[4].swapcase()}"]
    words = split_words(normalize(texts, specials, lowercase))[0].numpy().tolist()
    marked = [word for word in words if b"\x01" in word]
    assert len(marked) == 3
    assert words[0].lower() == b"a"
    assert words[2] == b"b"
    assert normalize(["[UNK]"], specials).numpy()[0].strip() == b"\x01unk\x01"


@pytest.mark.long
def test_the_locale_of_the_process_does_not_matter(fresh_process):
    texts = ["TITLE Iİıi I\u0307 ÌÍĨĮ", "[MASK] İSTANBUL"]
    code = """
        import sys
        import tensorflow as tf
        from keras_bert_d2l.text.normalization import Normalization
        from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS
        texts = tf.constant(sys.argv[1:])
        print(Normalization(GOOGLE_SPECIALS)(texts).numpy().tolist())
        kept = Normalization(GOOGLE_SPECIALS, compat="huggingface", strip_accents=False)
        print(kept(texts).numpy().tolist())
    """
    stripped = normalize(texts).numpy().tolist()
    kept = normalize(texts, compat="huggingface", strip_accents=False).numpy().tolist()
    assert stripped[0].decode() == "title iiıi i iiii"
    assert kept[0].decode() == "title ii\u0307ıi i\u0307 ìíĩį"
    expected = f"{stripped}\n{kept}"
    for name in ("tr_TR.UTF-8", "lt_LT.UTF-8"):
        assert fresh_process(code, *texts, LC_ALL=name, LANG=name).strip() == str(expected)
