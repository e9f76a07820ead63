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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"foo": 1}, "keys 'foo'.*Its columns are 'foo'"),
        (
            {"version": "1.1", "data": [{"title": "t"}]},
            "keys 'version', 'data'.*columns are 'title'",
        ),
        ({"data": SQUAD["data"][0]}, "keys 'data'"),
        (SQUAD["data"], "keys 'title', 'paragraphs'"),
        (SQUAD["data"][0], "keys 'title', 'paragraphs'"),
    ],
)
def test_json_that_is_not_squad_is_told_what_squad_is(content, reason, write):
    file = write("train.json", json.dumps(content))
    message = f"not in SQuAD format, one object with a list 'data' of articles.*{reason}"
    with pytest.raises(ValueError, match=message):
        read_examples("answer", file)


def test_squad_without_questions_is_told_so(write):
    empty = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": []}]}]}
    with pytest.raises(ValueError, match="at least one usable example. Received: none."):
        read_examples("answer", write("empty.json", json.dumps(empty)))


def test_squad_questions_may_have_no_answer(write):
    examples = read_examples("answer", write("dev.json", json.dumps(SQUAD)))
    assert isinstance(examples, QuestionExamples)
    assert examples.ids == ("q1", "q2")
    assert examples.answers == ((Answer("crane", 2), Answer("A crane", 0)), ())
    assert examples.titles == ("Crane", "Crane")
    assert examples.answers[0][0].end == 7
    assert examples.dropped == {
        "answer does not occur in the context": 1,
        "empty question": 1,
    }
    assert "question q3" in examples.first_dropped.values()
    unlabeled = read_examples("answer", write("dev.json", json.dumps(SQUAD)), labeled=False)
    assert unlabeled.ids == ("q1", "q2", "q3")
    assert unlabeled.answers is None


def test_questions_may_be_json_lines(write):
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


def test_a_squad_file_without_a_required_key_is_rejected(write):
    broken = {"data": [{"paragraphs": [{"qas": []}]}]}
    with pytest.raises(ValueError, match="'context'.*'qas'"):
        read_examples("answer", write("a.json", json.dumps(broken)))
    for paragraphs in (None, [{"context": "a", "qas": None}]):
        broken = {"data": [{"paragraphs": paragraphs}]}
        with pytest.raises(ValueError, match="needs a list .*Received: .*None"):
            read_examples("answer", write("a.json", json.dumps(broken)))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"text": ["crane"], "answer_start": 2}, (Answer("crane", 2),)),
        ({"text": "crane", "answer_start": [2]}, (Answer("crane", 2),)),
        ({"text": "crane"}, (Answer("crane", 2),)),
        ([{"text": "crane", "char_spans": [3]}], (Answer("crane", 2),)),
        ({"text": 5}, None),
    ],
)
def test_answers_may_have_other_forms(answers, expected, write):
    others = {"question": "Who?", "answers": {"text": ["crane"], "answer_start": [2]}}
    records = lines({"question": "What?", "answers": answers}, others)
    examples = read_examples("answer", write("a.jsonl", records))
    assert examples.answers[0] == (expected or (Answer("crane", 2),))
    assert len(examples) == (1 if expected is None else 2)


def test_an_answer_and_its_position_may_be_in_separate_columns(write):
    records = (
        {"question": "What?", "answer": "crane", "answer_start": 2},
        {"question": "Where?", "answer": "lake", "answer_start": "20"},
        {"question": "Why?", "answer": "", "answer_start": None},
    )
    examples = read_examples("answer", write("a.jsonl", lines(*records)))
    assert examples.answers == ((Answer("crane", 2),), (Answer("lake", 20),))
    assert examples.dropped == {"no answers": 1}


def test_the_position_of_an_answer_may_have_a_decimal_point(write):
    rows = "".join(f"{place},What?,{CONTEXT},is\n" for place in ("8.0", "29.00", " 29", "8.5", ""))
    path = write("a.csv", "answer_start,question,context,answer\n" + rows)
    reason = "answer has no position, and does not occur exactly once in the context"
    examples = read_examples("answer", path)
    assert [one.start for (one,) in examples.answers] == [8, 29, 29]
    assert examples.dropped == {reason: 2}
    records = (
        {"question": "What?", "answers": {"text": ["is", "is"], "answer_start": [8.0, "29"]}},
        {"question": "What?", "answers": [{"text": "is", "answer_start": 29.0}]},
        {"question": "What?", "answers": [{"text": "is", "answer_start": -1}]},
    )
    examples = read_examples("answer", write("a.jsonl", lines(*records)))
    assert examples.answers == ((Answer("is", 8), Answer("is", 29)), (Answer("is", 29),))
    assert examples.dropped == {reason: 1}


def test_an_answer_without_a_position_is_found_if_it_occurs_once(write):
    records = (
        {"question": "What?", "answers": ["crane"]},
        {"question": "How?", "answers": [{"text": "is"}]},
        {"question": "Who?", "answers": {"text": ["heron"]}},
    )
    examples = read_examples("answer", write("a.jsonl", lines(*records)))
    assert examples.answers == ((Answer("crane", 2),),)
    reason = "answer has no position, and does not occur exactly once in the context"
    assert examples.dropped == {reason: 2}


def test_mrqa_lines_contain_a_context_with_its_questions(write):
    question = {"qid": "q1", "question": "Where?", "answers": ["Lake"]}
    found = [{"text": "Lake", "char_spans": [[20, 23]]}]
    content = json.dumps({"header": {"dataset": "x"}}) + "\n"
    content += lines({"qas": [{**question, "detected_answers": found}]}, {"qas": [question]})
    examples = read_examples("answer", write("a.jsonl", content))
    assert (examples.ids, examples.answers) == (("q1",), ((Answer("lake", 20),),))
    assert sum(examples.dropped.values()) == 1
    with pytest.raises(ValueError, match="needs a list 'qas'"):
        read_examples("answer", write("b.jsonl", content + '{"context": "b"}\n'))


def test_a_cell_may_contain_answers_in_json_python_or_numpy_notation(write):
    json_cell = json.dumps({"text": ["crane"], "answer_start": [2]}).replace('"', '""')
    plain = "{'text': ['crane'], 'answer_start': [2]}"
    arrays = "{'text': array(['crane', 'A crane'], dtype=object), 'answer_start': array([2, 0])}"
    none = "{'text': array([], dtype=object), 'answer_start': array([], dtype=int32)}"
    rows = "".join(
        f'What?,{CONTEXT},"{cell}"\n' for cell in (plain, arrays, none, "['crane']", json_cell)
    )
    examples = read_examples("answer", write("a.csv", "question,context,answers\n" + rows))
    crane = Answer("crane", 2)
    assert examples.answers == ((crane,), (crane, Answer("A crane", 0)), (), (crane,), (crane,))
    assert examples.columns == {"text": "question", "text_b": "context", "label": "answers"}
    path = write("b.csv", f"context,question,answer_start,text\n{CONTEXT},What?,2,crane\n")
    assert read_examples("answer", path).answers == ((crane,),)


def in_squad(**fields):
    record = {"id": "q", "question": "What?", **fields}
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [record]}]}]})


CRANE = {"text": "crane", "answer_start": 2}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_impossible": "false", "answers": [CRANE]}, (Answer("crane", 2),)),
        ({"is_impossible": "False", "answers": [CRANE]}, (Answer("crane", 2),)),
        ({"is_impossible": "0", "answers": [CRANE]}, (Answer("crane", 2),)),
        ({"is_impossible": 0.0, "answers": [CRANE]}, (Answer("crane", 2),)),
        ({"is_impossible": None, "answers": [CRANE]}, (Answer("crane", 2),)),
        ({"isImpossible": "no", "answers": [CRANE]}, (Answer("crane", 2),)),
        ({"is_impossible": "true", "answers": []}, ()),
        ({"has_answer": False, "answers": []}, ()),
        ({"answerable": "false"}, ()),
        ({"is_impossible": True, "answers": [{"text": "", "answer_start": 0}]}, ()),
        ({"answers": [{"text": "", "answer_start": -1}]}, ()),
        ({"answers": {"text": [""], "answer_start": [7]}}, ()),
        ({"answers": [{"text": None, "answer_start": None}]}, ()),
        ({"answers": []}, ()),
        ({"is_impossible": "true", "answers": [CRANE]}, "that there is none"),
        ({"is_impossible": "maybe", "answers": [CRANE]}, "neither true nor false"),
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


def test_a_question_that_says_it_has_an_answer_lacks_its_answer(write):
    records = [{"question": "What?", "answers": [CRANE]}, {"question": "Why?", "answers": []}]
    records[1]["is_impossible"] = False
    examples = read_examples("answer", write("a.jsonl", lines(*records)))
    assert (len(examples), examples.dropped) == (1, {"no answers": 1})


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("answer,answer_start,is_impossible", "crane,2,False", (Answer("crane", 2),)),
        ("answer,answer_start,is_impossible", ",,True", ()),
        ("answer,is_impossible", ",1", ()),
        ("answer,has_answer", ",no", ()),
        ("answer,answer_start", ",-1", ()),
        ("answer,answer_start", ",0", ()),
        ("answers,start", "['crane'],[2]", (Answer("crane", 2),)),
        ("answer,Answer Start", "is,8", (Answer("is", 8),)),
        ("answers,is_impossible", "[],true", ()),
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


@pytest.mark.parametrize("unit", ["utf-8", "utf-16-le"])
def test_positions_in_other_units_are_corrected_and_reported(write, unit):
    size = {"utf-8": 1, "utf-16-le": 2}[unit]
    context = "\U0001f680 caf\u00e9: it is so, it is."
    starts = [context.index("so"), context.rindex("is")]
    given = [len(context[:start].encode(unit)) // size for start in starts]
    records = [
        {"context": context, "question": "?", "answers": [{"text": text, "answer_start": start}]}
        for text, start in zip(["so", "is"], given, strict=True)
    ]
    examples = read_examples("answer", records)
    assert examples.answers == ((Answer("so", starts[0]),), (Answer("is", starts[1]),))
    assert examples.notes[0].startswith("corrected the positions of the answers to 2 questions")
    mrqa = {"context": context, "qas": [{"qid": "q", "question": "?", "detected_answers": []}]}
    mrqa["qas"][0]["detected_answers"] = [{"text": "so", "char_spans": [[given[0], given[0] + 1]]}]
    examples = read_examples("answer", write("a.jsonl", json.dumps(mrqa)))
    assert examples.answers == ((Answer("so", starts[0]),),)
