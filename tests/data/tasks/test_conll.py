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
        *((comment, TWO) for comment in ("# newdoc", "# 12", "#12", "## heading")),
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
    "line", ["# O", "#\tSYM", "#lamp B-THING", "#win\tht", "#1 O", "#1\tO", "#id O"]
)
def test_a_word_may_begin_with_the_sign_of_comments(write, line):
    content = f"{line}\n{TWO[0]}\n".replace(" ", "\t" if "\t" in line else " ")
    examples = read_examples("tag", write("a.conll", content))
    word, label = line.split()
    assert (examples.words, examples.labels[0][0]) == (((word, "Mira", "ran"),), label)


def test_the_first_line_of_conllu_plus_names_the_columns(write):
    content = "# global.columns = FORM UPOS\n# text = # ran\n#\tSYM\nran\tVERB\n"
    examples = read_examples("tag", write("a.conllup", content))
    assert (examples.words, examples.labels) == ((("#", "ran"),), (("SYM", "VERB"),))
