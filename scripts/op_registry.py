"""Write the audit's list of allowed ops: `keras_bert_d2l/serving/export/known_ops.txt`.

TF Serving's binary supports the ops of its TensorFlow release and of tensorflow-text 2.12.1. The
audit therefore allows the ops that both TensorFlow 2.12.1 and the installed release have, and the
ops of tensorflow-text 2.12.1. The file also lists the other ops of the installed release, so that
the audit can report where an op comes from.

    python3.11 -m venv .venv-tf212
    .venv-tf212/bin/pip install tensorflow==2.12.1 tensorflow-text==2.12.1
    .venv/bin/python scripts/op_registry.py .venv-tf212/bin/python
"""

import argparse
import json
import pathlib
import subprocess
import sys
import textwrap

FILE = pathlib.Path(__file__).parents[1] / "keras_bert_d2l" / "serving" / "export" / "known_ops.txt"
_HEADER = """\
# Ops by release. The audit allows the sections [known: ...]. Written by scripts/op_registry.py.
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
    """Query both interpreters and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", help="an interpreter with tensorflow and tensorflow-text 2.12.1")
    (core, in_core), (text, in_text) = _registry(parser.parse_args().older)
    (new_core, in_new_core), (new_text, in_new_text) = _registry(sys.executable)
    sections = {
        f"known: {core}, and still {new_core}": in_core & in_new_core,
        f"known: {text}": in_text,
        f"{core} alone": in_core - in_new_core,
        new_core: in_new_core - in_core,
        new_text: in_new_text - in_text,
    }
    lines = [_HEADER]
    for title, ops in sections.items():
        words = " ".join(sorted(ops))
        lines.append(f"[{title}]\n{textwrap.fill(words, 100, break_long_words=False)}\n")
        print(f"{len(ops):5} {title}")
    FILE.write_text("\n".join(lines), encoding="utf-8")


def _registry(python: str) -> list[tuple[str, set[str]]]:
    """Return the TensorFlow and tensorflow-text releases of an interpreter, with their ops."""
    result = subprocess.run([python, "-c", _LIST], stdout=subprocess.PIPE, check=True)
    return [(release, set(ops)) for release, ops in json.loads(result.stdout).items()]


if __name__ == "__main__":
    main()
