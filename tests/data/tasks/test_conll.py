import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

FOUR = "Mira NNP I-NP B-PER\nran VBD I-VP O\n", "Oslo NNP I-NP B-LOC\n"
TWO = "Mira B-PER\nran O\n", "Oslo B-LOC\n"


@pytest.mark.parametrize(
    ("comment", "sentences"),
    [
        ("# sent_id = 12", FOUR),
        ("# id = 5", FOUR),
        ("#sent_id = 12", ("Mira NNP B-PER\nran VBD O\n", "Oslo NNP B-LOC\n")),
        ("# newdoc", TWO),
        ("# 12", TWO),
        ("#newdoc id12", TWO),
        ("## heading", TWO),
        ("# doc 3", ("Mira NNP B-PER\nran VBD O\n", "Oslo NNP B-LOC\n")),
        ("# a b c", FOUR),
        ("# text = Mira ran .", TWO),
    ],
)
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_comment_is_no_word(write, comment, sentences, separator):
    content = "".join(f"{comment}\n{words.replace(' ', separator)}\n" for words in sentences)
    examples = read_examples("tag", write("a.conll", content))
    assert examples.words == (("Mira", "ran"), ("Oslo",))
    assert examples.labels == (("B-PER", "O"), ("B-LOC",))


@pytest.mark.parametrize(
    ("line", "word", "label"),
    [
        ("# O", "#", "O"),
        ("# SYM", "#", "SYM"),
        ("# #", "#", "#"),
        ("# B-PRODUCT", "#", "B-PRODUCT"),
        ("#lamp B-THING", "#lamp", "B-THING"),
        ("#win ht", "#win", "ht"),
        ("#1 O", "#1", "O"),
        ("#id O", "#id", "O"),
    ],
)
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_word_may_begin_with_the_sign_of_comments(write, line, word, label, separator):
    content = f"{line.replace(' ', separator)}\n{TWO[0].replace(' ', separator)}\n"
    examples = read_examples("tag", write("a.conll", content))
    assert examples.words == ((word, "Mira", "ran"),)
    assert examples.labels[0][0] == label
    assert not any("comment" in note for note in examples.notes)


def test_comments_that_could_be_words_are_reported(write):
    path = write("a.conll", f"# newdoc\n{TWO[0]}\n# newdoc\n{TWO[1]}")
    examples = read_examples("tag", path)
    assert examples.notes == ("read 2 lines such as '# newdoc' as comments",)
    assert "notes=" in repr(examples)
    commented = write("b.conll", f"# source = x\n# date = y\n# url = z\n\n{TWO[0]}")
    assert read_examples("tag", commented).words == (("Mira", "ran"),)


def test_conllu_plus_without_numbers_may_have_the_word_of_comments(write):
    content = "# global.columns = FORM UPOS\n# text = # ran\n#\tSYM\nran\tVERB\n"
    examples = read_examples("tag", write("a.conllup", content))
    assert (examples.words, examples.labels) == ((("#", "ran"),), (("SYM", "VERB"),))
