"""Tests of exported models in programs that do not use this package.

`pytest tests/serving/loaders -s` prints the table of differences.
"""

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.audit import read_saved_model

HERE = pathlib.Path(__file__).parent
DTYPES = {tf.float32.as_datatype_enum: np.float32, tf.int32.as_datatype_enum: np.int32}
OPS = ("_fast_wordpiece_tokenizer.so", "_normalize_ops.so")  # op libraries of tensorflow-text
BOOL, STRING = tf.bool.as_datatype_enum, tf.string.as_datatype_enum


@pytest.mark.slow
def test_plain_tensorflow_matches_the_models(
    served_models, questions_file, assert_answers, tmp_path
):
    """Uses the eager loader (requests from 8 threads) and graph mode."""
    answers = tmp_path / "answers.npz"
    run([sys.executable, HERE / "ask.py", questions_file, answers, "8"], cwd=tmp_path)
    arrays = dict(np.load(answers))
    for name, served in served_models.items():
        for loader in ("eager", "graph"):
            given = by_request(arrays, f"{loader}/{name}", len(served.requests))
            assert_answers(name, given, loader)


@pytest.mark.long
def test_a_c_program_matches_the_models(served_models, assert_answers, client):
    arguments, names = [], []
    for name, (folder, requests, _) in served_models.items():
        signatures = read_saved_model(folder).meta_graphs[0].signature_def
        arguments += ["model", folder]
        for signature, inputs in requests:
            infos = signatures[signature]
            arguments.append("ask")
            for key, array in inputs.items():
                arguments += ["in", infos.inputs[key].name, *as_arguments(array)]
            names.append((name, sorted(infos.outputs)))
            for key in sorted(infos.outputs):
                arguments += ["out", infos.outputs[key].name]
    lines = client(*arguments).splitlines()
    printed = iter(zip(lines[::2], lines[1::2], strict=True))
    answers = {name: [] for name in served_models}
    for name, outputs in names:
        answers[name].append({key: as_array(*next(printed)) for key in outputs})
    for name, given in answers.items():
        assert_answers(name, given, "C")


@pytest.fixture
def client(tmp_path):
    """A function that runs the C program and returns its output."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    libraries = pathlib.Path(tf.sysconfig.get_lib())
    if compiler is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    if not (libraries / "libtensorflow_cc.so.2").exists():
        pytest.skip("needs libtensorflow_cc.so.2, which is included in TensorFlow's Linux wheels")
    text = pytest.importorskip("tensorflow_text")
    ops = [pathlib.Path(text.__file__).parent / "python" / "ops" / name for name in OPS]
    program = tmp_path / "client"
    compile_ = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", HERE / "client.c", "-o", program]
    compile_ += [f"-I{tf.sysconfig.get_include()}", f"-L{libraries}", f"-Wl,-rpath,{libraries}"]
    compile_ += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    if shutil.which("ld.gold"):
        compile_.append("-fuse-ld=gold")  # links four times faster
    run(compile_)

    def ask(*arguments):
        return run([program, *(word for op in ops for word in ("lib", op)), *arguments])

    return ask


def run(command, cwd=None):
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def by_request(arrays, prefix, num_requests):
    answers = [{} for _ in range(num_requests)]
    for key, array in arrays.items():
        if key.startswith(f"{prefix}/"):
            number, output = key.removeprefix(f"{prefix}/").split("/")
            answers[int(number)][output] = array
    return answers


def as_arguments(array):
    dims = "x".join(map(str, array.shape))
    if array.dtype == object:
        return ["string", dims, *(f".{value.hex()}" for value in array)]
    return [array.dtype.name, dims, *map(str, array.ravel())]


def as_array(header, values):
    _, dtype, *shape = header.split()
    shape, values = tuple(map(int, shape)), values.split()
    if int(dtype) == STRING:
        return np.array([bytes.fromhex(value[1:]) for value in values], "S").reshape(shape)
    if int(dtype) == BOOL:
        return np.array(values, int).astype(bool).reshape(shape)
    return np.array(values, DTYPES[int(dtype)]).reshape(shape)
