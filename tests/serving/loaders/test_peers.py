"""Tests of exported models under TensorFlow 2.12.1.

TensorFlow Serving uses the tensorflow-text of this release. The tests need a separate environment
with Python 3.11 or older:

    python3.11 -m venv .venv-tf212
    .venv-tf212/bin/pip install tensorflow==2.12.1 tensorflow-text==2.12.1
"""

import os
import pathlib
import subprocess

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
VARIABLE = "KERAS_BERT_D2L_TF212"
ENVIRONMENT = HERE.parents[2] / ".venv-tf212" / "bin" / "python"


@pytest.fixture
def python():
    path = pathlib.Path(os.environ.get(VARIABLE, ENVIRONMENT))
    if not path.exists():
        pytest.skip(f"needs a Python with TensorFlow 2.12.1 in .venv-tf212 or {VARIABLE}")
    return path


@pytest.mark.long
def test_tensorflow_2_12_matches_the_models(
    python, served_models, questions_file, assert_answers, tmp_path
):
    """Uses the eager loader (requests from 8 threads) and graph mode."""
    version = (
        "import tensorflow, tensorflow_text as t; print(tensorflow.__version__, t.__version__)"
    )
    assert run(python, tmp_path, "-c", version) == "2.12.1 2.12.1\n"
    run(python, tmp_path, HERE / "ask.py", questions_file, "answers.npz", "8")
    arrays = np.load(tmp_path / "answers.npz")
    for name, served in served_models.items():
        for loader in ("eager", "graph"):
            answers = [{} for _ in served.requests]
            for key in arrays:
                of_loader, model, number, output = key.split("/")
                if (of_loader, model) == (loader, name):
                    answers[int(number)][output] = arrays[key]
            assert_answers(name, answers, f"2.12.1 {loader}")


def run(python, folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
