"""The command lines in the README and in docs/ have commands and options that exist."""

import pathlib
import re
import shlex

import pytest

from keras_bert_d2l.cli import app

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = "".join(
    block
    for page in PAGES
    for block in re.findall(r"^```sh\n(.+?)^```", page.read_text(), re.M | re.S)
)
LINES = re.findall(r"^keras-bert-d2l (.+)$", SHELL.replace("\\\n", ""), re.MULTILINE)


@pytest.mark.parametrize("line", sorted(set(LINES)))
def test_a_command_line_has_options_that_exist(line):
    tokens = [token for token in shlex.split(line, comments=True) if token != "&"]
    if tokens[-1] == "...":
        tokens[-1:] = ["--model", "minilm", "--run-dir", "runs/new"]
    app.parse_args(tokens, exit_on_error=False, print_error=False)
