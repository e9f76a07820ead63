"""The notebooks are those of the examples, and their cells run."""

import importlib.util
import json
import pathlib
import sys

import pytest

import keras_bert_d2l as kb

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts/notebooks.py")
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)

# Arguments for the examples that train on docstrings by default, which are long.
ARGUMENTS = {
    "01_pretrain_on_your_text": ["my_text/", "runs/new"],
    "02_the_books_chapter": ["wikitext-2"],
    "03_export_and_call": ["runs/mine"],
}
pytestmark = pytest.mark.parametrize("example", notebooks.EXAMPLES, ids=lambda path: path.stem)


def test_the_notebook_of_an_example_is_up_to_date(example):
    given = notebooks.output_path(example).read_text(encoding="utf-8")
    assert given == notebooks.notebook(example), "run: python scripts/notebooks.py"


def test_the_tutorials_link_to_the_notebook_in_colab(example):
    url = notebooks.colab_url(example)
    assert url in (ROOT / "docs/tutorials/index.md").read_text(encoding="utf-8")
    assert url in notebooks.output_path(example).read_text(encoding="utf-8")


def with_options(function, **options):
    """Return the function with other values of some options."""
    return lambda *arguments, **others: function(*arguments, **{**others, **options})


@pytest.mark.long
def test_the_cells_of_a_notebook_run(example, workplace, monkeypatch):
    cells = json.loads(notebooks.output_path(example).read_text(encoding="utf-8"))["cells"]
    install, *code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    assert install == notebooks.SETUP
    monkeypatch.setattr(sys, "argv", ["notebook", *ARGUMENTS.get(example.stem, [])])
    steps = {"steps": 4, "short_steps": 2, "vocab_size": 60, "max_len": 32}
    monkeypatch.setattr(kb, "pretrain", with_options(kb.pretrain, **steps))
    monkeypatch.setattr(kb, "finetune", with_options(kb.finetune, epochs=1))
    names = {"__name__": "__main__"}
    for cell in code:
        exec(cell, names)
