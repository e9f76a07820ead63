"""Multiple-choice examples in the layouts of SWAG, RACE, ARC, HellaSwag, SocialIQA and COPA."""

import json

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

SWAG = """\
,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,a,1,She opens. The,She opens.,The,gold,door shuts.,sky falls.,cat sits.,end.,0
1,b,2,He runs. He,He runs.,He,gold,stops.,flies.,sings.,sinks.,3
"""


XY = {"text": ["x", "y"]}


def read(rows, **options):
    return read_examples("choose", rows, **options)


def test_swag_is_read(write):
    found = read(write("swag.csv", SWAG))
    assert found.texts == ("She opens.", "He runs.")
    assert found.choices[1] == ("He stops.", "He flies.", "He sings.", "He sinks.")
    assert found.labels == (0, 3)
    assert found.columns["choices"] == "ending0, ending1, ending2, ending3"
    assert (found.columns["text"], found.columns["text_b"]) == ("sent1", "sent2")
    assert read(write("swag.csv", SWAG), labeled=False).labels is None
    alone = read(write("swag.csv", SWAG), text="startphrase", text_b=2, choices="ending3,ending0")
    assert alone.choices[0] == ("a end.", "a door shuts.")


def test_the_question_of_race_begins_every_choice():
    race = {"example_id": "h1", "article": "q", "question": "Who?", "options": ["x", "y"]}
    found = read([{**race, "answer": "B"}])
    assert (found.choices, found.labels, found.ids) == ((("Who? x", "Who? y"),), (1,), ("h1",))


def test_columns_of_choices_are_ordered_by_their_letters_or_numbers(write):
    rows = [{"question": "2+2?", "option_b": "5", "option_a": "4", "answer": "A"}]
    rows += [{"question": "1+1?", "option_b": "2", "option_a": "3", "answer": "B"}]
    found = read(rows)
    assert [x[label] for x, label in zip(found.choices, found.labels, strict=True)] == ["4", "2"]
    names = [f"option{number}" for number in (10, *range(1, 10))]
    table = [",".join(["question", *names, "answer"])]
    table += [",".join(["q", *(name[6:] for name in names), answer]) for answer in ("1", "10")]
    found = read(write("ten.csv", "\n".join(table)))
    assert found.choices[0] == tuple(str(number) for number in range(1, 11))
    assert (found.labels, found.dropped) == ((0, 9), {})


@pytest.mark.parametrize(
    ("row", "label"),
    [
        ({"question": "q", "choices": {**XY, "label": ["A", "B"]}, "answerKey": "B"}, 1),
        ({"question": "q", "choices": {**XY, "label": ["1", "2"]}, "answerKey": "1"}, 0),
        ({"question_stem": "q", "choices": [{"text": "x"}, {"text": "y"}], "answer": "y"}, 1),
        ({"premise": "q", "choice1": "x", "choice2": "y", "label": 0.0}, 0),
        ({"context": "q", "answerA": "x", "answerB": "y", "label": "2"}, 1),
        ({"text": "q", "options": '["x", "y"]', "label": "b"}, 1),
    ],
    ids=["arc", "arc numbers", "text", "copa", "socialiqa", "string"],
)
def test_layouts_and_labels(row, label):
    found = read([row])
    assert (found.texts, found.choices, found.labels) == (("q",), (("x", "y"),), (label,))


def test_numbers_count_from_1_if_more_are_the_number_of_choices_than_0():
    row = {"text": "q", "options": ["x", "y", "z"]}
    assert read([{**row, "label": n} for n in (1, 3, 2)]).labels == (0, 2, 1)
    assert read([{**row, "label": n} for n in (1, 0, 2)]).labels == (1, 0, 2)
    found = read([{**row, "label": n} for n in (1, 3, 3, 2, 0)])
    assert (found.labels, sum(found.dropped.values())) == ((0, 2, 2, 1), 1)
    fewer = {"text": "q", "options": ["x", "y"], "label": 2}
    assert read([{**row, "label": 1}, fewer]).labels == (0, 1)


def test_numbers_that_may_count_from_0_or_from_1_are_rejected():
    row = {"text": "q", "options": ["w", "x", "y", "z"]}
    rows = [{**row, "label": n} for n in (1, 2, 3, 1, 2)]
    with pytest.raises(ValueError, match="count from 0 or from 1.*in 'the list'.*letters"):
        read(rows)
    letters = [{**row, "label": n} for n in "ABCAB"]
    assert read(letters).labels == (0, 1, 2, 0, 1)
    assert read(rows, labeled=False).labels is None


def test_labels_that_are_numbers_and_texts_of_choices_are_rejected():
    row = {"text": "q", "options": ["2", "3", "4", "5"]}
    for labels in (["2", "3", "4"], [3, 2], ["2", "3"], ["4", "", "3"]):
        with pytest.raises(ValueError, match="both numbers and texts.*in 'the list'.*'2', '3'"):
            read([{**row, "label": label} for label in labels])
    assert read([{**row, "label": label} for label in "0123"]).labels == (0, 1, 2, 3)
    assert read([{**row, "label": label} for label in "ABD"]).labels == (0, 1, 3)
    same = {"text": "q", "options": ["1", "2", "3"]}
    assert read([{**same, "label": label} for label in "132"]).labels == (0, 2, 1)


def test_unusable_rows_are_counted(write):
    good = {"text": "q", "options": ["x", "y"], "label": 0}
    changes = [{"text": " "}, *({"label": label} for label in (None, 7, "xyz"))]
    lists = (["x"], None, ["x", ""], [["x"], "y"], [["x"], ["y", "z"]])
    changes += [{"options": options} for options in lists]
    path = write("a.jsonl", "\n".join(json.dumps({**good, **change}) for change in [*changes, {}]))
    found = read(path)
    assert len(found) == 1
    once = dict.fromkeys(("empty text", "empty choice", "no label"), 1)
    unknown = "label is not the number, the letter or the text of a choice"
    twice = ("fewer than two choices", "list or object instead of a choice", unknown)
    assert found.dropped == once | dict.fromkeys(twice, 2)
