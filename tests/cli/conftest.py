import re

import pytest
import yaml
from typer.testing import CliRunner

from keras_bert_d2l.cli import app

TEXT = "\n\n".join(
    "\n".join(f"the {animal} {verb} the {other} ." for verb in ("sees", "hears", "finds"))
    for animal in ("dog", "cat", "owl", "fox")
    for other in ("hare", "bird", "mouse")
)
SMALL = {
    "layout": "lines",
    "vocab_size": 60,
    "steps": 2,
    "batch_size": 2,
    "max_len": 16,
    "held_out": 0.3,
    "preset": "tiny",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with `text.txt` and `small.yaml`, the options of a run of two steps."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text(TEXT)
    (folder / "small.yaml").write_text(
        yaml.safe_dump({**SMALL, "cache_dir": str(folder / "cache")})
    )
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    """A function that runs the command in `folder`, and checks its exit code."""
    monkeypatch.chdir(folder)

    def run(*arguments, exit_code=0, input=None):
        result = CliRunner().invoke(app, list(map(str, arguments)), input=input)
        assert result.exit_code == exit_code, result.output
        return result

    return run


@pytest.fixture
def error(run):
    """A function that runs the command, which has to end with one line on stderr and code 2."""

    def error(*arguments):
        stderr = run(*arguments, exit_code=2).stderr
        assert re.fullmatch(r"error: [^\n]+\n", stderr), stderr
        return stderr

    return error


@pytest.fixture(scope="session")
def trained(folder):
    """The folder of a finished run."""
    command = ["pretrain", "text.txt", "--config", "small.yaml", "--run-dir", "trained"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert CliRunner().invoke(app, command).exit_code == 0
    return folder / "trained"
