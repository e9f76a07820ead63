"""Every stage of a command that may take long shows its progress."""

import contextlib

import pytest

from keras_bert_d2l import progress

LINES = [f"the dog sees the hare {number} ." for number in range(5)]


@pytest.fixture
def titles(monkeypatch):
    """The titles of the stages that are displayed."""
    found = []

    class Display:
        def __init__(self, stage):
            found.append(stage.title)

        def start(self):
            pass

        end, erased = start, lambda self: contextlib.nullcontext()

    monkeypatch.setattr(progress, "_Display", Display)
    return found


@pytest.mark.long
def test_every_stage_of_the_workflow_is_displayed(run, folder, titles, tmp_path):
    (folder / "five.txt").write_text("".join(f"{line}\n" for line in LINES))
    loading = "Loading TensorFlow and the model"
    run("vocab", "text.txt", "--layout", "lines", "--vocab-size", 60, "--out", "stages.txt")
    assert titles[-2:] == ["Learning the vocabulary", "Measuring its coverage"]
    titles.clear()
    run("prepare", "text.txt", "--layout", "lines", "--vocab", "stages.txt", "--out", "stages")
    assert titles == ["Tokenizing", "Checking the token store"]
    titles.clear()
    # Other tests have tokenized the same text.
    cache = ("--cache-dir", tmp_path)
    run("pretrain", "text.txt", "--config", "small.yaml", "--run-dir", "staged", *cache)
    assert titles == [
        "Learning the vocabulary",
        "Tokenizing the text",
        "Checking the token store",
        "Evaluating the initial weights",
        "Training",
    ]
    model = ("--model", "staged")
    for command, title in (
        ("perplexity", "Predicting"),
        ("embed", "Encoding"),
        ("features", "Extracting features"),
        ("similar", "Predicting"),
    ):
        texts = ["the [MASK] runs"] if command == "similar" else []
        out = ["--out", "five.jsonl"] if command == "features" else []
        titles.clear()
        run(command, *texts, "--file", "five.txt", *model, *out)
        assert titles[:2] == [loading, title], command
    titles.clear()
    run("export", *model, "--out", "staged_export")
    assert titles == [loading, "Exporting the model"]
