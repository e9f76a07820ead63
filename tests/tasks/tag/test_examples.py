import json

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.tasks.tag.examples import WordExamples

CONLLU = """\
# sent_id = first
# text = I don't.
1\tI\tI\tPRON\tPRP\tCase=Nom\t3\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t0\troot\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_

# sent_id = second
1\t#\t#\tSYM\tNN\t_\t0\troot\t_\t_

"""

CONLL_2003 = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
"""


def test_conllu_words_are_syntactic_words(write):
    path = write("dev.conllu", CONLLU)
    examples = read_examples("tag", path)
    assert isinstance(examples, WordExamples)
    assert examples.ids == ("first", "second")
    assert examples.words == (("I", "do", "n't", "."), ("#",))
    assert examples.labels == (("PRON", "AUX", "PART", "PUNCT"), ("SYM",))
    assert read_examples("tag", path, label="xpos").labels[0] == ("PRP", "VBP", "RB", ".")
    assert read_examples("tag", path, label=8).labels[0] == ("nsubj", "aux", "root", "punct")
    assert read_examples("tag", path, text="LEMMA").words[0] == ("I", "do", "not", ".")
    assert read_examples("tag", path, label="FEATS").labels[0] == ("Case=Nom", "_", "_", "_")


def test_conllu_is_detected_by_its_content_and_may_lack_tags(write):
    assert read_examples("tag", write("dev.txt", CONLLU)).words[0] == ("I", "do", "n't", ".")
    blank = "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n\n1\tb\t_\tX\t_\t_\t_\t_\t_\t_\n"
    examples = read_examples("tag", write("blank.conllu", blank))
    assert (examples.words, examples.dropped) == ((("b",),), {"word without a label": 1})
    assert read_examples("tag", write("blank.conllu", blank), label="XPOS").labels is None


def test_conll_may_have_any_number_of_columns(write):
    path = write("eng.train", CONLL_2003.replace("\n", "\r\n"))
    examples = read_examples("tag", path)
    assert examples.words == (("EU", "rejects", "German"), ("Peter",))
    assert examples.labels == (("B-ORG", "O", "B-MISC"), ("B-PER",))
    assert examples.ids == ("3", "7")
    assert read_examples("tag", path, label=2).labels[0] == ("NNP", "VBZ", "JJ")
    germeval = write("ner.tsv", "# n-tv.de\n1\tNew\u00a0York\tB-LOC\tO\n2\t#\tO\tO\n\n")
    examples = read_examples("tag", germeval, text=2, label=3)
    assert examples.words == (("New\u00a0York", "#"),)
    hashtags = read_examples("tag", write("wnut.conll", "#\tO\n@x\tO\n\n# id a1\td=x\ny\tB\n"))
    assert hashtags.words[0] == ("#", "@x")
    conll_2012 = "#begin document (bc); part 000\nbc 0 A NN *\n\n#end document\n"
    examples = read_examples("tag", write("a.conll", conll_2012), text=3, label=4)
    assert (examples.words, examples.labels) == ((("A",),), (("NN",),))
    assert read_examples("tag", write("words.txt", "A\ncrane\n\nflies\n")).labels is None
    spaced = write("words.tsv", "New York\tB-LOC\nis\tO\nfar\tO\n")  # a word may have a space
    assert read_examples("tag", spaced).words == (("New York", "is", "far"),)
    alone = read_examples("tag", write("a.conll", "a O\n" * 101))
    assert alone.notes == ("read 101 words as one sentence: no empty line ends one",)


def test_sentences_that_cannot_be_used_are_counted(write):
    examples = read_examples("tag", write("a.conll", "a B-X\nb O\n\nc\nd O\n\ne O\n"))
    assert examples.words == (("a", "b"), ("e",))
    assert examples.first_dropped == {"word without a label": "line 4, word 1"}
    words, tags = [["a", "b"], ["a", "b"], [], ["", "b"]], [[0, 1], [0], [], [0, 0]]
    examples = read_examples("tag", {"tokens": words, "ner_tags": tags})
    assert (examples.words, examples.labels) == ((("a", "b"),), (("0", "1"),))
    reasons = ("different numbers of words and labels", "no words", "empty word")
    assert examples.dropped == dict.fromkeys(reasons, 1)
    nested = {"tokens": [["a", ["b"]], ["c"]], "tags": [["X", "X"], ["X"]]}
    assert read_examples("tag", nested).dropped == {"list or object instead of a word": 1}
    ignored = read_examples("tag", {"words": [["a", "b"], ["c"]], "labels": [[1, -100], [0]]})
    assert (ignored.words, ignored.dropped) == ((("c",),), {"word without a label": 1})


def test_an_ideographic_space_may_be_a_word(write):
    words, tags = ("a", "\u3000", "b"), ("X", "Y", "X")
    lines = "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
    for data in (write("a.conll", lines), {"tokens": [words], "tags": [tags]}):
        examples = read_examples("tag", data)
        assert (examples.words, examples.labels) == ((words,), (tags,))
    alone = write("b.conll", "\u3000\tY\n\na\tX\n")
    assert read_examples("tag", alone).dropped == {"no words": 1}


@pytest.mark.parametrize(
    ("name", "content", "label", "labels"),
    [
        ("a.csv", "tokens,tags\n\"['EU' 'it']\",[3 0]\n['Ada'],[1]\n", "tags", "30 1"),
        ("a.csv", 'tokens\ttags\n"[""EU"", \'it\']"\t[3 0]\n[Ada]\t[1]\n', "tags", "30 1"),
        ("a.tsv", "tokens\ttags\n[EU, it]\t[B, O]\n{Ada}\t{B}\n", "tags", "BO B"),
        ("a.tsv", "sentence\ttags\nEU it\tB O\nAda\tB\n", "tags", "BO B"),
        ("a.csv", "Sentence #,Word,POS,Tag\nS 1,EU,X,B\n,it,V,O\nS 2,Ada,X,B\n", "Tag", "BO B"),
        ("a.txt", "word tag\nEU B\nit O\n\nAda B\n\n", "tag", "BO B"),
    ],
)
def test_words_may_be_in_a_table(write, name, content, label, labels):
    examples = read_examples("tag", write(name, content))
    assert examples.words == (("EU", "it"), ("Ada",))
    assert examples.labels == tuple(map(tuple, labels.split()))
    assert examples.columns["label"] == label


def test_words_may_be_in_the_rows_of_json_or_of_data_in_memory(write):
    table = {"word": ["Ada", "left", ".", "Bob", "ran"], "tag": ["PER", "O", "O", "PER", "O"]}
    columns = {"sentence": [1, 1, 1, 2, 2], **table}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path = write("rows.jsonl", "\n".join(map(json.dumps, rows)))
    for data in (columns, rows, path, [*rows[:3], dict.fromkeys(columns), *rows[3:]]):
        examples = read_examples("tag", data, text="word", id="sentence")
        assert examples.words == (("Ada", "left", "."), ("Bob", "ran"))
        assert examples.labels == (("PER", "O", "O"), ("PER", "O"))
        assert examples.ids == ("1", "2")
    assert read_examples("tag", rows[:3], text="word", id="sentence").words == (examples.words[0],)
    assert read_examples("tag", ["Hello", "Bye"], text="text").words == (("Hello",), ("Bye",))
    lists = {"sentence": ["Hello", "Bye"], "tags": [["UH"], ["UH"]]}
    assert read_examples("tag", lists).words == (("Hello",), ("Bye",))


@pytest.mark.parametrize("numbers", ["12121", "01010", "12\n34\n5", "12\n12\n1", "12\n121"])
def test_numbers_of_words_are_no_words_and_end_sentences(write, numbers):
    content = "".join("\n" if number == "\n" else f"{number} w O\n" for number in numbers)
    examples = read_examples("tag", write("a.conll", content))
    assert (examples.words, len({*examples.ids})) == ((("w", "w"), ("w", "w"), ("w",)), 3)
    assert examples.columns == {"text": "2", "label": "3"}


ODD = ["New\u00a0York", "100\u2009000", "[1]", "[]", "['a']", "[3 7]", "a b", "\u3000", "(x, y)"]


@pytest.mark.parametrize("odd", ODD)
def test_single_cells_do_not_decide_whether_rows_are_words(write, odd):
    words, tags = ["Ada", odd, ".", "Bob", "ran"], ["PER", "O", "O", "PER", "O"]
    ids = [1, 1, 1, 2, 2]
    columns = {"sentence_id": ids, "word": words, "tag": tags}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(ids, words, tags, strict=True)]

    def table(separator, quote, blank):
        lines = [f"{quote}{row['word']}{quote}{separator}{row['tag']}" for row in rows]
        return "\n".join([f"word{separator}tag", *lines[:3], blank, *lines[3:]])

    for data, end in (
        (columns, "where the id changes"),
        (write("a.jsonl", "\n".join(map(json.dumps, rows))), "where the id changes"),
        (write("a.csv", table(",", '"', "")), "at empty rows"),
        (write("b.csv", table(";", "", ";")), "at empty rows"),
        (write("a.tsv", table("\t", "", "")), "at empty rows"),
    ):
        examples = read_examples("tag", data)
        assert examples.words == (("Ada", odd, "."), ("Bob", "ran"))
        assert examples.labels == (("PER", "O", "O"), ("PER", "O"))
        assert examples.notes[-1] == f"read as one word per row; sentences end {end}"


def test_ids_that_differ_in_all_rows_mark_no_sentences(write):
    rows = "index,word,tag\n0,Ada,PER\n1,left,O\n\n2,Bob,PER\n"
    examples = read_examples("tag", write("a.csv", rows))
    assert examples.words == (("Ada", "left"), ("Bob",))
    texts = [{"id": n, "text": text} for n, text in enumerate(["Hi", "Bye", "Thanks"])]
    assert read_examples("tag", texts, text="text").words == (("Hi",), ("Bye",), ("Thanks",))
    spaced = {"text": ["yes", "[1] so", "play a song", "[1]"], "tags": ["O", "O O", "O O X", "O"]}
    examples = read_examples("tag", spaced, text="text")
    assert examples.words == (("yes",), ("[1]", "so"), ("play", "a", "song"), ("[1]",))


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t"), ("a.txt", "\t")])
@pytest.mark.parametrize("column", ["Sentence #", "sent_id"])
def test_an_id_may_stand_at_the_first_word_of_a_sentence_only(write, name, separator, column):
    rows = [f"{column},Word,Tag", "S 1,Ada,B-PER", ",left,O", "S 2,[1],O", ",ran,O", ""]
    content = "\n".join(rows).replace(",", separator)
    examples = read_examples("tag", write(name, content))
    assert examples.words == (("Ada", "left"), ("[1]", "ran"))
    assert examples.ids == ("S 1", "S 2")
