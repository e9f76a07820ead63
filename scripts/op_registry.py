r"""Write the audit's registry of operations: `keras_bert_d2l/serving/known_ops.txt`.

It lists the operations of TensorFlow and tensorflow-text by the releases that have them. The audit
allows those that all releases have.

    for version in 2.12 2.20; do
        uv venv -p 3.11 .venv-tf$version
        uv pip install -p .venv-tf$version/bin/python \
            "tensorflow==$version.*" "tensorflow-text==$version.*" "setuptools<80"
    done
    .venv/bin/python scripts/op_registry.py .venv-tf2.12/bin/python .venv-tf2.20/bin/python
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import textwrap

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


def main() -> None:
    """Query the interpreters and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", nargs="+", help="interpreters with older releases, ascending")
    releases: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for python in (*parser.parse_args().older, sys.executable):
        result = subprocess.run([python, "-c", _LIST], stdout=subprocess.PIPE, check=True)
        for release, ops in json.loads(result.stdout).items():
            package, version = release.split()
            for op in ops:
                releases[package, op].append(version)
    sections = collections.defaultdict(list)
    for (package, op), versions in sorted(releases.items()):
        sections[f"{package} {', '.join(versions)}"].append(op)
    lines = [_HEADER]
    for title, ops in sorted(sections.items()):
        words = textwrap.fill(" ".join(ops), 100, break_long_words=False)
        lines.append(f"[{title}]\n{words}\n")
        print(f"{len(ops):5} {title}")
    FILE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
