"""Sentences: splitting, and grouping into documents of bounded length."""

import random

import pytest

from keras_bert_d2l.text.corpus.sentences import gather_documents, split_sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "$3.50, e.g. for Dr. Smith.",
        "Mr. Brown went to Washington D.C. on Jan. 5 at 5 p.m. to see Mrs. Jones.",
        "The U.S. Army grew by 3.5 percent, i.e. too much.",
        "J. R. R. Tolkien wrote to Prof. Lewis.",
        "The result is a tf.Tensor of type np.float32.",
        "Is it 1.5.The same?",
    ],
)
def test_not_every_full_stop_ends_a_sentence(sentence):
    assert split_sentences(sentence) == [sentence]
    assert split_sentences(f"{sentence} Then she left.") == [sentence, "Then she left."]


def test_quotations_are_split_where_a_reader_would_split_them():
    assert split_sentences('"Stop!" cried Tom. “Who goes there?” No answer came.') == [
        '"Stop!" cried Tom.',
        "“Who goes there?”",
        "No answer came.",
    ]


def test_white_space_becomes_single_spaces():
    assert split_sentences(" One\n wrapped\tline. \u00a0 Two.\r\n") == ["One wrapped line.", "Two."]


def test_pieces_without_letters_are_dropped():
    assert split_sentences("* * *") == []
    assert split_sentences("") == []


def test_an_initial_before_a_no_break_space_is_harmless():
    assert split_sentences("Plan A\u00a0. Plan B\u202f.") == ["Plan A . Plan B ."]


def test_random_text_does_not_crash_the_splitter_or_lose_letters():
    draw = random.Random(0)
    parts = list("aB.!?…\"'“”()[]—,;:$% \u00a0\u202f\u200b\u0301é東。\U0001d49c0 \n\t")
    parts += ["e.g.", "Dr. ", "U.S.", "A", "...", "http://x.y", "\n\n"]
    for _ in range(3000):
        text = "".join(draw.choices(parts, k=draw.randrange(60)))
        letters = [c for c in "".join(split_sentences(text)) if c.isalnum()]
        assert letters == [c for c in text if c.isalnum()]


def test_documents_end_at_none():
    paragraphs = [["a", "b"], ["c"], None, None, [], ["d"], None]
    assert list(gather_documents(paragraphs)) == [["a", "b", "c"], ["d"]]


def test_a_long_document_ends_after_a_paragraph():
    paragraphs = [["s"] * 40] * 7
    assert [len(d) for d in gather_documents(paragraphs, 100)] == [120, 120, 40]


def test_no_document_has_more_than_a_thousand_sentences():
    assert [len(d) for d in gather_documents([["s"] * 2500, None, ["s"]])] == [1000, 1000, 500, 1]
