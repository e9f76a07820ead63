"""Every block of Python code in the README and in docs/ runs, and prints what the page shows."""

import ast
import contextlib
import io
import pathlib
import re
import shutil

import keras
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.serving.server.local_server import LocalServer, running
from keras_bert_d2l.serving.server.served_model import ServedModel
from keras_bert_d2l.tasks import task
from keras_bert_d2l.training.devices.distribution import make_strategy

ROOT = pathlib.Path(__file__).parents[2]
FENCE = re.compile(r"^ *```(\w*)\n(?:.*\n)*? *```$", re.MULTILINE)
# The output of a block follows it, in a block without a language.
BLOCK = re.compile(
    r"^```python\n(?P<code>(?:.*\n)*?)```\n(?:\n```\n(?P<output>(?:.*\n)*?)```$)?", re.MULTILINE
)
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}

LONG = {  # these pages train
    *(f"docs/{name}.md" for name in ("accelerators", "fine_tuning", "onnx", "pretraining")),
    *(f"docs/{name}.md" for name in ("tasks_data", "the_book", "tutorials/your_own_labels")),
}
# These pages need packages of the extra `peers`.
PEERS = {"docs/onnx.md"}


def parameter(page):
    """Return a page as a parameter of a test, marked by the time that it takes."""
    marks = pytest.mark.long if page in LONG else pytest.mark.slow
    return pytest.param(page, marks=marks, id=page + "-peers" * (page in PEERS))


def test_every_block_is_python_or_shell_or_text():
    languages = {match[1] for text in PAGES.values() for match in FENCE.finditer(text)}
    assert languages == {"python", "sh", ""}
    for name, text in PAGES.items():
        assert text.count("```python") == len(BLOCK.findall(text)), name
        plain = [match[0] for match in FENCE.finditer(text) if not match[1]]
        assert not any(re.search(r"^(keras-bert-d2l|pip) ", block, re.M) for block in plain), name


def use_one_strategy(monkeypatch):
    """A process must create only one."""
    strategy = make_strategy("mirrored")
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: strategy)


def use_own_server(monkeypatch, stack):
    """The client asks a server of this test instead of the one that the page assumes."""
    client = kb.ServingClient

    def connect(url, name, **options):
        if url == "http://127.0.0.1:8501":
            server = LocalServer(ServedModel(f"saved_models/{name}"), name)
            url = stack.enter_context(running(server))
        return client(url, name, **options)

    monkeypatch.setattr(kb, "ServingClient", connect)


def use_small_dataset(monkeypatch):
    """Hugging Face's `load_dataset` returns a few rows."""
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["negative", "positive"])
    features = datasets.Features({"sentence": datasets.Value("string"), "label": label})
    rows = {"sentence": ["a good film", "a bad film"] * 4, "label": [1, 0] * 4}
    data = datasets.Dataset.from_dict(rows, features)
    splits = {"train": data, "validation": data}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: splits)


def use_small_teacher(monkeypatch):
    """The teacher of this test has one block."""
    distill = kb.distill
    monkeypatch.setattr(kb, "distill", lambda teacher, texts, blocks: distill(teacher, texts, [1]))


def use_pictures_as_text(monkeypatch):
    """Without Graphviz, write the description of the picture that Graphviz would draw."""
    pytest.importorskip("pydot")

    def plot(model, path, **options):
        keras.utils.model_to_dot(model, **options).write_raw(path)

    if shutil.which("dot") is None:
        monkeypatch.setattr(keras.utils, "plot_model", plot)


@pytest.mark.parametrize("page", [parameter(page) for page in PAGES if BLOCK.search(PAGES[page])])
def test_the_code_of_a_page_runs(page, workplace, monkeypatch):
    text, names = PAGES[page], {}
    for module in imported("".join(block["code"] for block in BLOCK.finditer(text))):
        pytest.importorskip(module)
    if 'dev, "runs/reviews"' in text:
        shutil.rmtree("runs/reviews")  # the page trains it
    with contextlib.ExitStack() as stack:
        if "MirroredStrategy" in text:
            use_one_strategy(monkeypatch)
        if "load_dataset" in text:
            use_small_dataset(monkeypatch)
        if "kb.distill(" in text:
            use_small_teacher(monkeypatch)
        if "register_task" in text:
            monkeypatch.setattr(task, "_TASKS", task.tasks())  # the page changes a copy
        if "plot_model" in text:
            use_pictures_as_text(monkeypatch)
        use_own_server(monkeypatch, stack)
        for block in BLOCK.finditer(text):
            line = text[: block.start("code")].count("\n")
            code = compile("\n" * line + block["code"], page, "exec")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, names)
            if block["output"] is not None:
                assert printed.getvalue() == block["output"], (
                    f"{page}, line {line}: {printed.getvalue()}"
                )


def imported(code):
    """Return the names of the packages that the code imports."""
    nodes = [*ast.walk(ast.parse(code))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names}
