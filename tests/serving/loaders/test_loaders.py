"""Tests of exported models in programs that do not use this package.

Each program gives the outputs of `ServedModel`, which other tests compare with those of the models.
The tests with TensorFlow 2.12.1 need an environment with Python 3.11 or older:

    python3.11 -m venv .venv-tf212
    .venv-tf212/bin/pip install tensorflow==2.12.1
"""

import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.tasks.embed.predictions import embed
from tests import family
from tests.serving.conftest import NAMES

HERE = pathlib.Path(__file__).parent
TF212_VARIABLE = "KERAS_BERT_D2L_TF212"
TOLERANCE = 1e-5
LOADERS = ("eager", "graph")
EVERY = dict.fromkeys(NAMES, LOADERS)
DAILY = {"answerer": ["eager", "graph"]}
TEXTS = (
    "red [MASK]",
    "",
    "[MASK] blue [MASK]ish green",
    "Reddish, green",
    "Ünïcödé 日本 🙂\tblue [SEP] \x7f",
    "red green " * 12 + "[MASK]",
)
ROWS = {
    "tokens": np.arange(18, dtype=np.int32).reshape(6, 3) % 9,
    "segments": np.arange(18, dtype=np.int32).reshape(6, 3) % 2,
    "valid_lens": np.int32([1, 2, 3, 3, 2, 1]),
    "pred_positions": np.zeros((6, 2), np.int32),
}


@pytest.fixture(scope="session")
def asked(load):
    """A function that returns requests to a model and their outputs: (signature, inputs, outputs).

    The requests are to every signature, with several batch sizes.
    """

    @functools.cache
    def asked(name):
        model = load(name)
        return [(*request, model.ask(*request)) for request in requests(model.interfaces)]

    return asked


def requests(interfaces):
    for size in (len(TEXTS), 1, 0):
        text = np.array([text.encode() for text in TEXTS[:size]], object)
        for signature, (specs, _) in interfaces.items():
            strings = dict(zip(specs, (text, text[::-1]), strict=False))
            if "words" in specs:
                strings["words"] = np.stack([text, text[::-1]], axis=1)
            if "query" in specs:
                strings["query"] = np.array(TEXTS[2].encode(), object)
            if signature == "tokens":
                yield signature, {name: ROWS[name][:size] for name in specs}
            else:
                yield signature, strings


@pytest.fixture
def ask_tensorflow(asked, export, tmp_path):
    """A function that asks models in a process with TensorFlow alone, and compares the outputs."""

    def ask_tensorflow(python, loaders):
        questions = {
            name: {
                "folder": str(export(name)),
                "loaders": loaders[name],
                "requests": [
                    [signature, {name: as_json(array) for name, array in inputs.items()}]
                    for signature, inputs, _ in asked(name)
                ],
            }
            for name in loaders
        }
        (tmp_path / "questions.json").write_text(json.dumps(questions), encoding="utf-8")
        run([python, HERE / "ask.py", "questions.json", "answers.npz"], cwd=tmp_path)
        arrays = dict(np.load(tmp_path / "answers.npz"))
        for name in loaders:
            for loader in loaders[name]:
                for number, (*_, expected) in enumerate(asked(name)):
                    prefix = f"{loader}/{name}/{number}/"
                    given = {key: arrays[prefix + key] for key in expected}
                    assert_equal(given, expected, prefix)

    return ask_tensorflow


@pytest.mark.slow
@pytest.mark.parametrize("loaders", [DAILY, pytest.param(EVERY, marks=pytest.mark.long)])
def test_plain_tensorflow_gives_the_same_outputs(loaders, ask_tensorflow):
    ask_tensorflow(sys.executable, loaders)


@pytest.fixture
def tensorflow_2_12():
    """A Python with TensorFlow 2.12.1."""
    default = HERE.parents[2] / ".venv-tf212" / "bin" / "python"
    python = pathlib.Path(os.environ.get(TF212_VARIABLE, default))
    if not python.exists():
        pytest.skip(f"needs a Python with TensorFlow 2.12.1 in .venv-tf212 or {TF212_VARIABLE}")
    version = "import tensorflow; print(tensorflow.__version__)"
    assert run([python, "-c", version]) == "2.12.1\n"
    return python


@pytest.mark.long
def test_tensorflow_2_12_gives_the_same_outputs(ask_tensorflow, tensorflow_2_12):
    ask_tensorflow(tensorflow_2_12, EVERY)


@pytest.mark.long
@pytest.mark.parametrize("name", family.PRESETS)
def test_tensorflow_2_12_answers_strings_of_relatives(name, tensorflow_2_12, tmp_path):
    model = family.bert_of(name)
    folder = export_saved_model(model, tmp_path)
    script = (
        "import json, sys, tensorflow as tf\n"
        "embed = tf.saved_model.load(sys.argv[1]).signatures['embed']\n"
        "print(json.dumps(embed(text=tf.constant(sys.argv[2:]))['embedding'].numpy().tolist()))"
    )
    texts = ["the cat sat on a mat", "", "Café 猫 <mask> zz  Paris", "x" * 40]
    answer = json.loads(run([tensorflow_2_12, "-c", script, folder, *texts]))
    np.testing.assert_allclose(answer, embed(model, texts), atol=1e-5)


def run(command, cwd=None):
    # Another release of TensorFlow must not import this package or its dependencies.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def assert_equal(given, expected, where):
    for name, array in expected.items():
        assert given[name].shape == array.shape, (where, name)
        if array.dtype == np.float32:
            np.testing.assert_allclose(given[name], array, TOLERANCE, TOLERANCE, err_msg=where)
        else:
            np.testing.assert_array_equal(given[name], array, f"{where} {name}")


def as_json(array):
    values = array.ravel().tolist()
    if array.dtype != object:
        return [array.dtype.name, array.shape, values]
    return ["string", array.shape, [value.decode("latin-1") for value in values]]
