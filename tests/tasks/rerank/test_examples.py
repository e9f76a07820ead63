"""Queries with right and wrong texts, in every form of files and data."""

import json

import pytest

import keras_bert_d2l as kb

ONE = ("q", ("yes", "no", "never"), (1, 0, 0))


def read(path, rows, **options):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return kb.read_examples("rerank", path, **options)


def contents(examples):
    return list(zip(examples.queries, examples.documents, examples.labels, strict=True))


@pytest.mark.parametrize(
    "rows",
    [
        [{"query": "q", "positive": "yes", "negative": ["no", "never"]}],
        [{"query": "q", "positive": ["yes"], "negatives": ["no", "never"]}],
        [{"query": "q", "positive": "yes", "negative_1": "no", "negative_2": "never"}],
        [{"query": "q", "docs": ["yes", "no", "never"], "labels": [1, 0, 0]}],
        [
            {"query": "q", "text": text, "label": label}
            for text, label in zip(*ONE[1:], strict=True)
        ],
        [{"query": "q", "positive": "yes", "negative": text} for text in ("no", "never", "yes")],
    ],
)
def test_all_forms_of_right_and_wrong_texts_are_read(rows, tmp_path):
    assert contents(read(tmp_path / "rows.jsonl", rows)) == [ONE]


def test_tables_and_data_in_memory_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("question,passage,score\nq,yes,1\np,hm,0.5\nq,no,0\nq,never,0\n")
    expected = [ONE, ("p", ("hm",), (0.5,))]
    assert contents(kb.read_examples("rerank", path)) == expected
    path.write_text("what is it\tit is a cat\t1\nwhat is it\tthe sea is blue\t0\n")
    [found] = contents(kb.read_examples("rerank", path.rename(tmp_path / "rows.tsv")))
    assert found == ("what is it", ("it is a cat", "the sea is blue"), (1, 0))
    rows = {"a": ["q"], "b": ["yes"], "c": [["no", "never"]]}
    found = kb.read_examples("rerank", rows, text="a", text_b="b", negative="c")
    assert contents(found) == [ONE]


def test_several_right_texts_of_a_query_form_one_example(tmp_path):
    rows = [
        {"id": "x", "query": "q", "positive": "yes", "negative": "no"},
        {"id": "y", "query": "p", "positive": "hm", "negative": "no"},
        {"id": "z", "query": "q", "positive": "sure", "negative": "yes"},
    ]
    found = read(tmp_path / "rows.jsonl", rows)
    assert found.ids == ("x", "y")
    assert contents(found)[0] == ("q", ("yes", "no", "sure"), (1, 0, 1))


def test_margins_stay_in_their_rows(tmp_path):
    rows = [
        {"query": "q", "positive": "yes", "negative": "no", "margin": 4.5},
        {"query": "q", "positive": "yes", "negative": "never", "margin": [9.5, -1]},
    ]
    found = contents(read(tmp_path / "rows.jsonl", rows))
    assert found == [("q", ("yes", "no"), (4.5, 0)), ("q", ("yes", "never"), (9.5, -1))]


def test_texts_without_labels_are_right_unless_labels_are_ignored(tmp_path):
    rows = [{"query": "q", "text": "yes"}, {"query": "q", "text": "sure"}]
    path = tmp_path / "rows.jsonl"
    assert contents(read(path, rows)) == [("q", ("yes", "sure"), (1, 1))]
    found = kb.read_examples("rerank", path, labeled=False)
    assert (found.labels, found.documents) == (None, (("yes",), ("sure",)))  # in their order


def test_unusable_rows_are_counted_by_reason(tmp_path):
    row = {"query": "q", "docs": ["yes", "no"], "labels": [1, 0]}
    wrong = [{"query": " "}, {"docs": []}, {"docs": ["yes", ""]}, {"labels": [1]}]
    wrong += [{"labels": [1, 0, 0]}, {"labels": ["yes", "no"]}]
    found = read(tmp_path / "rows.jsonl", [row, *({**row, **one} for one in wrong)])
    assert contents(found) == [("q", ("yes", "no"), (1, 0))]
    assert found.dropped == {
        "empty query": 1,
        "empty text": 2,
        "not one label per text": 2,
        "label is not a finite number": 1,
    }


@pytest.mark.parametrize(
    ("documents", "labels", "message"),
    [
        ([[]], None, "a tuple of strings, at least one"),
        ([["a"]], [[float("nan")]], "a tuple of finite numbers"),
        ([["a"]], [[1, 0]], "one number per text"),
    ],
)
def test_unusable_examples_are_rejected(documents, labels, message):
    with pytest.raises(ValueError, match=message):
        kb.RankExamples(queries=["q"], documents=documents, labels=labels)
