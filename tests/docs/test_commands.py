"""The command lines in the README and in docs/ run, with small models under the pages' names.

The lines of `NOT_RUN` need something that a test does not have. All other lines run, in the order
of their page, and print what the page shows. `python -m tests.docs.test_commands` counts them.
"""

import collections
import contextlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.cli import app
from keras_bert_d2l.serving.server import local_server
from keras_bert_d2l.serving.server.served_model import ServedModel
from tests.cli.conftest import invoke
from tests.docs.test_code_blocks import PAGES, use_one_strategy
from tests.nightly import nightly_except

# The output of a block follows it, in a block without a language.
BLOCK = re.compile(
    r"^```sh\n(?P<lines>(?:.*\n)*?)```\n(?:\n```\n(?P<output>(?:.*\n)*?)```$)?", re.MULTILINE
)
NOT_RUN = {  # pattern in a line -> reason
    r"^(pip|git clone|hf download|\S+/pip) ": "downloads packages or models",
    r"^make ": "runs itself; test_readme.py compares it with the Makefile",
    r"^(docker|cd examples/serving)": "needs Docker",
    r"prometheus": "needs TensorFlow Serving",
    r"^hf upload": "needs an account of the Hugging Face Hub",
    r"^srun ": "needs a cluster",
    r" s3://": "needs an object store; test_remote.py has one",
    r"--beam ": "needs a cluster; test_beam.py builds the same store",
    r"--strategy tpu": "needs a TPU",
    r"^KERAS_BACKEND=jax ": "needs a process with JAX; test_jax_backend.py trains there",
    r"^keras-bert-d2l launch": "needs several processes; test_processes.py launches them",
    r"^python examples/datatrove": "needs datatrove; test_datatrove.py runs it",
    r"python (-m benchmarks|scripts/kill_)": "takes from minutes to hours",
}
ELLIPSIS = " --model minilm --peek"  # what `...` stands for: other options
SMALLER = (
    ("--blocks 2,4,6", "--blocks 1"),
    ("--workers 8", "--workers 1"),
    ("novels-small", "minilm"),
)
NEEDED = {  # first
    "docs/doctor.md": "keras-bert-d2l pretrain my_text/ --run-dir runs/mine",
    "docs/tutorials/serve.md": "keras-bert-d2l export --model runs/reviews --out "
    "saved_models/reviews",
}


class Line(NamedTuple):
    """A command line, and the reason not to run it."""

    text: str
    reason: str | None


def lines_of(block):
    """Return the command lines of a block, without comments."""
    lines = re.sub(r"\\\n *", "", block["lines"]).splitlines()
    lines = [re.sub(r"  +#.*", "", line).strip() for line in lines]
    return [
        Line(line, next((why for found, why in NOT_RUN.items() if re.search(found, line)), None))
        for line in lines
    ]


LINES = {
    page: [x for b in BLOCK.finditer(text) for x in lines_of(b)] for page, text in PAGES.items()
}
LINES = {page: lines for page, lines in LINES.items() if lines}
RUN = [page for page, lines in LINES.items() if any(not line.reason for line in lines)]
ALL = [line for lines in LINES.values() for line in lines]
COMMANDS = {text.removesuffix(" &") for text, _ in ALL if text.startswith("keras-bert-d2l ")}


@pytest.mark.parametrize("line", sorted(COMMANDS))
def test_a_command_line_has_options_that_exist(line):
    line = line.replace(" ...", ELLIPSIS)
    app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)


def test_every_reason_not_to_run_a_line_is_needed():
    assert {reason for _, reason in ALL} - {None} == set(NOT_RUN.values())


def small_runs(monkeypatch):
    """Let runs end after two steps or one epoch."""
    pretrain, finetune = kb.pretrain, kb.finetune_files

    def few_steps(*, resume=False, minutes=None, **options):
        size = {} if resume else {"steps": 2, "batch_size": 4, "max_len": 40}
        return pretrain(resume=resume, **{**options, **size})

    monkeypatch.setattr(kb, "pretrain", few_steps)
    monkeypatch.setattr(kb, "finetune_files", lambda run, **o: finetune(run, **{**o, "epochs": 1}))


class Shell:
    """Runs command lines in this process, with servers in the background."""

    def __init__(self, stack, monkeypatch):
        self.stack, self.urls = stack, {}
        monkeypatch.setattr(local_server, "serve", self.serve)

    def serve(self, path, *, name, limits, host, port, **options):
        server = local_server.LocalServer(ServedModel(path, **options), name, limits=limits)
        self.urls[server.name] = self.stack.enter_context(local_server.running(server))

    def run(self, line):
        """Run a line and return its output."""
        if line.startswith("keras-bert-d2l "):
            return self.command(line.removesuffix(" &").replace(" ...", ELLIPSIS))
        for name, url in self.urls.items():
            if f"/models/{name}" in line:
                line = line.replace("localhost:8501", url)
        line = re.sub("^python ", f"{sys.executable} ", line)
        result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, (line, result.stderr)
        assert '"error"' not in result.stdout, (line, result.stdout)
        return result.stdout

    def command(self, line):
        for long, short in SMALLER:
            line = line.replace(long, short)
        tokens = shlex.split(line)[1:]
        for option in {"--run-dir", "--out"} & set(tokens):  # a stand-in for another page
            shutil.rmtree(tokens[tokens.index(option) + 1], ignore_errors=True)
        result = invoke(*tokens)
        healthy = (0, 1) if tokens[0] == "doctor" else (0,)
        assert result.exit_code in healthy, (line, result.stderr, result.exception)
        return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", nightly_except({"README.md"}, RUN))
def test_the_command_lines_of_a_page_run(page, workplace, monkeypatch):
    small_runs(monkeypatch)
    if "--strategy mirrored" in PAGES[page]:
        use_one_strategy(monkeypatch)
    with contextlib.ExitStack() as stack:
        shell = Shell(stack, monkeypatch)
        if page in NEEDED:
            shell.run(NEEDED[page])
        for block in BLOCK.finditer(PAGES[page]):
            printed = "".join(shell.run(text) for text, reason in lines_of(block) if not reason)
            assert block["output"] in (None, printed), page


if __name__ == "__main__":
    for why, count in collections.Counter(reason for _, reason in ALL).most_common():
        print(f"{count:4}  {why or 'run'}")
