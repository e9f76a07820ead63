"""Labels as people store them: columns and vectors of 1 and 0, and numbers of all countries."""

import datasets
import numpy as np
import pandas
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.data.tasks.read_examples import read_examples

JIGSAW = {
    "id": ["x1", "x2", "x3", "x4"],
    "comment_text": ["a", "b", "c", "d"],
    "toxic": [1, 0, 0, -1],
    "insult": [1, 1, 0, -1],
}
LABELS = (("toxic", "insult"), ("insult",), ())


@pytest.fixture(params=["csv", "tsv", "jsonl", "frame", "dataset", "dictionary"])
def jigsaw(request, tmp_path):
    """The same labels in every form."""
    frame, path = pandas.DataFrame(JIGSAW), tmp_path / f"train.{request.param}"
    if request.param in ("csv", "tsv"):
        frame.to_csv(path, sep="," if request.param == "csv" else "\t")  # with row numbers
    elif request.param == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    forms = {"frame": frame, "dataset": datasets.Dataset.from_dict(JIGSAW), "dictionary": JIGSAW}
    return forms.get(request.param, path)


@pytest.mark.parametrize("options", [{}, {"multi_label": True}, {"label": "toxic,insult"}])
def test_columns_of_1_and_0_are_labels(jigsaw, options):
    examples = read_examples("classify", jigsaw, **options)
    assert (examples.texts, examples.labels) == (("a", "b", "c"), LABELS)
    assert examples.multi_label
    assert ("label" in options) != any("labels: toxic, insult" in note for note in examples.notes)


def test_an_object_of_1_and_0_has_labels():
    flags = [{"toxic": True, "insult": 1}, {"toxic": 0.0, "insult": 1.0}, {"toxic": "no"}]
    assert read_examples("classify", {"text": [*"abc"], "labels": flags}).labels == LABELS


def test_one_column_of_1_and_0_has_classes(write):
    path = write("a.csv", "text,toxic\na,1\nb,0\n")
    assert read_examples("classify", path, label="toxic").labels == ("1", "0")
    path = write("b.csv", "text,label,new,old\na,x,1,0\n")
    assert read_examples("classify", path).labels == ("x",)


@pytest.mark.parametrize("cells", [[[0, 1, 0], [1, 1, 0]], ["[0. 1. 0.]", "[1 1 0]"]])
def test_vectors_of_1_and_0_need_names(cells):
    table = {"text": ["a", "b"], "labels": cells}
    for names in ("x, y,z", ["x", "y", "z"]):
        assert read_examples("classify", table, label_names=names).labels == (("y",), ("x", "y"))
    assert read_examples("classify", table, labeled=False, label_names="x,y,z").labels is None
    separated = {"text": ["a", "b"], "labels": ["0;1", "1;1"]}
    options = {"multi_label": True, "separator": ";", "label_names": "x,y"}
    assert read_examples("classify", separated, **options).labels == (("y",), ("x", "y"))


@pytest.mark.parametrize(
    ("cells", "scores"),
    [
        (["3,5", "2", "1e1", ""], (3.5, 2, 10, None)),
        (["1,000", "2.5"], (None, 2.5)),  # 1 or 1000
        (["1.000", "2,5"], (None, None)),
        (["1,000", "2,5"], (1, 2.5)),
        (["40%", "5 %", "n/a"], (0.4, 0.05, None)),
        (["40%", "0.5"], (None, 0.5)),
        (["3,5%", "-1,25%"], (0.035, -0.0125)),
        (["\u22123", "\u20132.5", "+1"], (-3, -2.5, 1)),
        (["1_000", "\u0663", "1"], (None, None, 1)),
    ],
)
def test_a_number_is_read_as_it_is_meant_or_refused_with_its_value(cells, scores):
    table = {"text": ["a"] * len(cells), "score": cells, "documents": [*map(str, scores)]}
    known = [score for score in scores if score is not None]
    refused = [repr(cell) for cell, score in zip(cells, scores, strict=True) if score is None]
    if not known:
        with pytest.raises(ValueError, match=f"not a finite number .*{refused[0]}"):
            read_examples("regress", table)
        return
    examples = read_examples("regress", table)
    assert examples.labels == pytest.approx(known)
    assert bool(examples.notes) == (known[0] in (3.5, 1, 0.4, 0.035) and len(known) > 1)
    assert [place.partition(", ")[2] for place in examples.first_dropped.values()] == refused[:1]
    ranking = read_examples("rerank", table, text="text", text_b="documents", label="score")
    assert ranking.labels == (pytest.approx(known),)


def test_fit_takes_the_columns_of_a_data_frame_or_a_dictionary():
    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a b c".split()))
    bert = kb.BERTModel(8, 8, 16, num_heads=1, num_blks=1, dropout=0.0, max_len=8)
    labels = ["insult", "toxic"]
    model = kb.SequenceClassifier(bert, labels, multi_label=True, tokenizer=tokenizer)
    frame = pandas.DataFrame(JIGSAW)[:3]
    columns = frame[["toxic", "insult"]]
    model.compile(kb.BERTAdamW(1e-3), run_eagerly=True)
    model.fit(frame["comment_text"], columns, verbose=0)
    wanted = model.evaluate(frame["comment_text"], [[1, 1], [1, 0], [0, 0]], verbose=0)
    for y in (columns, columns.to_dict("list"), frame[["insult", "toxic"]].to_numpy()):
        np.testing.assert_allclose(model.evaluate(frame["comment_text"], y, verbose=0), wanted)
    with pytest.raises(ValueError, match=r"`y` must be columns named 'insult', 'toxic'.*'id'"):
        model.evaluate(frame["comment_text"], frame[["toxic", "id"]])
    assert kb.evaluate(model, frame[["comment_text", "toxic", "insult"]]).num_examples == 3
