#!/usr/bin/env bash
# Write the models in tests/checkpoints/formats/originals with the programs that define them.
# `family.py` needs transformers 5 and PyTorch, so it is run on its own, before this script.
# Usage: scripts/originals/build.sh FOLDER
# FOLDER gets an environment of old versions and one of KerasHub, 5 GB in all. Needs python3.11.
# The dates inside `fine_tuned.keras`, the presets of KerasHub and `family/tf_model_h5.zip` differ
# from build to build.
set -euo pipefail

here=$(dirname "$0") old=$1/old hub=$1/keras-hub
install=$here/../environment.sh
$install python3.11 "$old" -r "$here/requirements.txt"
$install python3.11 "$old" --no-deps -r "$here/requirements-alone.txt"
$install python3.11 "$hub" keras-hub==0.32.0 keras==3.15.1 tensorflow-cpu==2.21.0 \
    tensorflow-text==2.21.1

# TensorFlow 2.15 needs an old wrapt, whose C extension fails with today's typing_extensions.
export WRAPT_DISABLE_EXTENSIONS=true KERAS_BACKEND=tensorflow
export TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=-1
for script in tf_model_h5 model_garden tfhub family_h5; do
    TF_USE_LEGACY_KERAS=1 "$old/bin/python" "$here/$script.py"
done
"$old/bin/python" "$here/kerashub.py"
"$hub/bin/python" "$here/kerashub.py"
