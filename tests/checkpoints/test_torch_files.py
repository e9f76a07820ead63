"""PyTorch files, which `scripts/torch_files.py` wrote, are read and never executed."""

import contextlib
import os
import shutil
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.array_files import open_safetensors
from keras_bert_d2l.checkpoints.torch_files import open_torch
from tests.checkpoints import torch_writer as by_hand
from tests.checkpoints.torch_writer import DICT, name, old, state, tensor, value

FILES = Path(__file__).parent / "torch_files"
GOOD = state(a=tensor())
FLOATS = ("F32", "F16", "BF16")


def floats(arrays):
    return {x: arrays.read(x) for x, dtype in arrays.dtypes.items() if dtype in FLOATS}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        *((f"{kind}.pt", "kinds") for kind in ("zip-2", "zip-5", "old-3", "old-4")),
        *((f"bert-{kind}/*.bin", "bert-safetensors/model") for kind in ("zip", "old", "shards")),
        ("lightning.ckpt", "lightning"),
    ],
)
def test_arrays_equal_those_that_safetensors_stored(files, expected):
    """The fixtures have each protocol, dtype and layout, tied weights and training checkpoints."""
    found = open_torch(sorted(FILES.glob(files)))
    stored = open_safetensors([FILES / f"{expected}.safetensors"])
    assert (found.shapes, found.dtypes) == (stored.shapes, stored.dtypes)
    for key, array in floats(stored).items():
        np.testing.assert_array_equal(found.read(key), array, strict=True)
    for key in found.dtypes.keys() - floats(stored).keys():
        with pytest.raises(ValueError, match=f"must be F32, F16 or BF16. Received: {key!r}"):
            found.read(key)


def test_safetensors_are_preferred(tmp_path):
    path = shutil.copytree(FILES / "bert-safetensors", tmp_path / "bert")
    (path / "pytorch_model.bin").write_bytes(b"not looked at")
    kb.load_pretrained(path)


# Hostile files: each would create the file "hacked" if it were unpickled

RUN = value(("import pathlib; pathlib.Path('hacked').touch()",))


def code(*names):
    return name(*names) + RUN + b"R"


def entry(x):
    return state(a=x)


PICKLES = {
    "system": (entry(name("os", "system") + value(("touch hacked",)) + b"R"), "'os system'"),
    "a module of the folder": (entry(name("evil", "run") + b")R"), "'evil run'"),
    "a whole model": (entry(name("torch.nn", "Linear") + b")\x81"), "'torch.nn Linear'"),
    "a name on the stack": (entry(value("os") + value("system") + b"\x93"), "'os system'"),
    "NEWOBJ": (entry(DICT + b")\x81"), "opcode NEWOBJ"),
    "the state of a tensor": (entry(tensor() + b"}b"), "opcode BUILD"),
    "ordered pairs": (entry(DICT + RUN + b"R"), "unexpected arguments"),
    "an unknown storage": (entry(tensor(kind="ComplexFloat")), "ComplexFloatStorage"),
    "a negative size": (entry(tensor(size=-4)), "of a storage, '<tuple>'"),
    "a storage of two sizes": (state(a=tensor(), b=tensor(size=3)), "description of a storage"),
    "a storage that is too large": (entry(tensor(size=2**40)), "does not have 4,398"),
    "a storage that is missing": (entry(tensor(key="9")), "lacks a part .*data/9"),
    "a negative offset": (entry(tensor(offset=-1)), "unexpected arguments"),
    "repeated values": (entry(tensor(shape=(9**6, 9**6), strides=(0, 0))), "outside of"),
    "an enormous empty shape": (entry(tensor(shape=(2**60, 0), strides=(0, 0))), "outside of"),
    "a pickle of 2 MB": (state(a=["a" * 1000] * 2000), "only .* remain|exhausted"),
    "a name of 2 MB": (entry(b"c" + b"a" * 2**21), "no newline found"),
    "a memo that is missing": (entry(b"h\x07"), r"lacks a part \(7\)"),
    "no end": (GOOD[:-1], "exhausted|unknown|no newline|decode"),
    "a second pickle": (GOOD + code("builtins", "exec") + b".", "another size"),
    "a number among tensors": (state(a=tensor(), b=3), "entries .'b'. are neither tensors"),
    "two state dicts": (
        state(model={"a": tensor()}, module={"a": tensor()}),
        "nor a single state dict",
    ),
    "half a character": (
        b"\x80\x02}" + value("\ud800") + tensor() + b"s.",
        "nor a single state dict",
    ),
}


def change(old, new, count=1):
    """Return a function that replaces bytes of an archive with one good tensor."""

    def edit(file):
        content = by_hand.write_zip(file, GOOD).read_bytes()
        assert old in content
        file.write_bytes(content.replace(old, new, count))

    return edit


def archive(pickle=GOOD, **options):
    return lambda file: by_hand.write_zip(file, pickle, **options)


def written(content):
    return lambda file: file.write_bytes(content)


SHARED = {f"a{n}": tensor(size=2500, shape=(2500,), strides=(1,)) for n in range(300)}
BOMB = {"storages": {"0": bytes(2**24)}, "compression": zipfile.ZIP_DEFLATED}
ARCHIVES = {
    "a bomb": (archive(**BOMB), "is compressed"),
    "sizes that lie": (change(b"\x10\0\0\0" * 2, b"\xff\xff\0\0" * 2, 9), "not have 16 bytes"),
    "a changed value": (change(bytes(16), b"\1" * 16), "CRC-32"),
    "shared storages": (archive(pickle=state(**SHARED), storages={"0": bytes(10**4)}), "far more"),
    "an old pickle of code": (written(old(entry(code("builtins", "exec")))), "'builtins exec'"),
    "old big-endian values": (written(old(GOOD, little_endian=False)), "not little-endian"),
    "an old storage cut off": (written(old(GOOD)[:-1]), "does not end with"),
}
HOSTILE = ARCHIVES | {
    f"pickle: {x}": (archive(pickle=pickle), match) for x, (pickle, match) in PICKLES.items()
}


@contextlib.contextmanager
def memory():
    """Yield a list that receives the peak of the memory that the block allocates."""
    used = []
    tracemalloc.start()
    try:
        yield used
        used.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def imported():
    return {name for name in sys.modules if not name.startswith("encodings.")}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_and_nothing_of_it_runs(kind, tmp_path, monkeypatch):
    write, match = HOSTILE[kind]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("evil.py").write_text("import pathlib; pathlib.Path('hacked').touch()")
    write(Path("a.pt"))
    before = sorted(tmp_path.iterdir()), imported()
    with memory() as used, pytest.raises(ValueError, match=match) as error:
        floats(open_torch([tmp_path / "a.pt"]))
    assert (sorted(tmp_path.iterdir()), imported()) == before
    assert used[0] < 2 * min(os.path.getsize("a.pt"), 2**20) + 2**23  # of Python's objects
    assert "a.pt' is not a PyTorch file of weights" in str(error.value)
    assert "save_model(model" in str(error.value)
    assert len(str(error.value)) < 700
