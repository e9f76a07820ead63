"""Exports of annotation tools are read as words with BIO tags."""

import json

import pytest

from keras_bert_d2l.data.tasks.read_examples import read_examples

TEXT = "Ada Lovelace lived in London."
TAGS = ("B-PER", "I-PER", "O", "O", "B-LOC", "O")
WORDS = ("Ada", "Lovelace", "lived", "in", "London", ".")
PER, LOC = [0, 12, "PER"], [22, 28, "LOC"]


def spacy(*spans, text=TEXT):
    return [text, {"entities": [*spans]}]


def region(start, end, kind, text=TEXT):
    return {"start": start, "end": end, "text": text[start:end], "labels": [kind]}


def task(*annotations, **fields):
    done = [
        {"was_cancelled": False, **options, "result": [{"value": one} for one in regions]}
        for regions, options in annotations
    ]
    return {"id": 7, "data": {"text": TEXT}, "annotations": done, **fields}


def read(write, name, records, **options):
    dumps = "\n".join(map(json.dumps, records)) if name.endswith("l") else json.dumps(records)
    return read_examples("tag", write(name, dumps), **options)


def tool(start, end, label):
    return {"start": start, "end": end, "label": label, "token_start": 0, "token_end": 1}


def offsets(number, start, end, label):
    return {"id": number, "label": label, "start_offset": start, "end_offset": end}


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("doccano.jsonl", {"id": 7, "text": TEXT, "label": [PER, LOC], "Comments": []}),
        ("doccano.jsonl", {"id": 7, "data": TEXT, "labels": [LOC, PER]}),
        (
            "relations.jsonl",
            {"text": TEXT, "relations": [], "entities": [offsets(1, *PER), offsets(2, *LOC)]},
        ),
        ("prodigy.jsonl", {"text": TEXT, "spans": [tool(*PER), tool(*LOC)], "answer": "accept"}),
        ("spacy.jsonl", spacy(PER, LOC)),
        ("spacy.json", spacy(PER, LOC)),
        ("studio.json", task(([region(*LOC), region(*PER)], {}))),
        ("studio.json", dict([*task(([region(*PER), region(*LOC)], {})).items()][1:])),
        ("min.json", {"text": TEXT, "ner": [region(*PER), region(*LOC)], "annotation_id": 1}),
    ],
)
def test_the_exports_of_all_tools_are_read(write, name, record):
    examples = read(write, name, [record])
    assert (examples.words, examples.labels) == ((WORDS,), (TAGS,))
    assert examples.notes == ("read spans of characters as BIO tags of words",)
    assert examples.ids in (("7",), ("1",))
    assert read(write, name, [record], labeled=False).labels is None


def test_tuples_of_spacy_and_the_file_of_ner_annotator_are_read(write):
    tuples = [(TEXT, {"entities": [tuple(PER), tuple(LOC)]}), ("a b", {"entities": []})]
    record = {"classes": ["PER", "LOC"], "annotations": [spacy(PER, LOC), spacy(text="a b")]}
    for data in (tuples, write("ner.json", json.dumps(record))):
        assert read_examples("tag", data).labels == (TAGS, ("O", "O"))


def test_a_text_that_nobody_annotated_is_dropped_and_one_without_entities_is_not(write):
    records = [
        task(([region(*PER)], {})),
        task(([], {})),
        task(([], {"was_cancelled": True})),
        task(),
        task(([region(*PER)], {}), ([region(*LOC)], {})),
        task(([region(*PER)], {}), ([region(*LOC)], {"ground_truth": True})),
    ]
    examples = read(write, "studio.json", records)
    assert examples.labels == (TAGS[:2] + ("O",) * 4, ("O",) * 6, ("O",) * 4 + TAGS[4:])
    assert examples.dropped == {
        "no annotation": 2,
        "annotation not accepted: annotators disagree": 1,
    }
    answers = ({"answer": "accept"}, {"answer": "ignore"}, {}, {"answer": "accept", "spans": []})
    records = [{"text": TEXT, "spans": [tool(*PER)]}, *({"text": "a b", **one} for one in answers)]
    examples = read(write, "prodigy.jsonl", records)
    assert examples.labels == (TAGS[:2] + ("O",) * 4, ("O", "O"), ("O", "O"))
    assert examples.dropped == {"no annotation": 1, "annotation not accepted: ignore": 1}
    records = [{"text": TEXT, "label": [PER]}, {"text": "a b", "label": []}]
    assert read(write, "doccano.jsonl", records).labels[1] == ("O", "O")


def test_the_words_may_be_those_of_the_tool(write):
    tokens = [{"start": 0, "end": 12}, {"start": 22, "end": 29}]
    record = {"text": TEXT, "tokens": tokens, "spans": [tool(*PER)]}
    examples = read(write, "prodigy.jsonl", [record])
    assert (examples.words, examples.labels) == ((("Ada Lovelace", "London."),), (("B-PER", "O"),))


def test_spans_that_do_not_meet_words_are_widened_and_counted(write):
    spans = ([0, 4, "PER"], [22, 25, "LOC"], [25, 29, "LOC"])
    records = [spacy(spans[0]), spacy(spans[1]), spacy(spans[2], text=TEXT)]
    examples = read(write, "spacy.json", records)
    assert [labels[4:] for labels in examples.labels[1:]] == [TAGS[4:], ("B-LOC", "I-LOC")]
    assert examples.labels[0] == ("B-PER", *("O",) * 5)
    assert examples.notes[1] == "widened 2 spans to whole words (first: 'Lon')"


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        ([3, 14, "X"], "overlapping spans"),
        ([22, 30, "X"], "span without these characters of the text"),
        ([-3, 2, "X"], "span without these characters of the text"),
        ([3, 4, "X"], "span without these characters of the text"),
    ],
)
def test_texts_with_spans_that_no_tags_have_are_dropped(write, span, reason):
    examples = read(write, "spacy.jsonl", [spacy(PER), spacy(PER, span)])
    assert (len(examples), examples.dropped) == (1, {reason: 1})
    assert examples.first_dropped[reason] == "line 2"


def test_offsets_of_other_units_are_found_by_the_text_of_a_span(write):
    wrong = {"start": 1, "end": 4, "text": "Ada", "labels": ["PER"]}
    records = [task(([region(*PER)], {})), task(([wrong], {}))]
    examples = read(write, "studio.json", records)
    assert examples.dropped == {"span without these characters of the text": 1}


def test_characters_of_scripts_without_spaces_are_words(write):
    text = "\u6211\u7231\u5317\u4eac\u3002 \u0e17\u0e35\u0e48\u0e19 iPhone\u3042"
    examples = read(write, "spacy.json", [spacy([2, 4, "LOC"], text=text)])
    words = [*text[:5], text[6:9], text[9], "iPhone", text[-1]]
    assert examples.words == (tuple(words),)
    assert examples.labels == (("O", "O", "B-LOC", "I-LOC", *("O",) * 5),)
