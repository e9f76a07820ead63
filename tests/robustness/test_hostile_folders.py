"""Folders and files made to crash, stall or fill a reader end in a clear error."""

import json
import os
import pickle
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.files import CHECKSUMS
from tests.robustness.folders import KINDS
from tests.robustness.trial import ERROR, OTHER, judge, measured

DEEP = "[" * 100_000
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
MEGABYTES = 150  # of memory that an error may need


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    for kind in ("checkpoint", "huggingface", "huggingface task", "google", "book", "token store"):
        KINDS[kind].write(folder / kind)
        if kind != "token store":  # which is not read without its checksums
            (folder / kind / CHECKSUMS).unlink()
    return folder


def edited(file: Path, **fields: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def with_config(**fields):
    def change(folder):
        [config] = {"config.json", "bert_config.json"} & {file.name for file in folder.iterdir()}
        edited(folder / config, **fields)

    return change


def with_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def with_bytes(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def with_header(name, header, data=b""):
    text = json.dumps(header).encode()
    return with_bytes(name, struct.pack("<Q", len(text)) + text + data)


def many_tensors(name):
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return with_header(name, {f"tensor{n}": empty for n in range(300_000)})


def as_npz(write):
    """Replace the parameters of a folder in the book's format by an npz file."""

    def change(folder):
        (folder / "pretrained.safetensors").unlink()
        with zipfile.ZipFile(folder / "pretrained.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            write(archive)

    return change


def shape_bomb(archive):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    archive.writestr("encoder.token_embedding.weight.npy", start + header)


def zip_bomb(archive):
    with archive.open("encoder.token_embedding.weight.npy", "w", force_zip64=True) as file:
        for _ in range(200):
            file.write(bytes(2**20))


def pickled(archive):
    with archive.open("encoder.token_embedding.weight.npy", "w") as file:
        np.lib.format.write_array(file, np.array([{}], object))


def with_size(name, size):
    """Return a function that extends a file by zeros, which need no space on the disk."""
    return lambda folder: os.truncate(folder / name, size)


def with_tokenizer_json(folder):
    (folder / "vocab.txt").rename(folder / "tokenizer.json")
    os.truncate(folder / "tokenizer.json", 2**40)


def fifo_with_checksum(folder):
    os.mkfifo(folder / "notes.txt")
    (folder / CHECKSUMS).write_text(f"{'0' * 64}  notes.txt\n")


def fifo(name):
    def change(folder):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return change


def only_a_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": [1.0]}))


CHECKPOINTS = {
    "a million blocks": ("checkpoint", with_config(num_blks=10**6)),
    "ten billion positions": ("checkpoint", with_config(max_len=10**10)),
    "a hidden width of 10^9": ("checkpoint", with_config(num_hiddens=10**9)),
    "deep JSON": ("checkpoint", with_text("config.json", DEEP)),
    "deep JSON in a header": ("checkpoint", with_header("model.safetensors", {"x": DEEP})),
    "300,000 tensors": ("checkpoint", many_tensors("model.safetensors")),
    "a huge configuration": ("checkpoint", with_size("config.json", 2**40)),
    "a huge vocabulary": ("checkpoint", with_size("vocab.txt", 2**40)),
    "a huge tokenizer": ("huggingface", with_tokenizer_json),
    "a FIFO as weights": ("checkpoint", fifo("model.safetensors")),
    "a FIFO in the checksums": ("checkpoint", fifo_with_checksum),
    "a million layers": ("huggingface", with_config(num_hidden_layers=10**6)),
    "a trillion labels": ("huggingface task", with_config(id2label=None, num_labels=10**12)),
    "only a pickle": ("huggingface", only_a_pickle),
    "zeros as index": ("google", with_bytes("bert_model.ckpt.index", bytes(500))),
    "a shape of 10^12": ("book", as_npz(shape_bomb)),
    "200 compressed megabytes": ("book", as_npz(zip_bomb)),
    "a pickle in an npz file": ("book", as_npz(pickled)),
    "a huge list of tokens": ("book", with_size("vocab.json", 2**40)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_hostile_checkpoint_is_rejected_or_its_weights_are_listed(name, originals, copied):
    kind, change = CHECKPOINTS[name]
    folder = copied(originals / kind)
    change(folder)
    assert_rejected(lambda: kb.load_pretrained(folder), folder)
    assert_rejected(lambda: [*kb.inspect_checkpoint(folder)[1]], folder, (ERROR, OTHER))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in KINDS if not KINDS[name].suffix])
def test_a_named_pipe_in_place_of_any_file_is_rejected_or_not_opened(name, tmp_path):
    kind, original = KINDS[name], tmp_path / "original"
    kind.write(original)
    if name != "token store":  # which is not read without its checksums
        for sums in original.rglob(CHECKSUMS):
            sums.unlink()
    load = kind.load
    if name == "ONNX":  # which other programs load
        pytest.importorskip("onnxruntime")
        pytest.importorskip("tokenizers")
        from keras_bert_d2l.serving.server.local_server import load
    for file in [path for path in original.rglob("*") if path.is_file()]:
        content = file.read_bytes()
        fifo(file.name)(file.parent)
        outcome, detail = judge(lambda: str(load(original)), original, kind.errors)
        assert outcome in (ERROR, OTHER), (file, detail)
        file.unlink()
        file.write_bytes(content)


OPTIONS = {
    "a billion laughs": LAUGHS,
    "deep YAML": "[" * 2000,
    "a Python object": "a: !!python/object:os.system {}\n",
    "a value that does not fit its tag": "a: !!bool x\n",
    "an integer of 5,000 digits": f"steps: 1{'0' * 5000}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("resume", [kb.pretrain, kb.finetune_files], ids=["pretrain", "finetune"])
def test_hostile_options_of_a_run_are_rejected(resume, name, originals, copied):
    folder = copied(originals / "checkpoint")
    (folder / "run.yaml").write_text(OPTIONS[name])
    corpus = {"corpus": None} if resume is kb.pretrain else {}
    assert_rejected(lambda: resume(**corpus, run_dir=folder, resume=True), folder)


@pytest.fixture
def copied(tmp_path):
    """Return a function that copies a folder."""
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "hostile"))


def assert_rejected(load, path, outcomes=(ERROR,)):
    with measured() as used:
        outcome, detail = judge(load, path)
    assert outcome in outcomes, detail
    assert used.megabytes < MEGABYTES, detail
