"""Fixtures and settings for all tests.

Fixtures for a single folder of tests are in the `conftest.py` of that folder.
"""

import gc
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest.mock
import uuid
from pathlib import Path

# TensorFlow and Keras read these variables when they are imported below.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The tests run in several processes, and small models gain nothing from more threads.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # the expected numbers were computed on a CPU
# XLA compiles small models in half the time without optimizing them.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

# Tests share what JAX compiles, in a folder of their own instead of the user's.
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit the variable
    COMPILED = tempfile.TemporaryDirectory(prefix="keras_bert_d2l-compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# No test needs the network. `huggingface_hub` reads this variable when it is imported.
os.environ["HF_HUB_OFFLINE"] = "1"

# Keras imports scikit-learn if it is installed, which takes a fifth of the import time.
sys.modules["sklearn"] = None
import keras  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402

from tests.chromium import browser, find_chromium  # noqa: E402
from tests.eager import running_eagerly  # noqa: E402
from tests.local_hub import LocalHub  # noqa: E402

del sys.modules["sklearn"]

# Two logical devices for MirroredStrategy. They must be set before TensorFlow runs its first op.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# Some tests send SIGINT, which background jobs of a shell and their children ignore by default.
signal.signal(signal.SIGINT, signal.default_int_handler)

FRESH_PROCESS_SECONDS = 300
WITHOUT_SKLEARN = "import sys; sys.modules['sklearn'] = None\n"  # as above


def pytest_collection_finish():
    """Exclude imported objects from garbage collection, which saves a twelfth of the run time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of corpora, checkpoints and golden files outside the repository."""
    folder = os.environ.get("KERAS_BERT_D2L_DATA")
    if not folder:
        pytest.skip("needs the data folder: set KERAS_BERT_D2L_DATA to its path")
    return Path(folder)


@pytest.fixture(scope="session")
def tensorflow_text():
    """Return the library tensorflow-text, which only comparisons and foreign exports need."""
    return pytest.importorskip("tensorflow_text", reason="needs tensorflow-text")


@pytest.fixture(scope="session")
def minilm_dir(data_dir, tmp_path_factory) -> Path:
    """Return a folder with Hugging Face's checkpoint of all-MiniLM-L6-v2."""
    folder = tmp_path_factory.mktemp("minilm")
    script = data_dir / "checkpoints/all-MiniLM-L6-v2/get.sh"
    result = subprocess.run(["bash", script, folder], capture_output=True, text=True, timeout=300)
    if result.returncode:
        pytest.skip(f"needs the weights of all-MiniLM-L6-v2: {result.stderr.strip()[-200:]}")
    return folder


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """Return a page of a Chromium without a network."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("needs Chromium or Chrome")
    with browser(chromium, tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture(autouse=True)
def clean_keras():
    """Seed all generators before each test, and reset global settings after it.

    `tf.random.set_seed` would also discard the kernels of all functions that earlier tests called.
    TensorFlow takes seconds to prepare them again.
    """
    with unittest.mock.patch("tensorflow.random.set_seed"):
        keras.utils.set_random_seed(0)
    context.context()._seed, context.context()._rng = 0, random.Random(0)
    yield
    keras.config.set_dtype_policy("float32")
    keras.distribution.set_distribution(None)


@pytest.fixture
def eager_models():
    """Run all models eagerly."""
    with running_eagerly():
        yield


@pytest.fixture
def few_objects_to_collect():
    """Keras collects garbage for each layer it quantizes, which is slow after many other tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def local_hub(tmp_path_factory, monkeypatch):
    """A local server in place of the Hugging Face Hub, with an empty cache.

    The cache is not in `tmp_path`, because a test may serve that folder, and a server that lists a
    folder must not meet files that a download is writing there.
    """
    cache = tmp_path_factory.mktemp("hub_cache")
    constants = pytest.importorskip("huggingface_hub.constants")
    with LocalHub() as hub:
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
        yield hub


@pytest.fixture
def fresh_process(tmp_path):
    """Return a function that runs Python code in a new interpreter and returns its output.

    `run(code, *arguments, **environment)` runs the code in an empty folder, with `arguments` in
    `sys.argv[1:]` and with `environment` added to the environment variables of this process. If the
    code fails, the test fails and shows stderr.
    """
    package = importlib.util.find_spec("keras_bert_d2l")
    package_parent = str(Path(package.submodule_search_locations[0]).parent)

    def run(code: str, *arguments: object, **environment: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", WITHOUT_SKLEARN + textwrap.dedent(code), *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": package_parent, **environment},
            capture_output=True,
            text=True,
            timeout=FRESH_PROCESS_SECONDS,
        )
        if result.returncode:
            pytest.fail(f"the new process exited with {result.returncode}:\n{result.stderr}")
        return result.stdout

    return run


@pytest.fixture(scope="session")
def s3_server():
    """A local server with the interface of S3."""
    if not all(map(importlib.util.find_spec, ("moto", "s3fs", "flask"))):
        pytest.skip("needs moto[server] and s3fs")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.slow)])
def bucket(request, tmp_path, monkeypatch):
    """The URL of an empty folder in an object store."""
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "file":
        return f"file://{tmp_path}/bucket"
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", request.getfixturevalue("s3_server"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    name = f"s3://{uuid.uuid4().hex}"
    fsspec.filesystem("s3", skip_instance_cache=True).mkdir(name)
    return f"{name}/folder"


@pytest.fixture
def write(tmp_path):
    """A function that writes a file and returns its path."""

    def write_file(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file
