"""What every test stands on: two CPU devices, a clean Keras, the data folder, a fresh process."""

import gc
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

# Read when TensorFlow and Keras start: they have to be set before the imports below.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # the expected numbers are those of a CPU

import keras
import pytest
import tensorflow as tf

# Two devices on one CPU, for MirroredStrategy; possible only before TensorFlow first runs an op.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# Tests press Ctrl-C, which a shell has its background jobs ignore, and they their children.
signal.signal(signal.SIGINT, signal.default_int_handler)

FRESH_PROCESS_SECONDS = 300


def pytest_collection_finish():
    """Keeps the garbage collector, a twelfth of the time, from what the imports have made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of corpora, checkpoints and golden files that do not travel with the project."""
    folder = os.environ.get("KERAS_BERT_D2L_DATA")
    if not folder:
        pytest.skip("needs the data folder: set KERAS_BERT_D2L_DATA to its path")
    return Path(folder)


@pytest.fixture(scope="session")
def minilm_dir(data_dir, tmp_path_factory) -> Path:
    """The folder of all-MiniLM-L6-v2 as Hugging Face has it, with its real weights."""
    folder = tmp_path_factory.mktemp("minilm")
    script = data_dir / "checkpoints/all-MiniLM-L6-v2/get.sh"
    result = subprocess.run(["bash", script, folder], capture_output=True, text=True, timeout=300)
    if result.returncode:
        pytest.skip(f"needs the weights of all-MiniLM-L6-v2: {result.stderr.strip()[-200:]}")
    return folder


@pytest.fixture(autouse=True)
def clean_keras():
    """Seeds every generator before a test and takes back what a test set for the whole process."""
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")
    keras.distribution.set_distribution(None)


@pytest.fixture
def fresh_process(tmp_path):
    """A function that runs Python code in an interpreter of its own and returns what it prints.

    `run(code, *arguments, **environment)`: the code stands in an empty folder, finds `arguments` in
    `sys.argv[1:]` and sees `environment` beside the variables of this process. The test fails with
    the whole of stderr if the code does.
    """
    package = importlib.util.find_spec("keras_bert_d2l")
    package_parent = str(Path(package.submodule_search_locations[0]).parent)

    def run(code: str, *arguments: object, **environment: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": package_parent, **environment},
            capture_output=True,
            text=True,
            timeout=FRESH_PROCESS_SECONDS,
        )
        if result.returncode:
            pytest.fail(f"the fresh process ended with {result.returncode}:\n{result.stderr}")
        return result.stdout

    return run
