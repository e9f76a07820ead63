import contextlib
import dataclasses
import functools
import io
import re
import sys

import pytest
import yaml

from keras_bert_d2l.cli import input_output, main
from keras_bert_d2l.cli.commands import ask, checkpoints
from tests.eager import running_eagerly

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
    "evaluate_every": 2,
    "preset": "tiny",
}


@dataclasses.dataclass
class Result:
    """Output, exit code and exception of a command."""

    stdout: str
    stderr: str
    exit_code: int
    exception: BaseException | None


def invoke(*arguments, input=""):
    """Run the command in this process."""
    content = input.encode() if isinstance(input, str) else input
    stdin = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")
    stdout, stderr, exception = io.StringIO(), io.StringIO(), None
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        patch.setattr(sys, "stdin", stdin)
        try:
            main(list(map(str, arguments)))
        except SystemExit as exit:
            exit_code = exit.code or 0
        except Exception as error:
            exit_code, exception = 1, error
    return Result(stdout.getvalue(), stderr.getvalue(), exit_code, exception)


load = functools.cache(input_output.load)


@pytest.fixture(autouse=True)
def models_are_loaded_once(monkeypatch, eager_models):
    """Load each model once, because loading and tracing take far longer than predicting."""
    for module in (input_output, ask, checkpoints):
        monkeypatch.setattr(module, "load", load)


@pytest.fixture(scope="session", name="invoke")
def invoke_fixture():
    return invoke


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with `text.txt` and `small.yaml`, the options of a two-step run."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "text.txt").write_text(TEXT)
    (folder / "small.yaml").write_text(
        yaml.safe_dump({**SMALL, "cache_dir": str(folder / "cache")})
    )
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    """Return a function that runs the command in `folder` and checks its exit code."""
    monkeypatch.chdir(folder)

    def run(*arguments, exit_code=0, input=""):
        result = invoke(*arguments, input=input)
        assert result.exit_code == exit_code, (result.stderr, result.exception)
        return result

    return run


@pytest.fixture
def error(run):
    """Return a function that runs a command, which must print a one-line error and exit with 2."""

    def error(*arguments, input=""):
        stderr = run(*arguments, exit_code=2, input=input).stderr
        assert re.fullmatch(r"error: [^\n]+\n", stderr), stderr
        return stderr

    return error


@pytest.fixture(scope="session")
def trained(folder):
    """The folder of a finished run."""
    command = ["pretrain", "text.txt", "--config", "small.yaml", "--run-dir", "trained"]
    with pytest.MonkeyPatch.context() as patch, running_eagerly():
        patch.chdir(folder)
        assert invoke(*command).exit_code == 0
    return folder / "trained"
