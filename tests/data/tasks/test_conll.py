import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

FOUR = "Mira NNP I-NP B-PER\nran VBD I-VP O\n", "Oslo NNP I-NP B-LOC\n"
THREE = "Mira NNP B-PER\nran VBD O\n", "Oslo NNP B-LOC\n"
TWO = "Mira B-PER\nran O\n", "Oslo B-LOC\n"


@pytest.mark.parametrize(
    ("comment", "sentences"),
    [
        *((comment, FOUR) for comment in ("# sent_id = 12", "# id = 5", "# a b c")),
        *((comment, THREE) for comment in ("#sent_id = 12", "# doc 3")),
        *((comment, TWO) for comment in ("# newdoc", "# 12", "#newdoc id12", "## heading")),
        ("# text = Mira ran .", TWO),
        ("# source = x\n# date = y\n# url = z", FOUR),
    ],
)
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_comment_is_no_word(write, comment, sentences, separator):
    content = "".join(f"{comment}\n{words.replace(' ', separator)}\n" for words in sentences)
    examples = read_examples("tag", write("a.conll", content))
    assert examples.words == (("Mira", "ran"), ("Oslo",))
    assert examples.labels == (("B-PER", "O"), ("B-LOC",))


@pytest.mark.parametrize(
    "line", ["# O", "# SYM", "# #", "# B-PRODUCT", "#lamp B-THING", "#win ht", "#1 O", "#id O"]
)
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_word_may_begin_with_the_sign_of_comments(write, line, separator):
    content = f"{line}\n{TWO[0]}\n".replace(" ", separator)
    examples = read_examples("tag", write("a.conll", content))
    word, label = line.split()
    assert (examples.words, examples.labels[0][0]) == (((word, "Mira", "ran"),), label)
    assert not any("comment" in note for note in examples.notes)


def test_comments_that_could_be_words_are_reported(write):
    examples = read_examples("tag", write("a.conll", f"# newdoc\n{TWO[0]}\n# newdoc\n{TWO[1]}"))
    assert examples.notes == ("read 2 lines such as '# newdoc' as comments",)
    assert "notes=" in repr(examples)


def test_conllu_plus_without_numbers_may_have_the_word_of_comments(write):
    content = "# global.columns = FORM UPOS\n# text = # ran\n#\tSYM\nran\tVERB\n"
    examples = read_examples("tag", write("a.conllup", content))
    assert (examples.words, examples.labels) == ((("#", "ran"),), (("SYM", "VERB"),))
