import json

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

TOXIC = '''\
id,comment_text,toxic,obscene,threat
a1,"you, ""sir""",1,1,0
a2,fine,0,0.0,false
a3,not scored,-1,-1,-1
a4,bad,True,0,0
'''


def test_a_line_may_contain_only_a_text(write):
    examples = read_examples("classify", write("lines.txt", "one text\n\nanother\n\n"))
    assert (examples.texts, examples.labels) == (("one text", "another"), None)
    assert examples.dropped == {"empty line": 1}


def test_json_labels_become_strings(write):
    rows = [json.dumps({"text": "a", "label": label}) for label in (10, 9, True, 2.0)]
    lines, whole = "\n".join(rows), f"[{','.join(rows)}]"
    for name, content in (("a.jsonl", lines), ("a.json", lines), ("b.json", whole)):
        examples = read_examples("classify", write(name, content))
        assert examples.labels == ("10", "9", "true", "2")
    assert examples.subset([0, 1]).label_names == ("9", "10")


@pytest.mark.parametrize(
    ("content", "separator", "labels"),
    [
        ("a\tjoy, fear\nb\t\nc\tfear\n", ",", (("joy", "fear"), (), ("fear",))),
        ("a\tx|y\n", "|", (("x", "y"),)),
        ("a\t[OTHER], [ASK]\n", ",", (("[OTHER]", "[ASK]"),)),
    ],
)
def test_a_text_may_have_several_labels(write, content, separator, labels):
    path = write("a.tsv", f"text\tlabels\n{content}")
    examples = read_examples("classify", path, multi_label=True, separator=separator)
    assert (examples.labels, examples.multi_label) == (labels, True)
    names = [name for one in labels for name in one]
    assert examples.label_names == tuple(sorted(set(names)))
    assert examples.label_counts() == {name: names.count(name) for name in names}


def test_subfolders_are_read_as_labels(write, tmp_path):
    for name in ("pos/0.txt", "neg/0.txt", "neg/1.txt"):
        write(f"reviews/{name}", f"It is {name}.\nReally.")
    write("reviews/unsup/0.txt", "?")
    write("reviews/neg/empty.txt", " \n")
    write("reviews/neg/counts.feat", "0")
    write("reviews/urls.txt", "nothing")
    for name in (".ipynb_checkpoints", "pos/.ipynb_checkpoints", "neg/._0.txt"):
        write(f"reviews/{name}{'' if name.endswith('txt') else '/0.txt'}", "hidden")
    examples = read_examples("classify", tmp_path / "reviews")
    assert examples.ids == ("neg/0.txt", "neg/1.txt", "pos/0.txt")
    assert examples.labels == ("neg", "neg", "pos")
    assert examples.texts[0] == "It is neg/0.txt.\nReally."
    assert examples.dropped == {"empty text": 1, "folder 'unsup' has no label": 1}
    before = examples.sha256
    write("reviews/neg/0.txt", "changed")
    assert read_examples("classify", tmp_path / "reviews").sha256 != before
    with pytest.raises(ValueError, match="is a folder. The task 'tag'"):
        read_examples("tag", tmp_path / "reviews")


def test_unusable_rows_are_counted_by_reason_with_the_first_line(write):
    rows = ["a\tb\tx", " \tb\tx", "a\t\tx", "a\tb\t", "", "a\tb", "a\tb\t-"]
    rows = ["premise\thypothesis\tlabel", *rows, "a\tb\tx\tmore", "a\tb\ty\t\t"]
    examples = read_examples("classify", write("pairs.tsv", "\n".join(rows)))
    assert examples.labels == ("x", "y")
    reasons = ("empty text", "empty second text", "empty label", "empty line", "too few columns")
    others = ("label '-' (annotators disagreed)", "more columns than the header")
    assert examples.dropped == dict.fromkeys((*reasons, *others), 1)
    assert examples.first_dropped["empty second text"] == "line 4"
    assert "1 dropped: too few columns (first: line 7)" in examples.dropped_in_words()
    examples = read_examples("regress", write("a.tsv", "text\tscore\na\t2.5\na\thigh\na\tnan\n"))
    assert (examples.labels, examples.dropped) == ((2.5,), {"score is not a finite number": 2})


def test_a_file_may_have_no_labels(write):
    assert read_examples("classify", write("a.tsv", "index\tsentence\n0\ta\n")).labels is None
    path = write("b.tsv", "text\tlabel\na\t\nb\t\n")
    assert read_examples("classify", path).labels is None
    unlooked = read_examples("classify", write("c.tsv", "text\tlabel\na\tx\nb\t\n"), labeled=False)
    assert (unlooked.texts, unlooked.has_labels) == (("a", "b"), False)


def test_label_columns_of_1_and_0_give_several_labels(write):
    path = write("toxic.csv", TOXIC)
    examples = read_examples("classify", path, label="toxic,obscene, Threat", multi_label=True)
    assert examples.texts == ('you, "sir"', "fine", "bad")
    assert examples.labels == (("toxic", "obscene"), (), ("toxic",))
    assert examples.dropped == {"a label column contains neither 1 nor 0": 1}
    assert examples.columns["label"] == "toxic, obscene, threat"
    bare = write("bare.tsv", "a\tyes\tNo\nb\t1.0\tTRUE\n")
    examples = read_examples("classify", bare, text=1, label="2,3", multi_label=True)
    assert examples.labels == (("2",), ("2", "3"))
    odd = write("odd.tsv", "text\tx,y\na\tp,q\n")
    assert read_examples("classify", odd, label="x,y", multi_label=True).labels == (("p", "q"),)


def test_nested_folders_are_rejected_and_a_folder_of_texts_has_no_labels(write, tmp_path):
    for name in ("train/pos/0.txt", "train/neg/0.txt", "test/pos/0.txt", "train/unsup/0.txt"):
        write(f"imdb/{name}", f"It is {name}.")
    with pytest.raises(ValueError, match="folders of folders. Pass one of test, train"):
        read_examples("classify", tmp_path / "imdb")
    whole = read_examples("classify", tmp_path / "imdb/train", labeled=False)
    assert whole.ids == ("neg/0.txt", "pos/0.txt", "unsup/0.txt")
    texts = read_examples("classify", tmp_path / "imdb/train/unsup", labeled=False)
    assert (texts.ids, texts.labels) == (("0.txt",), None)


@pytest.mark.parametrize(
    ("lines", "columns", "scores", "negatives"),
    [
        (["anchor\tpositive", "a b\tc d"], {"text": "anchor", "text_b": "positive"}, None, None),
        (["sentence1\tsentence2\tscore", "a\tb\t3"], {"label": "score"}, (3.0,), None),
        (["query\tpositive\tnegative", "a\tb\tc"], {"negative": "negative"}, None, ("c",)),
        (["query\tpositive\tnegative\tmargin", "a\tb\tc\t1.5"], {}, (1.5,), ("c",)),
        (["query\tpositive\tnegative\tscores", "a\tb\tc\t[9.5, 8]"], {}, (1.5,), ("c",)),
    ],
)
def test_pairs_have_scores_or_negatives_or_neither(lines, columns, scores, negatives, write):
    examples = read_examples("embed", write("pairs.tsv", "\n".join(lines)), labeled=True)
    assert examples.columns.items() >= columns.items()
    assert (examples.labels, examples.negatives) == (scores, negatives)


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (
            ["['it\\'s', 'b c']", '["it\'s"]', "['it\\'s' \"b c\"]"],
            (("it's", "b c"), ("it's",), ("it's", "b c")),
        ),
        (["[3, 7]", "[ 3\n 7]", "[1]"], (("3", "7"), ("3", "7"), ("1",))),
        (["[joy, fear]", "[joy]", ""], (("joy", "fear"), ("joy",), ())),
        (["{joy,fear}", "{'joy', 'fear'}", "('joy', 'fear')"], (("joy", "fear"),) * 3),
        (["frozenset({'joy', 'fear'})", "set()", "()"], (("joy", "fear"), (), ())),
        (["array(['joy'], dtype=object)", "[np.str_('joy')]", "[]"], (("joy",), ("joy",), ())),
        (["List(joy, fear (so))", "List(joy)", "List()"], (("joy", "fear (so)"), ("joy",), ())),
        (['c("joy", "fear")', "c(3, 7)", "joy"], (("joy", "fear"), ("3", "7"), ("joy",))),
        (["WrappedArray([ASK], joy)", "x", "Set(y)"], (("[ASK]", "joy"), ("x",), ("y",))),
        (["[joy, fear]", "joy", "[OTHER]"], (("joy", "fear"), ("joy",), ("OTHER",))),
        (["joy, fear", "joy", "[OTHER]"], (("joy", "fear"), ("joy",), ("[OTHER]",))),
        (["1.0", "4.5", "1"], (("1",), ("4.5",), ("1",))),
    ],
)
def test_a_cell_may_contain_a_list_of_labels(write, cells, labels):
    table = {"text": ["a"] * 3, "label": cells}
    rows = "".join(f'a,"{cell.replace(chr(34), 2 * chr(34))}"\n' for cell in cells)
    for data in (write("a.csv", f"text,label\n{rows}"), table):
        assert read_examples("classify", data, multi_label=True).labels == labels


@pytest.mark.parametrize("name", ["(0, 10)", "(0, 10]", "[1]", "[OTHER]", "[10-20]", "f(x, y)"])
def test_a_single_label_may_be_in_brackets_but_is_no_list(write, name):
    cells = [name, "x", "[x, y]"]
    rows = "".join(f"a\t{cell}\n" for cell in cells)
    for data in (write("a.tsv", f"text\tlabel\n{rows}"), {"text": ["a"] * 3, "label": cells}):
        examples = read_examples("classify", data)
        assert examples.labels == (name, "x")
        several = "several labels (see --multi-label; `multi_label` in Python)"
        assert examples.dropped == {several: 1}


@pytest.mark.parametrize("cell", ['{"joy": 1}', "{'joy': 1, 'fear': 0}", '[["joy"]]', '[{"a": 1}]'])
def test_an_object_or_a_list_of_lists_is_no_label(cell):
    table = {"text": ["a", "b"], "label": [cell, "joy"]}
    assert read_examples("classify", table, multi_label=True).labels == (("joy",),)
    assert read_examples("classify", table).labels == ("joy",)
