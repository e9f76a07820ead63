"""Keep the report of a run up to date while it trains."""

import collections
import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping

import keras
import tensorflow as tf

from keras_bert_d2l.training.devices.distribution import is_first
from keras_bert_d2l.training.report.report import run_report
from keras_bert_d2l.training.run.run_folder import RunFolder

_CPU_INFO = pathlib.Path("/proc/cpuinfo")  # on Linux


class RunRecorder:
    """Writes `report.html`, and `report.jsonl` with what it needs besides the other files.

    The weights of the run do not depend on either, so an error only causes a warning.

    Args:
        run: The folder of the run.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run

    def add_start(self, step: int, describe: Callable[[], Mapping[str, object]]) -> None:
        """Record this machine, and what a function returns about the model and the data."""
        self.add(step, lambda: {"machine": machine(), **describe()})

    def add(self, step: int, observe: Callable[[], Mapping[str, object]]) -> None:
        """Record what a function returns about an evaluation."""
        with self._warn_of_errors(step):
            line = {"step": step, "time": round(time.time(), 1), **observe()}
            if not is_first():  # all processes observe, because predictions communicate
                return
            with open(self.run.records_file, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")

    def write(self, step: int) -> None:
        """Write the report."""
        with self._warn_of_errors(step):
            if is_first():
                run_report(self.run, self.run.report)

    @contextlib.contextmanager
    def _warn_of_errors(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            warnings.warn(
                f"{os.fspath(self.run.report)!r} lacks the evaluation at step {step:,}, because of "
                f"{type(error).__name__}: {error} The training continues.",
                RuntimeWarning,
                stacklevel=4,
            )


def machine() -> dict[str, str]:
    """Return the processors, the system and the versions that a run uses."""
    backend = keras.backend.backend()
    packages = ["keras-bert-d2l", "keras", *{"tensorflow", backend}]
    accelerators = collections.Counter(_accelerators(backend))
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "accelerators": ", ".join(f"{n} x {name}" for name, n in accelerators.items()) or "none",
        "system": platform.platform(),
        "backend": backend,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in sorted(packages)},
    }


def _processor() -> str:
    text = _CPU_INFO.read_text() if _CPU_INFO.is_file() else ""
    named = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def _accelerators(backend: str) -> list[str]:
    if backend == "jax":
        import jax

        return [device.device_kind for device in jax.devices() if device.platform != "cpu"]
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return [detail.get("device_name", "GPU") for detail in details]
