import csv
import hashlib
import io

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.texts import TextExamples


def test_tsv_columns_are_separated_by_tabs_and_quotes_are_text(write):
    path = write("train.tsv", 'sentence\tlabel\n"Good, said he\t1\nbad "film"\t0\n')
    examples = read_examples("classify", path)
    assert isinstance(examples, TextExamples)
    assert examples.texts == ('"Good, said he', 'bad "film"')
    assert (examples.labels, examples.texts_b) == (("1", "0"), None)
    assert examples.ids == ("2", "3")  # line numbers
    assert examples.source == str(path)
    assert examples.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


STS = 'main-news\t2012\t5.0\tA "man, is\tA man\nmain\t2013\t0.5\tx\ty\n'  # like STS-B's files
QUOTED = '"He said ""no"", and\nleft"\tx\n"b, ""c"""\ty\nd\t""\n'  # pandas
QUOTED_TEXTS = ('He said "no", and\nleft', 'b, "c"')
BARE, REVERSED = {"text": 1, "label": 2}, {"text": 2, "label": 1}


@pytest.mark.parametrize(
    ("content", "options", "texts"),
    [
        ('text\r\n"a ""b"", and\r\nc"\r\nno\r\n', {}, ('a "b", and\r\nc', "no")),
        ("text|label\na, b|x\nc|y\n", {}, ("a, b", "c")),
        (STS, {"text": 4, "label": 3}, ('A "man, is', "x")),
        (f"text\tlabel\n{QUOTED}", {}, QUOTED_TEXTS),
        ('"a, 1"\t"x"\r\n"b"\t"y"\r\n', BARE, ("a, 1", "b")),  # all cells are quoted
        ('text\tlabel\n"a"\ty\n"e" f\tx\n', {}, ('"a"', '"e" f')),
        ('text\tlabel\n"a"\ty\n"e\tx\nf"\ty\n', {}, ('"a"', '"e', 'f"')),
        ('"5","good; and; cheap | nice"\n"2","so"\n', REVERSED, ("good; and; cheap | nice", "so")),
        ('text\n"a, b"\nit is; so\nyes | no\n', {}, ("a, b", "it is; so", "yes | no")),
        ('"tab\there",pos\n"two\t\ttabs",neg\n', BARE, ("tab\there", "two\t\ttabs")),
        ("5,It is; so; it is\n2,Not\n5,It, so\n", REVERSED, ("It is; so; it is", "Not", "It")),
        (f"text,label\n{'word ' * 30_000},x\n", {}, ("word " * 30_000,)),
    ],
)
def test_the_text_of_a_csv_file_decides_its_delimiter_and_its_quotes(
    write, content, options, texts
):
    assert read_examples("classify", write("a.csv", content), **options).texts == texts


def test_nan_is_a_missing_value_in_json(write):
    lines = [
        '{"text": "a", "label": 1}',
        '{"text": NaN, "label": 0}',
        '{"text": "c", "label": NaN}',
    ]
    for name, content in (("a.jsonl", "\n".join(lines)), ("a.json", f"[{','.join(lines)}]")):
        examples = read_examples("classify", write(name, content))
        assert (examples.texts, examples.labels) == (("a",), ("1",))
        assert examples.dropped == {"empty text": 1, "empty label": 1}


def test_fasttext_lines_start_with_their_labels(write):
    path = write("cooking.train", "__label__sauce __label__cheese How much?\n\n__label__tea Why\n")
    examples = read_examples("classify", path, multi_label=True)
    assert (examples.texts, examples.ids) == (("How much?", "Why"), ("1", "3"))
    assert examples.labels == (("sauce", "cheese"), ("tea",))
    assert read_examples("classify", path).labels == ("tea",)


@pytest.mark.parametrize(("task", "name"), [("classify", "a.jsonl"), ("answer", "a.json")])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_that_is_nested_too_deeply_is_rejected_with_its_line(write, name, task, opening):
    content = '{"text": ' + opening * 100_000
    with pytest.raises(ValueError, match=f"{name}', line 1: .*nested too deeply"):
        read_examples(task, write(name, content))


def test_a_cell_of_nested_lists_is_text(write):
    deep = "[" * 100_000 + "1" + "]" * 100_000
    examples = read_examples("classify", write("a.tsv", f"text\tlabel\n{deep}\tx\ny\tz\n"))
    assert examples.texts == (deep, "y")
    rows = f"question\tcontext\tanswers\nwho\tit is\t{{{deep}}}\nwho\tit is\tit\n"
    assert len(read_examples("answer", write("b.tsv", rows))) == 1


TEXTS = ('He said "no".', "A line\nand\tanother.", "It is, so; so.", '"Ends not', 'A film"')
LABELS = ("x", "y", "x", "y", "x")


def as_table(separator, quoting, texts=TEXTS, header=("text", "label"), **options):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, quoting=quoting, lineterminator="\n", **options)
    writer.writerows([header, *zip(texts, LABELS, strict=False)])
    return out.getvalue()


ESCAPED = {"doublequote": False, "escapechar": "\\"}  # Spark


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt", "a"])
@pytest.mark.parametrize(
    ("quoting", "texts", "options"),
    [
        (csv.QUOTE_MINIMAL, TEXTS, {}),
        (csv.QUOTE_MINIMAL, TEXTS[:1], {}),
        (csv.QUOTE_MINIMAL, ('a "b"', "c", '"'), {}),
        (csv.QUOTE_ALL, TEXTS, {}),
        (csv.QUOTE_ALL, ("a", "b", "c"), {}),
        (csv.QUOTE_NONNUMERIC, ("a b", "b"), {}),
        (csv.QUOTE_MINIMAL, TEXTS, ESCAPED),
        (csv.QUOTE_ALL, ('a "b"', "c"), ESCAPED),
        (csv.QUOTE_NONE, ('He said "no".', "b"), {"escapechar": "\\"}),
    ],
)
def test_quotes_that_a_program_wrote_are_no_text(write, name, quoting, texts, options):
    content = as_table("\t", quoting, texts, **options)
    for end in ("\n", "\r\n"):
        given = tuple(text.replace("\n", end) for text in texts)
        examples = read_examples("classify", write(name, content.replace("\n", end)))
        assert (examples.texts, examples.labels) == (given, LABELS[: len(texts)])
        assert examples.dropped == {}
        if '"' in content:
            assert examples.notes == ("read quotes as marks around cells",)
    if name != "a":
        commas = as_table(",", quoting, texts, **options)
        assert read_examples("classify", write("b.csv", commas)).texts == tuple(texts)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt"])
@pytest.mark.parametrize(
    "texts",
    [
        ('"Begins so', "Next one", 'Ends so"', "Last"),
        ('He said "no".', "b"),
        ('"Good film"', "b", "c"),
        ('"Good," he said, "so."', "b"),
        ('"', "b", '"', "c"),
        ('5" wide', 'a ""b""', "c"),
        ('a \\"b\\"', '"c', "d"),
    ],
)
def test_quotes_in_a_text_are_text(write, name, texts):
    rows = "".join(f"{text}\t{label}\n" for text, label in zip(texts, LABELS, strict=False))
    examples = read_examples("classify", write(name, f"text\tlabel\n{rows}"))
    assert (examples.texts, examples.notes) == (texts, ("read quotes as text",))
    ragged = write(name, f"text\tlabel\n{rows}too\tmany\tcells\n")
    assert read_examples("classify", ragged).texts == texts
    words = "".join(f"{text}\t{label}\n\n" for text, label in zip(texts, LABELS, strict=False))
    assert read_examples("tag", write("a.conll", words)).words == tuple((text,) for text in texts)


def test_the_option_overrides_what_quotes_seem_to_be(write):
    path = write("a.tsv", 'text\tlabel\n"Good film"\tx\nb\ty\n')
    assert read_examples("classify", path).texts[0] == '"Good film"'
    assert read_examples("classify", path, quotes=True).texts[0] == "Good film"
    written = write("b.tsv", as_table("\t", csv.QUOTE_MINIMAL, TEXTS[:1]))
    assert read_examples("classify", written, quotes=False).texts == ('"He said ""no""."',)
    raw = write("c.csv", 'text,label\n"Good" film,x\n5" wide,y\n')
    assert read_examples("classify", raw, quotes=False).texts == ('"Good" film', '5" wide')
    with pytest.raises(ValueError, match="line 2: this is not CSV.*choose --no-quotes"):
        read_examples("classify", raw)


@pytest.mark.parametrize("separator", [";", ",", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
def test_the_first_line_of_excel_names_the_separator(write, separator, name):
    for line in (f"sep={separator}\r\n", f'\ufeff"SEP={separator}"\n', f"sep={separator};; \n"):
        content = line + as_table(separator, csv.QUOTE_MINIMAL)
        examples = read_examples("classify", write(name, content))
        assert (examples.texts, examples.labels, examples.ids[0]) == (TEXTS, LABELS, "3")


def test_words_may_be_quotes_in_a_table_of_a_program(write):
    rows = 'Ada\tPER\n""""\tO\n,\tO\nleft\tO\n""""\tO\n'
    for header in ("word\ttag\n", ""):
        examples = read_examples("tag", write("a.tsv", f"{header}{rows}\n{rows}"))
        assert examples.words == (("Ada", '"', ",", "left", '"'),) * 2


@pytest.mark.parametrize(
    ("task", "name", "content", "expected"),
    [
        ("classify", "a.txt", "A film.\nA bore.\n", ("A film.", "A bore.")),
        ("classify", "a.csv", 'text,label\n"a, b",x\nc,y\n', ("a, b", "c")),
        ("tag", "a.conll", "Ada PER\nleft O\n\nBob PER\n", (("Ada", "left"), ("Bob",))),
    ],
)
def test_line_ends_may_be_carriage_returns(write, task, name, content, expected):
    content = content.replace("\n", "\r")
    for end in ("", "\n"):
        examples = read_examples(task, write(name, content + end))
        assert getattr(examples, examples.sequences[0]) == expected
