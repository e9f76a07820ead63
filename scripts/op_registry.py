r"""Write the audit's registry of operations: `keras_bert_d2l/serving/known_ops.txt`.

It lists the operations of TensorFlow and tensorflow-text by the releases that have them. The audit
allows those that 2.12 and all later releases have.

    for version in 2.12 2.20; do
        uv venv -p 3.11 .venv-tf$version
        uv pip install -p .venv-tf$version/bin/python \
            "tensorflow==$version.*" "tensorflow-text==$version.*" "setuptools<80"
    done
    pip download --no-deps --only-binary=:all: --python-version 39 tensorflow-cpu==2.6.5  # etc.
    .venv/bin/python scripts/op_registry.py .venv-tf2.12/bin/python .venv-tf2.20/bin/python \
        --wheels tensorflow_cpu-2.6.5-*.whl tensorflow_cpu-2.8.4-*.whl ...

Of the releases in wheels, it reads the wrappers of the operations. Some operations have none. An
operation that an older and a newer release have is in the releases between them.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import textwrap
import zipfile

FILE = pathlib.Path(__file__).parents[1] / "keras_bert_d2l" / "serving" / "known_ops.txt"
_HEADER = """\
# Operations by the releases that have them. Written by scripts/op_registry.py.
"""

# Runs in each interpreter. The ops that `import tensorflow_text` registers are tensorflow-text's.
_LIST = """
import json, os
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session as c_api

def registered():
    content = c_api.TF_GetBuffer(c_api.TF_GetAllOpList())
    return {op.name for op in op_def_pb2.OpList.FromString(content).op}

of_tensorflow = registered()
import tensorflow_text
of_text = registered() - of_tensorflow
print(json.dumps({
    f"tensorflow {tf.__version__}": sorted(of_tensorflow),
    f"tensorflow-text {tensorflow_text.__version__}": sorted(of_text),
}))
"""


def _wrapped(wheel: pathlib.Path) -> set[str]:
    """Return the operations for which a wheel has wrappers in Python."""
    with zipfile.ZipFile(wheel) as files:
        names = [name for name in files.namelist() if re.search(r"/gen_\w+_ops\.py$", name)]
        text = "\n".join(files.read(name).decode() for name in names)
    return {*re.findall(r'_apply_op_helper\(\s*"([^"]+)"', text)}


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def main() -> None:
    """Query the interpreters and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", nargs="+", help="interpreters with older releases, ascending")
    parser.add_argument("--wheels", nargs="*", default=[], type=pathlib.Path)
    options = parser.parse_args()
    releases: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for python in (*options.older, sys.executable):
        result = subprocess.run([python, "-c", _LIST], stdout=subprocess.PIPE, check=True)
        for release, ops in json.loads(result.stdout).items():
            package, version = release.split()
            for op in ops:
                releases[package, op].add(version)
    in_wheels = {wheel.name.split("-")[1]: _wrapped(wheel) for wheel in options.wheels}
    sections = collections.defaultdict(list)
    for (package, op), versions in sorted(releases.items()):
        if package == "tensorflow":
            ends = min(versions, key=_number), max(versions, key=_number)
            for version, ops in in_wheels.items():
                is_between = _number(ends[0]) < _number(version) < _number(ends[1])
                if op in ops or is_between:
                    versions.add(version)
        sections[f"{package} {', '.join(sorted(versions, key=_number))}"].append(op)
    lines = [_HEADER]
    for title, ops in sorted(sections.items()):
        words = textwrap.fill(" ".join(ops), 100, break_long_words=False)
        lines.append(f"[{title}]\n{words}\n")
        print(f"{len(ops):5} {title}")
    FILE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
