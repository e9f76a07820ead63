#!/usr/bin/env bash
# Check the files of a wheel, install it in an empty environment, and run it from there.
# Usage: scripts/check_wheel.sh PYTHON WHEEL
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1 wheel=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$python" - "$wheel" <<'PYTHON'
import pathlib, re, sys, zipfile

wheel = zipfile.ZipFile(sys.argv[1])
packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
source = {
    path.as_posix()
    for path in pathlib.Path("keras_bert_d2l").rglob("*")
    if path.is_file() and path.suffix != ".pyc"
}
if packed != source:
    sys.exit(f"missing in the wheel: {source - packed or None}; surplus: {packed - source or None}")
(metadata,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
if relative := re.findall(r"\]\((?!https?:|#)[^)=]*\)", metadata):
    sys.exit(f"These links of README.md would not work on PyPI: {relative}")
print(f"{len(packed)} files, the same as in the source tree")
PYTHON

scripts/environment.sh "$python" "$scratch/venv" "$wheel"
cd "$scratch" # so that Python does not import from the source tree
venv/bin/python -c 'import keras_bert_d2l as kb; print(kb.__file__, kb.__version__, kb.Tokenizer)'
venv/bin/keras-bert-d2l --help
venv/bin/keras-bert-d2l fill-mask "she opened the [MASK] and looked out ."
