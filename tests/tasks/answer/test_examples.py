import json

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.tasks.answer.examples import Answer, QuestionExamples


def question(name, text, *answers, **fields):
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": text, "answers": found, **fields}


QUESTIONS = [
    question("q1", "What flies?", ("crane", 2), ("A crane", 0), is_impossible=False),
    question("q2", "Why?", is_impossible=True, plausible_answers=[{"text": "lake"}]),
    question("q3", "Where?", ("sea", 27)),
    question("q4", " "),
]
PARAGRAPH = {"context": "A crane is flying over the lake.", "qas": QUESTIONS}
SQUAD = {"version": "v2.0", "data": [{"title": "Crane", "paragraphs": [PARAGRAPH]}]}
CONTEXT = "A crane is over the lake. It is so."


def lines(*records):
    return "\n".join(json.dumps({"context": CONTEXT, **record}) for record in records) + "\n"


def test_squad_questions_may_have_no_answer(write):
    path = write("dev.json", json.dumps(SQUAD))
    examples = read_examples("answer", path)
    assert isinstance(examples, QuestionExamples)
    assert (examples.ids, examples.titles) == (("q1", "q2"), ("Crane", "Crane"))
    assert examples.answers == ((Answer("crane", 2), Answer("A crane", 0)), ())
    assert examples.answers[0][0].end == 7
    reasons = ("answer does not occur in the context", "empty question")
    assert examples.dropped == dict.fromkeys(reasons, 1)
    assert "question q3" in examples.first_dropped.values()
    unlabeled = read_examples("answer", path, labeled=False)
    assert (unlabeled.ids, unlabeled.answers) == (("q1", "q2", "q3"), None)


def test_questions_may_be_json_lines(write):
    so = {"title": "t", "answers": {"text": ["so"], "answer_start": [32]}}
    records = (
        {"id": "a", "question": "How?", **so},
        {"question": "Why?", "answers": {"text": [], "answer_start": []}},
        {"question": "Who?"},
        {"question": "Why?", "answers": [], "is_impossible": False},
    )
    examples = read_examples("answer", write("a.jsonl", lines(*records)))
    assert examples.answers == ((Answer("so", 32),), ())
    assert (examples.ids, examples.titles) == (("a", "2"), ("t", None))
    assert examples.dropped == {"no answers": 2}


SEVERAL = "answer is not at its position in the context, and occurs several times"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"answer": "crane", "answer_start": 2}, (Answer("crane", 2),)),
        ({"answer": "is", "answer_start": "8.0"}, (Answer("is", 8),)),
        ({"answer": "is", "answer_start": " 29"}, (Answer("is", 29),)),
        ({"answer": "is", "answer_start": "8.5"}, SEVERAL),
        ({"answer": "", "answer_start": None}, "no answers"),
        ({"answers": {"text": ["is"], "answer_start": [8.0]}}, (Answer("is", 8),)),
        ({"answers": [{"text": "is", "answer_start": 29.0}]}, (Answer("is", 29),)),
        ({"answers": ["crane"]}, (Answer("crane", 2),)),
        ({"answers": {"text": "crane", "answer_start": [2]}}, (Answer("crane", 2),)),
        ({"answers": {"text": "crane"}}, (Answer("crane", 2),)),
        ({"answers": [{"text": "crane", "char_spans": [3]}]}, (Answer("crane", 2),)),
        ({"answers": {"text": 5}}, "answer does not occur in the context"),
        ({"answers": [{"text": "lake", "answer_start": 3}]}, (Answer("lake", 20),)),
    ],
)
def test_an_answer_has_a_position_or_occurs_once(fields, expected, write):
    label = next(iter(fields))
    others = {"question": "Who?", **dict.fromkeys(fields), label: "crane"}
    records = lines({"question": "What?", **fields}, others)
    examples = read_examples("answer", write("a.jsonl", records))
    if isinstance(expected, str):
        assert examples.dropped == {expected: 1}
    else:
        assert examples.answers[0] == expected


def test_mrqa_lines_contain_a_context_with_its_questions(write):
    question = {"qid": "q1", "question": "Where?", "answers": ["Lake"]}
    found = [{"text": "Lake", "char_spans": [[20, 23]]}]
    content = json.dumps({"header": {"dataset": "x"}}) + "\n"
    content += lines({"qas": [{**question, "detected_answers": found}]}, {"qas": [question]})
    examples = read_examples("answer", write("a.jsonl", content))
    assert (examples.ids, examples.answers) == (("q1",), ((Answer("lake", 20),),))
    assert sum(examples.dropped.values()) == 1


def test_a_cell_may_contain_answers_in_json_python_or_numpy_notation(write):
    json_cell = json.dumps({"text": ["crane"], "answer_start": [2]}).replace('"', '""')
    plain = "{'text': ['crane'], 'answer_start': [2]}"
    arrays = "{'text': array(['crane', 'A crane'], dtype=object), 'answer_start': array([2, 0])}"
    none = "{'text': array([], dtype=object), 'answer_start': array([], dtype=int32)}"
    rows = "".join(f'What?,{CONTEXT},"{cell}"\n' for cell in (plain, arrays, none, json_cell))
    examples = read_examples("answer", write("a.csv", "question,context,answers\n" + rows))
    crane = Answer("crane", 2)
    assert examples.answers == ((crane,), (crane, Answer("A crane", 0)), (), (crane,))
    assert examples.columns == {"text": "question", "text_b": "context", "label": "answers"}


def in_squad(**fields):
    record = {"id": "q", "question": "What?", **fields}
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [record]}]}]})


CRANE = {"text": "crane", "answer_start": 2}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        *(
            ({"is_impossible": no, "answers": [CRANE]}, (Answer("crane", 2),))
            for no in ("False", 0.0, None)
        ),
        ({"is_impossible": "true", "answers": []}, ()),
        ({"is_impossible": 1}, ()),
        ({"answerable": "false"}, ()),
        ({"has_answer": False, "answers": [CRANE]}, "although has_answer says"),
        ({"is_impossible": True, "answers": [{"text": "", "answer_start": 0}]}, ()),
        ({"answers": [{"text": "", "answer_start": -1}]}, ()),
        ({"answers": []}, ()),
        ({"is_impossible": "true", "answers": [CRANE]}, "that there is none"),
        ({"answers": [{"text": "heron", "answer_start": 2}]}, "does not occur in the context"),
        ({"answers": [{"text": "is", "answer_start": 3}]}, "occurs several times"),
    ],
)
def test_an_answer_is_never_deleted_without_its_reason(write, fields, expected):
    table = {"question": "What?", "context": CONTEXT, **fields}
    for path in (write("a.json", in_squad(**fields)), write("a.jsonl", json.dumps(table))):
        if path.suffix == ".jsonl" and "answers" not in fields:
            continue
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=expected):
                read_examples("answer", path)
        else:
            assert read_examples("answer", path).answers == (expected,)


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("answer,answer_start,is_impossible", "crane,2,False", (Answer("crane", 2),)),
        ("answer,is_impossible", ",1", ()),
        ("answer,has_answer", ",no", ()),
        ("answer,answer_start", ",-1", ()),
        ("answers,start", "['crane'],[2]", (Answer("crane", 2),)),
        ("answer,Answer Start", "is,8", (Answer("is", 8),)),
        ("answer_start,text", "2,crane", (Answer("crane", 2),)),
    ],
)
@pytest.mark.parametrize("separator", [",", "\t"])
def test_columns_of_a_table_say_that_there_is_no_answer(write, header, row, expected, separator):
    content = f"question,context,{header}\nWhat?,{CONTEXT},{row}\nWho?,{CONTEXT},{row}\n"
    path = write(f"a.{'csv' if separator == ',' else 'tsv'}", content.replace(",", separator))
    assert read_examples("answer", path).answers == (expected, expected)


def test_an_answer_in_brackets_is_a_text_among_texts(write):
    rows = "question,context,answer\nWhen?,In [1998] it is 1998.,[1998]\nWhat?,A crane.,crane\n"
    examples = read_examples("answer", write("a.csv", rows))
    assert examples.answers == ((Answer("[1998]", 3),), (Answer("crane", 2),))
    tabs = write("a.tsv", rows.replace(",", "\t").replace("What", '"What"'))
    assert read_examples("answer", tabs).notes == ("read quotes as text",)
