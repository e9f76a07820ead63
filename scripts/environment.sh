#!/usr/bin/env bash
# Create the environment FOLDER unless it exists, and install packages into it.
# Usage: scripts/environment.sh PYTHON FOLDER PACKAGE...
# uv installs in seconds what takes pip minutes. pip installs where uv fails, for example because
# packages come from an index that only pip's configuration knows. What this script needs is a Python
# and an index: it takes a uv that is on the PATH, and otherwise installs one into the environment.
set -euo pipefail

base=$1 folder=$2
shift 2
python=$folder/bin/python

# Prints the value of an option in pip's environment variables or configuration files, if it has one.
pip_option() { "$python" -m pip config list | sed -n "s/^[^=]*\.$1='\(.*\)'$/\1/p" | head -n 1; }

install_with_uv() {
    local uv=uv links index
    if ! uv --version >/dev/null 2>&1; then
        uv=$folder/bin/uv
        [[ -x $uv ]] || "$python" -m pip install --quiet uv || return
    fi
    links=$(pip_option find-links) index=$(pip_option index-url)
    if [[ -n $links ]]; then export UV_FIND_LINKS=${UV_FIND_LINKS:-$links}; fi
    if [[ -n $index ]]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}; fi
    # Without bytecode, each process compiles TensorFlow's sources, which takes 20 s.
    "$uv" pip install --quiet --compile-bytecode --python "$python" "$@"
}

[[ -x $python ]] || "$base" -m venv "$folder"
if ! install_with_uv "$@"; then
    echo "uv could not install the packages; pip installs them, which takes some minutes."
    "$python" -m pip install "$@" |
        { grep --line-buffered -oE '^(Collecting [A-Za-z0-9_.-]+|Installing collected packages)' || true; }
fi
