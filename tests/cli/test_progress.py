"""Every stage of a command that may take long shows its progress."""

import contextlib

import pytest

from keras_bert_d2l import progress
from keras_bert_d2l.cli.commands import ask, checkpoints
from keras_bert_d2l.cli.input_output import load

LINES = [f"the dog sees the hare {number} ." for number in range(5)]


@pytest.fixture
def titles(monkeypatch):
    """The titles of the stages that are displayed."""
    found = []

    class Bars:
        num_open = 0

        def add_task(self, title, total, stage):
            if not self.num_open:  # those within it are not listed
                found.append(title)
            self.num_open += 1

        def remove_task(self, row):
            self.num_open -= 1

        start = stop = lambda self: None

    monkeypatch.setattr(progress, "_display", lambda: contextlib.nullcontext(Bars()))
    for module in (ask, checkpoints):  # other tests load each model once
        monkeypatch.setattr(module, "load", load)
    return found


@pytest.mark.long
def test_every_stage_of_the_workflow_is_displayed(run, folder, titles, tmp_path):
    (folder / "five.txt").write_text("".join(f"{line}\n" for line in LINES))

    def stages(*command):
        titles.clear()
        run(*command)
        return titles

    text = ("text.txt", "--layout", "lines")
    learning, checking = "Learning the vocabulary", "Checking the token store"
    assert stages("vocab", *text, "--vocab-size", 60, "--out", "stages.txt") == [learning]
    found = stages("prepare", *text, "--vocab", "stages.txt", "--out", "stages")
    assert found == ["Tokenizing", checking]
    cache = ("--cache-dir", tmp_path)  # other tests have tokenized the same text
    found = stages("pretrain", "text.txt", "--config", "small.yaml", "--run-dir", "staged", *cache)
    evaluating = "Evaluating the initial weights"
    assert found == [learning, "Tokenizing the text", checking, evaluating, "Training"]
    loading = "Loading TensorFlow and the model"
    lines = ("--file", "five.txt", "--model", "staged")
    for command, title in (
        (("perplexity",), "Predicting"),
        (("embed",), "Encoding"),
        (("embed", "--layers", "0", "--out", "five.jsonl"), "Extracting features"),
        (("similar", "the [MASK] runs"), "Predicting"),
    ):
        assert stages(*command, *lines)[:2] == [loading, title], command
    found = stages("export", "--model", "staged", "--out", "staged_export")
    assert found == [loading, "Exporting the model"]
