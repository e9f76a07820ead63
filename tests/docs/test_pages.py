"""The Python code and the command lines of the README and of docs/ run, with small models.

They run in a folder with models and files under the names of the page, in the order of the page,
and print what the page shows. The lines of `NOT_RUN` need something that a test does not have.
"""

import ast
import configparser
import contextlib
import io
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import keras
import pytest
import tensorflow as tf
from cyclopts import CycloptsError

import keras_bert_d2l as kb
from keras_bert_d2l import book
from keras_bert_d2l.cli import app
from keras_bert_d2l.contract import task as registry
from keras_bert_d2l.serving.server import local_server
from keras_bert_d2l.training.devices import make_strategy
from tests.cli.conftest import invoke

ROOT = pathlib.Path(__file__).parents[2]
REPOSITORY = "https://github.com/keras-bert-d2l/keras-bert-d2l"
FENCE = re.compile(r"^ *```(\w*)\n(?:.*\n)*? *```$", re.MULTILINE)
# The output of a block follows it, in a block without a language.
BLOCK = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>(?:.*\n)*?)```\n(?:\n```\n(?P<output>(?:.*\n)*?)```$)?",
    re.MULTILINE,
)
# A line of another library and ours, in the tables of docs/coming_from.md.
ROW = re.compile(r"^\| .+ \| `(?P<code>[^`]+)`[^|]*\|$", re.MULTILINE)
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
NOT_RUN = {  # pattern in a line -> reason
    r"^(pip|git clone|hf download|curl -LO|\S+/pip) ": "downloads packages, models or data",
    r"^tensorboard ": "runs until it is stopped",
    r"^make ": "runs itself; a test below compares it with the Makefile",
    r"^(docker|cd examples/serving)": "needs Docker",
    r"prometheus": "needs TensorFlow Serving",
    r"^hf upload": "needs an account of the Hugging Face Hub",
    r"^(srun|kubectl) |INGRESS": "needs a cluster",
    r"^(gcloud|aws) ": "needs an account of a cloud",
    r"mlflow models serve|localhost:5000": "needs a server of MLflow",
    r" s3://": "needs an object store; test_remote.py has one",
    r"^KERAS_BACKEND=jax ": "needs a process with JAX; test_jax_backend.py trains there",
    r"^python examples/datatrove": "needs datatrove; test_datatrove.py runs it",
    r"^python examples/beam": "needs Apache Beam; test_beam.py runs it",
    r"python (-m benchmarks|scripts/kill_)": "takes from minutes to hours",
}
ELLIPSIS = " --model minilm --epochs 1 --run-dir"  # what `...` stands for: other options
SMALLER = {"--blocks 2,4,6": "--blocks 1", "--workers 8": "--workers 1", "novels-small": "minilm"}
SMALLER |= {"384,256,128,64": "8,4", "--truncate-dim 64": "--truncate-dim 4"}
FIRST = {  # makes what other pages have made, and removes what the page makes
    ("docs/coming_from.md", "python"): "cp reviews.csv train.csv; rm -r runs/films",
    ("docs/tutorials/search.md", "sh"): "cp lines.txt candidates.txt",
    ("docs/tutorials/search.md", "python"): "rm -r saved_models",
    **dict.fromkeys(
        [("docs/tutorials/serve.md", "sh"), ("docs/hosts.md", "python")],
        "keras-bert-d2l export --model runs/reviews --out saved_models/reviews",
    ),
    ("docs/tutorials/your_own_labels.md", "python"): "rm -r runs/reviews",  # the page trains it
}
NIGHTLY = {  # pages whose Python code trains, exports or serves, as the README does every day
    *(f"docs/{name}.md" for name in ("accelerators", "coming_from", "fine_tuning", "hosts")),
    *(f"docs/{name}.md" for name in ("onnx", "pretraining", "relatives", "serving", "tasks_data")),
    "docs/the_book.md",
    *(f"docs/tutorials/your_own_{name}.md" for name in ("labels", "model", "text")),
    *(f"docs/tutorials/from_{name}.md" for name in ("tensorflow_hub", "transformers_tensorflow")),
    *(f"docs/tutorials/{name}.md" for name in ("search", "serve", "several_heads")),
}
PEERS = {"docs/hosts.md", "docs/onnx.md"}  # needs packages of the extra `peers`


def lines_of(block):
    """Return the command lines of a block that run, and the reasons not to run the others."""
    run, reasons = [], set()
    for line in re.sub(r"\\\n *", "", block["code"]).splitlines():
        line = re.sub(r"  +#.*", "", line).strip()
        why = next((why for found, why in NOT_RUN.items() if re.search(found, line)), None)
        reasons.add(why) if why else run.append(line)
    return run, reasons


def blocks_of(page, language):
    return [block for block in BLOCK.finditer(PAGES[page]) if block["language"] == language]


SHELL = {page: [lines_of(block) for block in blocks_of(page, "sh")] for page in PAGES}
LINES = {page: [line for lines, _ in blocks for line in lines] for page, blocks in SHELL.items()}


def parameters():
    """Return each page that has blocks of a language, marked by the time that it takes.

    Command lines run each night. Daily, `tests/cli` runs the commands, and a test below checks the
    options of all lines.
    """
    for page in PAGES:
        name = page + "-peers" * (page in PEERS)
        if blocks_of(page, "python") or page == "docs/coming_from.md":
            mark = pytest.mark.long if page in NIGHTLY else pytest.mark.slow
            yield pytest.param(page, "python", marks=mark, id=f"{name}-python")
        if LINES[page]:
            yield pytest.param(page, "sh", marks=pytest.mark.long, id=f"{name}-sh")


@pytest.mark.filterwarnings("ignore:Truncated to")  # the small models read few tokens
@pytest.mark.parametrize(("page", "language"), list(parameters()))
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page, language, workplace, monkeypatch):
    text, names = PAGES[page], {"kb": kb, "tf": tf}
    with contextlib.ExitStack() as stack:
        shell = Shell(stack, monkeypatch)
        use_small_things(text, monkeypatch)
        if language == "sh":
            use_short_runs(monkeypatch)
        if (page, language) in FIRST:
            shell.run(FIRST[page, language])
        if language == "python":
            for module in imported("".join(block["code"] for block in blocks_of(page, "python"))):
                pytest.importorskip(module)
            if "openai.OpenAI(" in text:
                shell.connect_openai(monkeypatch)
        for block in ROW.finditer(text) if page == "docs/coming_from.md" else ():
            exec(compile(block["code"], block["code"], "exec"), names)
        for block in blocks_of(page, language):
            line = text[: block.start("code")].count("\n")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                if language == "python":
                    exec(compile("\n" * line + block["code"], page, "exec"), names)
                else:
                    print(*map(shell.run, lines_of(block)[0]), sep="", end="")
            shown = block["output"]
            assert shown in (None, printed.getvalue()), f"{page}, {line}: {printed.getvalue()}"


def imported(code):
    """Return the names of the packages that the code imports."""
    nodes = [*ast.walk(ast.parse(code))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}


class Shell:
    """Runs command lines in this process, with servers in the background."""

    def __init__(self, stack, monkeypatch):
        self.stack, self.urls, client = stack, {}, kb.ServingClient
        monkeypatch.setattr(local_server, "serve", self.serve)

        def connect(url, name, **options):
            if url == "http://127.0.0.1:8501":  # the page assumes a server
                url = self.serve(f"saved_models/{name}", name=name)
            return client(url, name, **options)

        monkeypatch.setattr(kb, "ServingClient", connect)

    def connect_openai(self, monkeypatch):
        """Let OpenAI's client ask a server of this process."""
        import openai

        url = self.serve("saved_models/mine", name="mine")
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="any")
        monkeypatch.setattr(openai, "OpenAI", lambda **_: client)

    def serve(self, *paths, name, limits=None, host=None, port=None, **options):
        models = [local_server.load(path, **options) for path in paths]
        server = local_server.LocalServer(models, name, **({"limits": limits} if limits else {}))
        url = self.stack.enter_context(local_server.running(server))
        self.urls |= dict.fromkeys(server.models, url)
        return url

    def run(self, line):
        """Run a line and return its output."""
        if line.startswith("keras-bert-d2l "):
            return self.command(
                line.removesuffix(" &").replace(" ...", f"{ELLIPSIS} runs/{len(line)}")
            )
        for name, url in self.urls.items():
            if f"/models/{name}" in line or f'"model": "{name}"' in line:
                line = line.replace("localhost:8501", url)
        line = re.sub("^python ", f"{sys.executable} ", line)
        result = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, (line, result.stderr)
        assert '"error"' not in result.stdout, (line, result.stdout)
        return result.stdout

    def command(self, line):
        for large, small in SMALLER.items():
            line = line.replace(large, small)
        tokens = shlex.split(line)[1:]
        for option in {"--run-dir", "--out"} & set(tokens):  # a stand-in for another page
            shutil.rmtree(tokens[tokens.index(option) + 1], ignore_errors=True)
        result = invoke(*tokens)
        assert result.exit_code == 0, (line, result.stderr, result.exception)
        return result.stdout


def use_short_runs(monkeypatch):
    """Let the runs of commands end after two steps or one epoch."""
    pretrain, finetune = kb.pretrain, kb.finetune_files

    def few_steps(*, resume=False, minutes=None, **options):
        size = {} if resume else {"steps": 2, "batch_size": 4, "max_len": 40}
        return pretrain(resume=resume, **{**options, **size})

    monkeypatch.setattr(kb, "pretrain", few_steps)
    monkeypatch.setattr(kb, "finetune_files", lambda run, **o: finetune(run, **{**o, "epochs": 1}))


def use_small_things(text, monkeypatch):
    """Replace what a page uses and what is large, or what a process or a machine lacks."""
    if "MirroredStrategy" in text or "--strategy mirrored" in text:
        strategy = make_strategy("mirrored")  # a process must create only one
        monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: strategy)
    if text == PAGES["README.md"]:
        finetune = kb.finetune
        monkeypatch.setattr(kb, "finetune", lambda *given, **o: finetune(*given, epochs=1, **o))
    if "d2l.train_bert(" in text:
        train_bert = book.train_bert
        monkeypatch.setattr(book, "train_bert", lambda *given: train_bert(*given[:-1], 2))
    if "kb.distill(" in text:
        distill = kb.distill  # the teacher of this test has one block
        monkeypatch.setattr(
            kb, "distill", lambda teacher, texts, blocks, **o: distill(teacher, texts, [1], **o)
        )
    if "load_dataset" in text and "```python" in text:
        datasets = pytest.importorskip("datasets")
        label = datasets.ClassLabel(names=["negative", "positive"])
        features = datasets.Features({"sentence": datasets.Value("string"), "label": label})
        rows = {"sentence": ["a good film", "a bad film"] * 4, "label": [1, 0] * 4}
        data = datasets.Dataset.from_dict(rows, features)
        monkeypatch.setattr(
            datasets, "load_dataset", lambda *_: {"train": data, "validation": data}
        )
    if "register_task" in text:
        monkeypatch.setattr(registry, "_TASKS", registry.tasks())  # the page changes a copy
    if "plot_model" in text:
        pytest.importorskip("pydot")

        def plot(model, path, **options):  # the description of what Graphviz would draw
            keras.utils.model_to_dot(model, **options).write_raw(path)

        if shutil.which("dot") is None:
            monkeypatch.setattr(keras.utils, "plot_model", plot)


def test_every_block_is_python_or_shell_or_text():
    languages = {match[1] for text in PAGES.values() for match in FENCE.finditer(text)}
    assert languages == {"python", "sh", ""}
    for name, text in PAGES.items():
        for language in ("python", "sh"):
            assert text.count(f"\n```{language}\n") == len(blocks_of(name, language)), name
        plain = [match[0] for match in FENCE.finditer(text) if not match[1]]
        assert not any(re.search(r"^(keras-bert-d2l|pip) ", block, re.M) for block in plain), name
    tables = re.findall(r"^\|---.*\n((?:\|.*\n)+)", PAGES["docs/coming_from.md"], re.MULTILINE)
    assert "".join(tables).count("\n") == len(ROW.findall(PAGES["docs/coming_from.md"])) > 60


def test_the_command_lines_have_options_that_exist():
    code = "".join(block["code"] for page in PAGES for block in blocks_of(page, "sh"))
    lines = re.findall(r"^ *(keras-bert-d2l .*?)(?:  +#.*| &)?$", re.sub(r"\\\n *", "", code), re.M)
    assert len(set(lines)) > 80
    for line in set(lines):
        tokens = shlex.split(line.replace(" ...", f"{ELLIPSIS} x"))[1:]
        try:
            app.parse_args(tokens, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            pytest.fail(f"{line}: {error}")


def test_the_links_to_files_of_the_repository_lead_to_files():
    link = re.compile(rf"{re.escape(REPOSITORY)}/(?:blob|raw|tree)/main/([^)#\s]+)")
    paths = {path for text in PAGES.values() for path in link.findall(text)}
    assert len(paths) > 40
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_reason_not_to_run_a_line_is_needed():
    found = {why for blocks in SHELL.values() for _, reasons in blocks for why in reasons}
    assert found == set(NOT_RUN.values())


def test_the_installation_names_the_repository_an_extra_and_targets_that_exist():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    url, makefile = config["metadata"]["url"], (ROOT / "Makefile").read_text()
    installs, clone, *_ = (block["code"] for block in blocks_of("README.md", "sh"))
    assert installs.startswith(f'pip install "keras-bert-d2l[hub] @ git+{url}"\n')
    assert "hub" in config["options.extras_require"]
    assert clone.startswith(f"git clone {url} && cd keras-bert-d2l\n")
    targets = re.findall(r"^make (\w+)", clone, re.M)
    assert targets == ["demo", "test"]
    assert all(f"\n{target}: " in makefile for target in targets)
