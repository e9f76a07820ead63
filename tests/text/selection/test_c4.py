"""The rules of C4 (Raffel et al. 2020, section 2.2)."""

import pytest

from keras_bert_d2l.text.selection.c4 import clean

GOOD = [f"This is sentence number {n}." for n in range(5)]


def test_a_document_of_five_good_sentences_is_unchanged():
    assert clean(GOOD) == (GOOD, None)


@pytest.mark.parametrize(
    ("sentence", "is_kept"),
    [
        ("It ends with a full stop.", True),
        ("Does it end with a question mark?", True),
        ("It ends with an exclamation mark!", True),
        ('"It ends with a quotation mark"', True),
        ("\u201cIt ends with a curly one\u201d", True),
        ("Home | About | Contact us", False),
        ("It ends with a comma,", False),
        ("Two words.", False),
        ("Please enable JavaScript to continue.", False),
        ("By going on you accept our Privacy Policy.", False),
        ("This site uses cookies, of course.", False),
    ],
)
def test_only_sentences_that_look_like_prose_are_kept(sentence, is_kept):
    kept, reason = clean([*GOOD, sentence])
    assert kept == ([*GOOD, sentence] if is_kept else GOOD)
    assert reason is None


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (GOOD[:4], "few sentences"),
        ([*GOOD[:4], "Home"], "few sentences"),
        ([*GOOD, "Lorem Ipsum dolor sit amet."], "lorem ipsum"),
        ([*GOOD, "if (x) { return y; }"], "curly bracket"),
    ],
)
def test_documents_without_enough_prose_are_discarded(document, reason):
    assert clean(document)[1] == f"C4: {reason}"


def test_citation_marks_are_removed():
    text = ["The sky is blue.[1] It is[citation needed] wide.", *GOOD]
    assert clean(text)[0][0] == "The sky is blue. It is wide."
