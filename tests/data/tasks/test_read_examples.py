import gzip
import hashlib
import json
import lzma

import numpy as np
import pytest

from keras_bert_d2l.data.tasks.examples import Answer, QuestionExamples, TextExamples, WordExamples
from keras_bert_d2l.data.tasks.read_examples import read_examples

SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Crane",
            "paragraphs": [
                {
                    "context": "A crane is flying over the lake.",
                    "qas": [
                        {
                            "id": "q1",
                            "question": "What flies?",
                            "is_impossible": False,
                            "answers": [
                                {"text": "crane", "answer_start": 2},
                                {"text": "A crane", "answer_start": 0},
                            ],
                        },
                        {
                            "id": "q2",
                            "question": "Why?",
                            "is_impossible": True,
                            "answers": [],
                            "plausible_answers": [{"text": "lake", "answer_start": 27}],
                        },
                        {
                            "id": "q3",
                            "question": "Where?",
                            "answers": [{"text": "sea", "answer_start": 27}],
                        },
                        {"id": "q4", "question": " ", "answers": []},
                    ],
                }
            ],
        }
    ],
}

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


def test_tabs_separate_and_quotes_are_text_in_a_tsv(write):
    path = write("train.tsv", 'sentence\tlabel\n"Good, said he\t1\nbad "film"\t0\n')
    examples = read_examples("classify", path)
    assert isinstance(examples, TextExamples)
    assert examples.texts == ('"Good, said he', 'bad "film"')
    assert examples.labels == ("1", "0")
    assert examples.texts_b is None
    assert examples.ids == ("2", "3")  # lines
    assert examples.source == str(path)
    assert examples.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_quotes_quote_in_a_csv(write):
    content = 'label,text\r\npos,"He said ""yes"", and\r\nleft"\r\nneg,no\r\n'
    examples = read_examples("classify", write("train.csv", content))
    assert examples.texts == ('He said "yes", and\r\nleft', "no")
    assert examples.labels == ("pos", "neg")
    assert examples.ids == ("2", "4")


def test_a_csv_may_have_semicolons_or_tabs(write):
    semicolons = read_examples("classify", write("a.csv", "text;label\na, b;x\nc;y\n"))
    assert semicolons.texts == ("a, b", "c")
    tabs = 'main-news\t2012\t5.0\tA "man, is\tA man\nmain\t2013\t0.5\tx\ty\n'  # as STS-B's own
    scored = read_examples("regress", write("sts.csv", tabs), text=4, text_b=5, label=3)
    assert scored.texts == ('A "man, is', "x")
    assert scored.labels == (5.0, 0.5)
    ragged = write("ragged.csv", tabs + "main\t2014\t1.5\ty\tz\tlicence\thttps://a.b\n")
    assert read_examples("regress", ragged, text=4, text_b=5, label=3).texts_b == (
        "A man",
        "y",
        "z",
    )


def test_quotes_around_whole_cells_quote_between_tabs_too(write):
    rows = 'text\tlabel\n"He said ""no"", and\nleft"\tx\n"b, ""c"""\ty\nd\t""\n'
    examples = read_examples("classify", write("pandas.csv", rows))
    assert examples.texts == ('He said "no", and\nleft', 'b, "c"')
    assert (examples.ids, examples.dropped) == (("2", "4"), {"empty label": 1})
    bare = read_examples("classify", write("bare.csv", rows.partition("\n")[2]), text=1, label=2)
    assert bare.texts == examples.texts
    whole = write("all.csv", '"a, 1"\t"x"\r\n"b"\t"y"\r\n')  # all of them, as on request
    assert read_examples("classify", whole, text=1, label=2).texts == ("a, 1", "b")
    for odd in ('"e" f\tx\n', 'e "f"\tx\n', '"e\tx\nf"\ty\n', 'e\tx\n"f\ty\n'):
        examples = read_examples("classify", write("text.csv", 'text\tlabel\n"a"\ty\n' + odd))
        assert examples.texts[0] == '"a"'
        assert len(examples) == 1 + odd.count("\n")


def test_columns_are_found_by_their_usual_names(write):
    files = {
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\tfirst\tsecond\n": "1",  # MRPC
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t1\t2\tfirst\tsecond\t0\n": "0",
        "index\tquestion\tsentence\tlabel\n0\tfirst\tsecond\tentailment\n": "entailment",  # QNLI
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "1\tfirst\tsecond\t4.5\tNEUTRAL\n": "NEUTRAL",  # SICK
    }
    for content, label in files.items():
        examples = read_examples("classify", write("pairs.tsv", "\ufeff" + content))
        assert (examples.texts, examples.texts_b) == (("first",), ("second",))
        assert examples.labels == (label,)
    scores = read_examples("regress", write("sick.tsv", content))
    assert scores.task == "regress"
    assert scores.labels == (4.5,)
    assert scores.ids == ("1",)


def test_a_file_without_a_header_is_read_by_numbers(write):
    cola = write("cola.tsv", "gj04\t1\t\tOur friends won't buy it.\ngj04\t0\t*\tThey it won't.\n")
    examples = read_examples("classify", cola, text="4", label=2)
    assert examples.texts == ("Our friends won't buy it.", "They it won't.")
    assert examples.labels == ("1", "0")
    news = write("news.csv", '"3","Wall St. Bears","Short-sellers, again"\n"4","Net","Fast"\n')
    examples = read_examples("classify", news, text=2, text_b=3, label=1)
    assert examples.texts_b == ("Short-sellers, again", "Fast")
    with pytest.raises(ValueError, match="`text` must name a column.*2: '1'.*by their numbers"):
        read_examples("classify", cola)


def test_a_label_that_is_a_usual_name_makes_no_header(write):
    path = write("intents.tsv", "question\tWhat is it?\nstatement\tIt is.\n")
    assert read_examples("classify", path, text=2, label=1).labels == ("question", "statement")
    named = write("named.tsv", "review\tfeeling\ngood\tjoy\n")
    assert read_examples("classify", named, text=1, label=2, header=True).labels == ("joy",)
    assert read_examples("classify", named, text="review", label="Feeling").labels == ("joy",)
    assert read_examples("classify", named).texts == ("good",)


def test_a_line_may_be_a_text_and_nothing_more(write):
    examples = read_examples("classify", write("lines.txt", "one text\n\nanother\n\n"))
    assert examples.texts == ("one text", "another")
    assert examples.labels is None
    assert examples.dropped == {"empty line": 1}


def test_json_labels_are_names(write):
    lines = [
        {"text": "a", "label": 10},
        {"text": "b", "label": 9},
        {"text": "c", "label": True},
        {"text": "d", "label": 2.0},
    ]
    path = write("train.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    examples = read_examples("classify", path)
    assert examples.labels == ("10", "9", "true", "2")
    assert read_examples("classify", path).subset([0, 1]).label_names == ("9", "10")
    listed = read_examples("classify", write("list.json", json.dumps(lines)))
    assert listed.labels == examples.labels
    lines_as_json = read_examples("classify", write("lines.json", path.read_bytes()))
    assert lines_as_json.texts == examples.texts


def test_nan_is_a_missing_value_of_json(write):
    lines = '{"text": "a", "label": 1}\n{"text": NaN, "label": 0}\n{"text": "c", "label": NaN}\n'
    listed = f"[{lines.strip().replace(chr(10), ',')}]"
    for name, content in (("a.jsonl", lines), ("a.json", listed)):
        examples = read_examples("classify", write(name, content))
        assert (examples.texts, examples.labels) == (("a",), ("1",))
        assert examples.dropped == {"empty text": 1, "empty label": 1}
    scores = read_examples("regress", write("a.jsonl", lines + '{"text": "d", "label": -Infinity}'))
    assert scores.labels == (1.0,)
    assert scores.dropped["score is not a finite number"] == 1


def test_half_a_character_drops_its_example_and_no_more(write):
    good = {"text": "so \U0001f600", "label": "x", "id": "1"}
    reason = "broken character (half of a surrogate pair)"
    halves = ({**good, name: "so \ud83d"} for name in good)
    path = write("a.jsonl", "\n".join(map(json.dumps, [*halves, good])))
    for options in ({}, {"multi_label": True}):
        examples = read_examples("classify", path, **options)
        assert examples.texts == (good["text"],)
        assert examples.dropped == {reason: 3}
    good = {"tokens": ["a", "b"], "tags": ["O", "O"]}
    path = write(
        "b.jsonl", json.dumps({**good, "tokens": ["a", "\udc00"]}) + "\n" + json.dumps(good)
    )
    assert read_examples("tag", path).dropped == {reason: 1}
    good = {"question": "Who?", "context": "It is.", "answers": []}
    path = write("c.jsonl", json.dumps({**good, "context": "\ud83d"}) + "\n" + json.dumps(good))
    assert read_examples("answer", path).dropped == {
        "broken character (half of a surrogate pair)": 1
    }


def test_packed_files_are_unpacked(write):
    content = b"text\tlabel\na\tx\n"
    for name, packed in (
        ("a.tsv.gz", gzip.compress(content)),
        ("a.tsv.xz", lzma.compress(content)),
        ("A.TSV.GZ", gzip.compress(content)),
    ):
        assert read_examples("classify", write(name, packed)).texts == ("a",)


def test_a_text_may_have_several_labels(write):
    path = write("emotions.tsv", "text\tlabels\na\tjoy, fear\nb\t\nc\tfear\n")
    examples = read_examples("classify", path, multi_label=True)
    assert examples.labels == (("joy", "fear"), (), ("fear",))
    assert examples.multi_label
    assert examples.label_names == ("fear", "joy")
    assert examples.label_counts() == {"fear": 2, "joy": 1}
    lists = write("lists.jsonl", '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}')
    assert read_examples("classify", lists, multi_label=True).labels == (("x", "y"), ())
    other = write("bars.tsv", "text\tlabels\na\tx|y\n")
    assert read_examples("classify", other, multi_label=True, separator="|").labels == (("x", "y"),)


def test_folders_are_labels(write, tmp_path):
    for name in ("pos/0.txt", "neg/0.txt", "neg/1.txt"):
        write(f"reviews/{name}", f"It is {name}.\nReally.")
    write("reviews/unsup/0.txt", "?")
    write("reviews/neg/empty.txt", " \n")
    write("reviews/neg/counts.feat", "0")
    write("reviews/urls.txt", "nothing")
    examples = read_examples("classify", tmp_path / "reviews")
    assert examples.ids == ("neg/0.txt", "neg/1.txt", "pos/0.txt")
    assert examples.labels == ("neg", "neg", "pos")
    assert examples.texts[0] == "It is neg/0.txt.\nReally."
    assert examples.dropped == {"empty text": 1, "folder 'unsup' has no label": 1}
    before = examples.sha256
    write("reviews/neg/0.txt", "changed")
    assert read_examples("classify", tmp_path / "reviews").sha256 != before
    with pytest.raises(ValueError, match="Its inner folders are labels"):
        read_examples("tag", tmp_path / "reviews")


def test_what_cannot_be_used_is_counted_with_its_first_line(write):
    content = (
        "premise\thypothesis\tlabel\na\tb\tx\n \tb\tx\na\t\tx\na\tb\t\n\na\tb\n"
        "a\tb\t-\na\tb\tx\tmore\na\tb\ty\t\t\n"
    )
    examples = read_examples("classify", write("pairs.tsv", content))
    assert examples.labels == ("x", "y")
    assert examples.dropped == {
        "empty text": 1,
        "empty second text": 1,
        "empty label": 1,
        "empty line": 1,
        "too few columns": 1,
        "label '-' (annotators disagreed)": 1,
        "more columns than the header": 1,
    }
    assert examples.first_dropped["empty second text"] == "line 4"
    assert "1 dropped: too few columns (first: line 7)" in examples.dropped_in_words()


def test_a_score_that_is_no_number_is_counted(write):
    path = write("sts.tsv", "sentence1\tsentence2\tscore\na\tb\t2.5\na\tb\thigh\na\tb\tnan\n")
    examples = read_examples("regress", path)
    assert examples.labels == (2.5,)
    assert examples.dropped == {"score is not a number": 1, "score is not a finite number": 1}


def test_a_file_without_labels_is_for_predictions(write):
    assert read_examples("classify", write("a.tsv", "index\tsentence\n0\ta\n")).labels is None
    path = write("b.tsv", "text\tlabel\na\t\nb\t\n")
    assert read_examples("classify", path).labels is None
    unlooked = read_examples("classify", write("c.tsv", "text\tlabel\na\tx\nb\t\n"), labeled=False)
    assert (unlooked.texts, unlooked.labels) == (("a", "b"), None)
    assert not unlooked.has_labels


def test_a_missing_column_says_which_exist(write):
    path = write("a.tsv", "review\tstars\na\t1\n")
    with pytest.raises(ValueError, match="`label` must name.*'grade'.*are 'review', 'stars'"):
        read_examples("classify", path, label="grade")
    with pytest.raises(ValueError, match="columns are 'body_text', 'mark'"):
        read_examples("classify", write("b.jsonl", '{"body_text": "a", "mark": 1}\n'))
    with pytest.raises(ValueError, match="`label`.*label=9"):
        read_examples("classify", path, text="review", label=9)


def test_a_file_that_is_not_what_it_should_be_is_refused(write):
    bad_json = write("a.jsonl", '{"text": "a"}\n{"text": \n')
    with pytest.raises(ValueError, match="line 2: this is not JSON"):
        read_examples("classify", bad_json)
    with pytest.raises(ValueError, match="line 2: must be a JSON object"):
        read_examples("classify", write("b.jsonl", '{"text": "a"}\n[1]\n'))
    with pytest.raises(ValueError, match="line 2: this is not CSV"):
        read_examples("classify", write("c.csv", 'text,label\n"never closed,x\nb,y\n'))
    with pytest.raises(ValueError, match="must be UTF-8.*iconv"):
        read_examples("classify", write("d.tsv", b"text\tlabel\ncaf\xe9\tx\n"))
    with pytest.raises(ValueError, match="at least one usable example.*empty text"):
        read_examples("classify", write("e.tsv", "text\tlabel\n\tx\n"))
    with pytest.raises(ValueError, match="f.tsv' is empty"):
        read_examples("classify", write("f.tsv", "\n"))
    with pytest.raises(ValueError, match="f.conll' is empty"):
        read_examples("tag", write("f.conll", ""))
    with pytest.raises(ValueError, match="at least one usable example.*only has a header"):
        read_examples("classify", write("f.tsv", "text\tlabel\n"))
    with pytest.raises(FileNotFoundError):
        read_examples("classify", bad_json.with_name("none.tsv"))
    with pytest.raises(ValueError, match="`task` must be one of"):
        read_examples("cluster", bad_json)
    with pytest.raises(ValueError, match="for the task 'tag'"):
        read_examples("classify", write("g.conllu", CONLLU))


def test_conllu_gives_syntactic_words(write):
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
    with pytest.raises(ValueError, match="'POS'.*'ID', 'FORM', 'LEMMA', 'UPOS'"):
        read_examples("tag", path, label="POS")


def test_conllu_without_its_name_or_tags(write):
    assert read_examples("tag", write("dev.txt", CONLLU)).words[0] == ("I", "do", "n't", ".")
    blank = "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n\n1\tb\t_\tX\t_\t_\t_\t_\t_\t_\n"
    examples = read_examples("tag", write("blank.conllu", blank))
    assert (examples.words, examples.dropped) == ((("b",),), {"a word without a label": 1})
    assert read_examples("tag", write("blank.conllu", blank), label="XPOS").labels is None
    with pytest.raises(ValueError, match="line 1: a word must have 10 columns"):
        read_examples("tag", write("short.conllu", "1\ta\tb\n"))


def test_conll_has_any_number_of_columns(write):
    path = write("eng.train", CONLL_2003.replace("\n", "\r\n"))
    examples = read_examples("tag", path)
    assert examples.words == (("EU", "rejects", "German"), ("Peter",))
    assert examples.labels == (("B-ORG", "O", "B-MISC"), ("B-PER",))
    assert examples.ids == ("3", "7")
    assert read_examples("tag", path, label=2).labels[0] == ("NNP", "VBZ", "JJ")
    with pytest.raises(ValueError, match="`label`.*label=5.*has 4 columns"):
        read_examples("tag", path, label=5)
    germeval = write("ner.tsv", "# n-tv.de\n1\tNew\u00a0York\tB-LOC\tO\n2\t#\tO\tO\n\n")
    examples = read_examples("tag", germeval, text=2, label=3)
    assert examples.words == (("New\u00a0York", "#"),)
    hashtags = read_examples("tag", write("wnut.conll", "#\tO\n@x\tO\n\n# id a1\td=x\ny\tB\n"))
    assert hashtags.words[0] == ("#", "@x")
    conll_2012 = "#begin document (bc); part 000\nbc 0 A NN *\n\n#end document\n"
    examples = read_examples("tag", write("a.conll", conll_2012), text=3, label=4)
    assert (examples.words, examples.labels) == ((("A",),), (("NN",),))
    assert read_examples("tag", write("words.txt", "A\ncrane\n\nflies\n")).labels is None


def test_words_and_labels_of_different_counts_are_counted(write):
    content = "a B-X\nb O\n\nc\nd O\n\ne O\n"
    examples = read_examples("tag", write("a.conll", content))
    assert examples.words == (("a", "b"), ("e",))
    assert examples.dropped == {"a word without a label": 1}
    assert examples.first_dropped == {"a word without a label": "line 4"}
    lines = [
        {"tokens": ["a", "b"], "ner_tags": [0, 1]},
        {"tokens": ["a", "b"], "ner_tags": [0]},
        {"tokens": [], "ner_tags": []},
        {"tokens": ["", "b"], "ner_tags": [0, 0]},
    ]
    path = write("a.jsonl", "\n".join(map(json.dumps, lines)))
    examples = read_examples("tag", path)
    assert (examples.words, examples.labels) == ((("a", "b"),), (("0", "1"),))
    assert examples.dropped == {
        "different numbers of words and labels": 1,
        "no words": 1,
        "an empty word": 1,
    }


def test_a_word_may_be_a_space_of_another_script(write):
    lines = json.dumps({"tokens": ["a", "\u3000", "b"], "tags": ["X", "Y", "X"]})
    blank = json.dumps({"tokens": ["a", " \n", "b"], "tags": ["X", "Y", "X"]})
    of_conllu = "{0}\t{1}\t_\t{2}\t_\t_\t_\t_\t_\t_\n".format
    conllu = of_conllu(1, "a", "X") + of_conllu(2, "\u3000", "Y") + of_conllu(3, "b", "X")
    for name, content in (
        ("a.conll", "a\tX\n\u3000\tY\nb\tX\n"),
        ("a.conllu", conllu),
        ("a.jsonl", f"{lines}\n{blank}\n"),
    ):
        examples = read_examples("tag", write(name, content))
        assert examples.words == (("a", "\u3000", "b"),)
        assert examples.labels == (("X", "Y", "X"),)
    assert examples.dropped == {"an empty word": 1}
    alone = write("b.conll", "\u3000\tY\n\na\tX\n")
    assert read_examples("tag", alone).dropped == {"no words": 1}


def test_squad_with_and_without_answers(write):
    examples = read_examples("answer", write("dev.json", json.dumps(SQUAD)))
    assert isinstance(examples, QuestionExamples)
    assert examples.ids == ("q1", "q2")
    assert examples.answers == ((Answer("crane", 2), Answer("A crane", 0)), ())
    assert examples.titles == ("Crane", "Crane")
    assert examples.answers[0][0].end == 7
    assert examples.dropped == {
        "answer is not at its position in the context": 1,
        "empty question": 1,
    }
    assert "question q3" in examples.first_dropped.values()
    unlabeled = read_examples("answer", write("dev.json", json.dumps(SQUAD)), labeled=False)
    assert unlabeled.ids == ("q1", "q2", "q3")
    assert unlabeled.answers is None


def test_questions_in_lines_of_json(write):
    lines = [
        {
            "id": "a",
            "title": "t",
            "context": "It is so.",
            "question": "How?",
            "answers": {"text": ["so"], "answer_start": [6]},
        },
        {"context": "It is.", "question": "Why?", "answers": {"text": [], "answer_start": []}},
        {"context": "It is.", "question": "Who?"},
    ]
    examples = read_examples("answer", write("a.jsonl", "\n".join(map(json.dumps, lines))))
    assert examples.answers == ((Answer("so", 6),), ())
    assert examples.ids == ("a", "2")
    assert examples.dropped == {"no answers": 1}
    with pytest.raises(ValueError, match="`text_b` must name.*are 'question'"):
        read_examples("answer", write("b.jsonl", '{"question": "a"}'))


def test_a_squad_file_that_lacks_a_key_is_refused(write):
    broken = {"data": [{"paragraphs": [{"qas": []}]}]}
    with pytest.raises(ValueError, match="every paragraph.*'context'.*the keys qas"):
        read_examples("answer", write("a.json", json.dumps(broken)))


def test_examples_in_memory_check_themselves():
    examples = TextExamples(texts=["a", "b", "c"], labels=["x", "y", "x"])
    assert examples.ids == ("0", "1", "2")
    assert examples.subset([2, 0]).texts == ("c", "a")
    assert examples.subset([]).ids == ()
    assert examples.without_labels().labels is None
    with pytest.raises(ValueError, match="equal lengths.*2 texts, 1 labels"):
        TextExamples(texts=["a", "b"], labels=["x"])
    with pytest.raises(ValueError, match="2 words but 1 label in example '0'"):
        WordExamples(words=[["a", "b"]], labels=[["X"]])
    with pytest.raises(ValueError, match="must be at its position.*'c' at character 0"):
        QuestionExamples(questions=["a"], contexts=["b"], answers=[[Answer("c", 0)]])
    with pytest.raises(ValueError, match="`task` must be"):
        TextExamples(task="tag", texts=["a"])


def test_labels_in_memory_are_names_or_numbers():
    texts = ["a", "b"]
    assert TextExamples(task="regress", texts=texts, labels=np.float32([1, 2])).labels == (1, 2)
    assert TextExamples(texts=texts, labels=np.array(["x", "y"])).label_names == ("x", "y")
    for labels in ((0, 1), ("x", None), ("x", ("y",)), (True, False)):
        with pytest.raises(ValueError, match="'classify' must be a string.*Received: "):
            TextExamples(texts=texts, labels=labels)
    with pytest.raises(ValueError, match=r"must be a tuple of strings.*\(1, 2\) in example '1'"):
        TextExamples(texts=texts, labels=[("x",), (1, 2)])
    for labels in (("0.5", "1"), (0.5, None), (True, False)):
        with pytest.raises(ValueError, match="'regress' must be a number"):
            TextExamples(task="regress", texts=texts, labels=labels)
    with pytest.raises(ValueError, match=r"one name per word.*\[0, 3\] in example '0'"):
        WordExamples(words=[["a", "b"]], labels=[[0, 3]])


def test_real_files_are_read_whole(data_dir):
    train = read_examples("classify", data_dir / "sst2/train.tsv.gz")
    dev = read_examples("classify", data_dir / "sst2/dev.tsv.gz")
    assert (len(train), len(dev), train.label_names) == (67_349, 872, ("0", "1"))
    assert dict(train.dropped) == dict(dev.dropped) == {}
    snli = read_examples("classify", data_dir / "nli/snli_dev.jsonl.gz")
    assert len(snli) == 9_842
    assert snli.label_names == ("contradiction", "entailment", "neutral")
    pos = read_examples("tag", data_dir / "ud_ewt/en_ewt-ud-dev.conllu.gz")
    assert (len(pos), len(pos.label_names)) == (2_001, 17)
    assert sum(map(len, pos.words)) == 25_147
    squad = read_examples("answer", data_dir / "squad/dev-v1.1.json.gz")
    assert (len(squad), len(set(squad.titles)), dict(squad.dropped)) == (10_570, 48, {})


def test_lines_of_fasttext_begin_with_their_labels(write):
    path = write("cooking.train", "__label__sauce __label__cheese How much?\n\n__label__tea Why\n")
    examples = read_examples("classify", path, multi_label=True)
    assert (examples.texts, examples.ids) == (("How much?", "Why"), ("1", "3"))
    assert examples.labels == (("sauce", "cheese"), ("tea",))
    single = read_examples("classify", path)
    assert single.labels == ("tea",)
    assert single.dropped == {"several labels (see --multi-label; `multi_label` in Python)": 1}


@pytest.mark.parametrize(
    "cell",
    ["['it''s', 'b c']", '["it\'s", "b c"]', "['it\\'s' \"b c\"]", "[ 3\n 7]", "[3, 7]", "[]"],
)
def test_a_cell_may_hold_a_list_as_json_python_or_numpy_write_it(write, cell):
    quoted = cell.replace("''", "\\'").replace('"', '""')
    path = write("emotions.csv", f'text,labels\na,"{quoted}"\nb,"[OTHER]"\n')
    names = () if cell == "[]" else ("3", "7") if "3" in cell else ("it's", "b c")
    assert read_examples("classify", path, multi_label=True).labels == (names, ("[OTHER]",))
    assert read_examples("classify", path).labels == ("[OTHER]",)


def test_a_whole_number_is_a_label_without_its_point(write):
    examples = read_examples("classify", write("a.csv", "text,label\na,1.0\nb,0.0\nc,1\nd,4.5\n"))
    assert examples.labels == ("1", "0", "1", "4.5")


def test_what_separates_columns_is_not_sought_within_quotes(write):
    path = write("yelp.csv", '"5","good; and; cheap | nice | new"\n"2","not so"\n"5","a b"\n')
    assert read_examples("classify", path, text=2, label=1).labels == ("5", "2", "5")
    alone = write("alone.csv", 'text\n"hello, world"\nit is so; I think\nyes | no\n')
    assert read_examples("classify", alone, labeled=False).texts[1:] == (
        "it is so; I think",
        "yes | no",
    )
    within = write("within.csv", '"tab\there",pos\n"two\t\ttabs",neg\n')
    assert read_examples("classify", within, text=1, label=2).labels == ("pos", "neg")
    bars = read_examples("classify", write("bars.csv", "text|label\na, b|x\nc|y\n"))
    assert (bars.texts, bars.labels) == (("a, b", "c"), ("x", "y"))
    first = write("first.csv", "5,It is good; so; it is\n2,It is not\n5,It is, so\n")
    assert read_examples("classify", first, text=2, label=1).texts[:2] == (
        "It is good; so; it is",
        "It is not",
    )
    commas = write("commas.csv", "5;So, so, so\n2;No, no\n5;Yes, so, so, so\n")
    assert read_examples("classify", commas, text=2, label=1).labels == ("5", "2", "5")


def test_a_text_of_a_csv_may_be_long(write):
    text = "word " * 30_000
    examples = read_examples("classify", write("long.csv", f"text,label\n{text},x\nb,y\n"))
    assert examples.texts == (text, "b")


def test_json_that_holds_examples_deeper_is_refused(write):
    inner = {"text": "a", "label": "x"}
    for content in ({"train": [inner], "test": [inner]}, {"0": inner, "1": inner}):
        with pytest.raises(ValueError, match="one object of lists or objects, with the keys '"):
            read_examples("classify", write("a.json", json.dumps(content)))
    for name, content in (("c.json", "[]"), ("d.jsonl", "{}")):
        with pytest.raises(ValueError, match="must hold JSON objects with values"):
            read_examples("classify", write(name, content))
    with pytest.raises(ValueError, match="1 dropped: object instead of a label"):
        read_examples("classify", write("e.jsonl", '{"text": "a", "label": {"name": "x"}}'))
    columns = {"text": ["a", "b"], "label": ["x", "y"]}
    with pytest.raises(ValueError, match="1 dropped: list or object instead of a text"):
        read_examples("classify", write("b.json", json.dumps(columns)))


def test_words_may_stand_in_a_table(write):
    lists = "tokens,ner_tags\n\"['EU' 'rejects']\",[3 0]\n['Peter'],[1]\n"
    spaced = "sentence\ttags\nEU rejects\tB O\nPeter\tB\n"
    rows = "Sentence #,Word,POS,Tag\nS 1,EU,X,B\n,rejects,V,O\nS 2,Peter,X,B\n"
    lines = "word\ttag\nEU\tB\nrejects\tO\n\nPeter\tB\n"
    for name, content, label in (
        ("lists.csv", lists, "ner_tags"),
        ("spaced.tsv", spaced, "tags"),
        ("rows.csv", rows, "Tag"),
        ("lines.conll", lines, "tag"),
        ("spaces.txt", lines.replace("\t", " ") + "\n\n", "tag"),
    ):
        examples = read_examples("tag", write(name, content))
        assert examples.words == (("EU", "rejects"), ("Peter",))
        assert examples.labels in ((("3", "0"), ("1",)), (("B", "O"), ("B",)))
        assert examples.columns["label"] == label
    tabs = 'tokens\tner_tags\n"[""E\'U"", \'rejects\']"\t[3 0]\n'
    assert read_examples("tag", write("tabs.csv", tabs)).words == (("E'U", "rejects"),)
    assert read_examples("tag", write("rows.csv", rows), label="POS").labels == (("X", "V"), ("X",))
    with pytest.raises(ValueError, match="one word per row.*with --id"):
        read_examples("tag", write("flat.csv", "word,tag\nEU,B\nPeter,B\n"))
    with pytest.raises(ValueError, match="different numbers of words and labels"):
        read_examples("tag", write("texts.tsv", "sentence\tlabel\nnot so good\t0\nbad it is\t1\n"))


def test_a_column_that_counts_the_words_is_not_that_of_the_words(write):
    path = write("germeval.tsv", "# a\n1\tBerlin\tB-LOC\tO\n2\tist\tO\tO\n\n1\tJa\tO\tO\n")
    examples = read_examples("tag", path, label=3)
    assert examples.words == (("Berlin", "ist"), ("Ja",))
    assert examples.columns == {"text": "2", "label": "3"}
    numbers = write("numbers.tsv", "1\tO\n2\tO\n")
    assert read_examples("tag", numbers).words == (("1", "2"),)
