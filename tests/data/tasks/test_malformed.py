"""Files and tables that cannot be read: the error names the argument or the value received."""

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

CHOOSE = {"text": "a", "choices": "b,a", "label": "c"}
VECTORS = '[{"text": "a", "labels": [0, 1, 0]}]'
TOXIC = "id,comment_text,toxic,obscene\na1,so,1,1\n"


@pytest.mark.parametrize(
    ("task", "name", "content", "options", "message"),
    [
        # Files.
        ("classify", "a.jsonl", '{"text": "a"}\n{"text": \n', {}, "line 2: this is not JSON"),
        ("classify", "a.jsonl", '{"text": "a"}\n[1]\n', {}, "line 2: must be a JSON object"),
        ("classify", "a.csv", 'text,label\n"not closed,x\nb,y\n', {}, "line 2: this is not CSV"),
        ("classify", "a.tsv", b"text\tlabel\ncaf\xe9\tx\n", {}, "a.tsv' must be UTF-8"),
        ("classify", "a.tsv", "text\tlabel\n\tx\n", {}, "usable example.*empty text"),
        ("classify", "a.tsv", "text\tlabel\n", {}, "usable example.*only a header"),
        ("classify", "a.tsv", "\n", {}, "a.tsv' is empty"),
        # Options of other tasks.
        ("cluster", "a.tsv", "a", {}, "`task` must be one of"),
        ("classify", "a.tsv", "a", {"separator": "|"}, r"`multi_label`.*separator='\|'"),
        ("tag", "a.tsv", "a", {"text_b": 2}, "`text_b` must be omitted for the task 'tag'"),
        # Columns that do not exist, or that could be several.
        (
            "classify",
            "a.tsv",
            "text\tmood\na\tx\n",
            {},
            "'gold_label'.*are 'text', 'mood'.*--label",
        ),
        ("classify", "a.tsv", "a\t1\nb\t0\n", {"text": 1}, "no names.*is 1: 'a', 2: '1'"),
        ("classify", "a.tsv", "text\tlabel\na\t\n", {}, "'label' is empty"),
        ("classify", "a.tsv", "a joy\t1\na bore\t0\n", {}, "`text` must.*2: '1'"),
        ("classify", "a.tsv", "a joy\tx\t1\nno joy\tx\t1\n", {}, "`text` must.*3: '1'"),
        ("classify", "a.tsv", "Inhalt\tArt\nes ist\tp\nes ist\tp\n", {}, "`text` must"),
        ("classify", "a.tsv", "Der Text\tArt\nes ist\tp\nes ist\tp\nso so\tp\n", {}, "`text` must"),
        ("classify", "a.tsv", "review\ta\nb\tc\n", {"label": "grade"}, "'grade'.*are 'review', 'a"),
        ("classify", "a.tsv", "a\tb\nb\tc\n", {"text": "a", "label": 9}, "`label`.*label=9"),
        ("classify", "a.txt", "it is;joy\nso;fear\n", {}, "first row is 1: 'it is;joy'"),
        ("classify", "a.csv", "text,Label,LABEL\na,x,1\n", {}, "named 'label', numbers 2, 3"),
        ("regress", "a.csv", TOXIC, {"label": "toxic,obscene"}, "label='toxic,obscene'"),
        ("classify", "a.csv", TOXIC, {"label_names": "a,b"}, "no vectors; label_names=.'a', 'b'"),
        (
            "classify",
            "a.json",
            VECTORS,
            {},
            r"a.json.*--label-names.*3 places, such as \[0, 1, 0\]",
        ),
        ("classify", "a.json", VECTORS, {"label_names": "a,b"}, "3 places.*label_names=.'a', 'b'"),
        (
            "regress",
            "a.tsv",
            "text\tscore\na\t1,000\n",
            {},
            "not a finite number .*line 2, '1,000'",
        ),
        ("regress", "a.json", VECTORS, {"label_names": "a,b"}, "`multi_label` must be omitted"),
        (
            "embed",
            "a.tsv",
            "premise\thypothesis\tlabel\na b\tc\tneutral\n",
            {},
            "not a finite number",
        ),
        ("tag", "a.conll", "a\ncrane\n", {}, "`label`.*'a'"),
        ("tag", "a.conll", "EU NNP O\n", {"label": 5}, "label=5.*3: 'O'"),
        ("answer", "a.jsonl", '{"question": "a"}', {}, "`text_b`.*'question'"),
        ("answer", "a.jsonl", '{"question": "a", "context": "b", "answers": null}', {}, "answers"),
        ("choose", "a.jsonl", '{"text": "q", "label": 0}', {}, "`choices`.*'text', 'label'"),
        # One column in two roles.
        ("classify", "a.csv", "a,b\nc,d\n", {"text": "a", "label": 1}, "`text` and `label`.*'a'"),
        ("choose", "a.csv", "a,b,c\nd,e,f\n", CHOOSE, "`text` and `choices`.*'a'"),
        # JSON.
        ("classify", "a.json", '{"train": [{"text": "a"}], "test": []}', {}, "are 'train', 'test'"),
        ("classify", "a.json", "[]", {}, "JSON objects"),
        ("classify", "a.json", '{"text": "a", "label": {"name": "x"}}', {}, "of a label"),
        ("classify", "a.json", '{"text": ["a"], "label": ["x"]}', {}, "object instead of a text"),
        # Words.
        ("tag", "a.conllu", "1\ta\tb\n", {}, "line 1: .*10 columns"),
        ("tag", "a.conll", "EU ORG\nrejects\ncall O\n", {}, "first: line 1, word 2"),
        ("tag", "a.conll", "a\nb\n\nc\nd O\n", {}, "`label`.*1: 'a'"),
        ("tag", "a.csv", "word,tag\nEU,B\nPeter,B\n", {}, "ends of sentences.*--id"),
        (
            "tag",
            "a.csv",
            "index,word,tag\n0,Ada,PER\n1,left,O\n2,Bob,PER\n",
            {},
            "ends of sentences",
        ),
        ("tag", "a.tsv", "sentence\tlabel\nnot so good\t0\nbad is\t1\n", {}, "ends of sentences"),
        ("tag", "a.txt", "-DOCSTART- -X- O\n\n# comment\n", {}, "usable example"),
        ("tag", "a.tsv", "a joy to see\tgood\na bore\tbad\n", {}, "line 1: .*'a joy to see'"),
        ("tag", "a.tsv", "text\tlabel\na joy\tgood\na bore\tbad\n", {}, "line 2: .*'a joy'"),
        # Questions.
        ("answer", "a.json", '{"v": "1.1", "data": [{"title": "t"}]}', {}, "`text`.*are 'title'"),
        (
            "answer",
            "a.json",
            '{"data": [{"paragraphs": [{"qas": [{}]}]}]}',
            {},
            "SQuAD.*'question'",
        ),
        ("answer", "a.json", '{"data": [{"paragraphs": null}]}', {}, "SQuAD.*TypeError"),
    ],
)
def test_what_cannot_be_read_is_described(write, task, name, content, options, message):
    with pytest.raises(ValueError, match=message):
        read_examples(task, write(name, content), **{"labeled": True, **options})


def test_a_file_must_exist():
    with pytest.raises(FileNotFoundError):
        read_examples("classify", "none.tsv")
