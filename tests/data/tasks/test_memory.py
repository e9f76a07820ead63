"""Data in memory are read as a file with the same rows would be."""

import datetime
import decimal
import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.data.tasks.read_examples import read_examples

ROWS = [
    {"text": "A joy.", "label": "good", "score": 1.0, "id": "a"},
    {"text": "", "label": "good", "score": 1.0, "id": "b"},
    {"text": "A bore.", "label": None, "score": math.nan, "id": "c"},
    {"text": "Fine\u2028again", "label": "bad", "score": 0.25, "id": "d"},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


@pytest.fixture(params=["list", "dict", "DataFrame", "Dataset"])
def data(request):
    """The same table in each form, and the name of the form."""
    if request.param == "DataFrame":
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(ROWS).assign(at=pandas.Timestamp("2026-01-01"), none=pandas.NA)
        return frame.assign(features=1)  # the name of an attribute of Dataset
    if request.param == "Dataset":
        return pytest.importorskip("datasets").Dataset.from_list(ROWS)
    return ROWS if request.param == "list" else COLUMNS


@pytest.mark.parametrize("task", ["classify", "regress"])
def test_each_form_gives_the_examples_of_the_same_file(data, task, write):
    path = write("a.jsonl", "\n".join(map(json.dumps, ROWS)))
    ours, expected = read_examples(task, data), read_examples(task, path)
    assert ours.fingerprint() == expected.fingerprint()
    assert ours.dropped == expected.dropped != {}
    assert ours.columns == expected.columns
    assert ours.source == f"the {type(data).__name__}"
    assert read_examples(task, data, text="label").dropped


@pytest.mark.parametrize(("module", "make"), [("polars", "DataFrame"), ("pyarrow", "table")])
def test_tables_of_other_libraries_are_read(module, make):
    library = pytest.importorskip(module)
    rows = {"id": [1, 1, 2], "word": ["Ada", "[1]", "\u5317"], "tag": ["B-PER", "O", "O"]}
    assert read_examples("tag", getattr(library, make)(rows)).words == (("Ada", "[1]"), ("\u5317",))
    lists = {"text": ["a", "b"], "label": [["x", "y"], []]}
    examples = read_examples("classify", getattr(library, make)(lists), multi_label=True)
    assert examples.labels == (("x", "y"), ())


@pytest.mark.parametrize("form", ["Series", list, tuple, np.array, np.bytes_, tf.constant])
def test_texts_alone_are_unlabeled(form):
    form = pytest.importorskip("pandas").Series if form == "Series" else form
    form = (lambda texts: np.array(texts, "S")) if form is np.bytes_ else form
    examples = read_examples("classify", form(["A joy.", "A bore."]))
    assert examples.texts == ("A joy.", "A bore.")
    assert examples.labels is None


def test_the_numbers_of_classes_become_their_names():
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    rows = {"text": ["A joy.", "A bore.", "?"], "label": [1, 0, -1]}
    dataset = datasets.Dataset.from_dict(rows, features)
    for data in (dataset, dataset.with_format("numpy")):
        examples = read_examples("classify", data)
        assert examples.labels == ("good", "bad")
        assert examples.dropped == {"empty label": 1}
    tags = datasets.List(datasets.ClassLabel(names=["O", "PER"]))
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "tags": tags})
    rows = {"tokens": [["Ada", "left"]], "tags": [[1, 0]]}
    dataset = datasets.Dataset.from_dict(rows, features).with_format("numpy")
    assert read_examples("tag", dataset).labels == (("PER", "O"),)
    with pytest.raises(ValueError, match="columns are 'train'"):
        read_examples("tag", datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}))


@pytest.mark.parametrize(
    ("value", "label", "text", "expected"),
    [
        (np.str_("a"), np.int64(1), "a", "1"),
        (tf.constant("j\xf6y"), np.float32(1), "j\xf6y", "1"),
        (pathlib.PurePosixPath("a/b"), datetime.date(2026, 1, 1), "a/b", "2026-01-01"),
        (b"A j\xc3\xb6y.", {"joy", "awe"}, "A j\xf6y.", ("awe", "joy")),
        (np.str_("a"), np.array([]), "a", ()),
    ],
)
def test_cells_of_other_types_are_converted(value, label, text, expected):
    row = {"text": value, "label": label, "at": b"x", "price": decimal.Decimal("0.5")}
    examples = read_examples("classify", [row], multi_label=isinstance(expected, tuple))
    assert (examples.texts, examples.labels) == ((text,), (expected,))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"text": [b"caf\xe9"]}, r"`data` must.*UTF-8.*b'caf.*\(bytes\)"),
        ({"text": ["a"], "label": [[1j]]}, r"`data` must.*1j \(complex\)"),
        (3, "must be a path, a DataFrame"),
        ([3], "must be a path, a DataFrame"),
        ({"text": ["a"], "label": []}, "equal lengths.*'label': 0, 'text': 1"),
        ({"text": "a"}, r"`data\['text'\]` must be a list.*='a'"),
        ([], "'the list' is empty"),
    ],
)
def test_other_data_are_rejected(data, message):
    with pytest.raises(ValueError, match=message):
        read_examples("classify", data)
