import json

import pytest

from keras_bert_d2l.data.tasks.examples import Answer
from keras_bert_d2l.data.tasks.read_examples import read_examples

CONTEXT = "A crane is over the lake. It is so."


def lines(*records):
    return "\n".join(json.dumps({"context": CONTEXT, **record}) for record in records) + "\n"


def test_an_answer_may_stand_beside_its_place(write):
    records = (
        {"question": "What?", "answer": "crane", "answer_start": 2},
        {"question": "Where?", "answer": "lake", "answer_start": "20"},
        {"question": "Why?", "answer": "", "answer_start": None},
    )
    examples = read_examples("answer", write("a.jsonl", lines(*records)))
    assert examples.answers == ((Answer("crane", 2),), (Answer("lake", 20),))
    assert examples.dropped == {"no answers": 1}


def test_the_place_of_an_answer_may_be_a_whole_number_with_a_point(write):
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


def test_an_answer_without_a_place_has_that_where_it_stands_alone(write):
    records = (
        {"question": "What?", "answers": ["crane"]},
        {"question": "How?", "answers": [{"text": "is"}]},
        {"question": "Who?", "answers": {"text": ["heron"]}},
    )
    examples = read_examples("answer", write("a.jsonl", lines(*records)))
    assert examples.answers == ((Answer("crane", 2),),)
    reason = "answer has no position, and does not occur exactly once in the context"
    assert examples.dropped == {reason: 2}


def test_a_cell_may_hold_answers_as_json(write):
    cell = json.dumps({"text": ["crane"], "answer_start": [2]}).replace('"', '""')
    path = write("a.csv", f'question,context,answers\nWhat?,{CONTEXT},"{cell}"\nWhy?,x\n')
    examples = read_examples("answer", path)
    assert examples.answers == ((Answer("crane", 2),),)
    assert examples.dropped == {"no answers": 1}


def test_lines_may_hold_a_context_with_its_questions_as_mrqa(write):
    question = {"qid": "q1", "question": "Where?", "answers": ["Lake"]}
    found = [{"text": "Lake", "char_spans": [[20, 23]]}]
    content = json.dumps({"header": {"dataset": "x"}}) + "\n"
    content += lines({"qas": [{**question, "detected_answers": found}]}, {"qas": [question]})
    examples = read_examples("answer", write("a.jsonl", content))
    assert (examples.ids, examples.answers) == (("q1",), ((Answer("lake", 20),),))
    assert sum(examples.dropped.values()) == 1
    with pytest.raises(ValueError, match="every paragraph.*must have 'qas'"):
        read_examples("answer", write("b.jsonl", content + '{"context": "b"}\n'))


def test_a_cell_may_hold_answers_as_python_and_numpy_write_them(write):
    plain = "{'text': ['crane'], 'answer_start': [2]}"
    arrays = "{'text': array(['crane', 'A crane'], dtype=object), 'answer_start': array([2, 0])}"
    none = "{'text': array([], dtype=object), 'answer_start': array([], dtype=int32)}"
    rows = "".join(f'What?,{CONTEXT},"{cell}"\n' for cell in (plain, arrays, none, "['crane']"))
    examples = read_examples("answer", write("a.csv", "question,context,answers\n" + rows))
    crane = Answer("crane", 2)
    assert examples.answers == ((crane,), (crane, Answer("A crane", 0)), (), (crane,))
    assert examples.columns == {"text": "question", "text_b": "context", "label": "answers"}


def test_the_answer_may_be_the_text_beside_its_place(write):
    path = write("a.csv", f"context,question,answer_start,text\n{CONTEXT},What?,2,crane\n")
    assert read_examples("answer", path).answers == ((Answer("crane", 2),),)
