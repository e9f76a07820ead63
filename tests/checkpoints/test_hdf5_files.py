"""HDF5 files, which h5py wrote, are read without following anything that leads out of them."""

import os
import struct
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_bert_d2l.checkpoints import hdf5_files
from keras_bert_d2l.checkpoints.hdf5_files import open_hdf5
from tests.robustness.trial import measured

ONES = np.ones((2, 3), "float32")


def values(*shape, dtype="float32"):
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("options", [{}, {"track_order": True}, {"libver": "latest"}])
def test_arrays_equal_those_that_h5py_wrote(options, tmp_path):
    stored = {
        "bert/layer_._0/kernel:0": values(3, 4),
        "bert/layer_._1/kernel:0": values(3, 4),
        "scalar": values(),
        "half": values(5, dtype="float16"),
        **{f"many/{number}": values(2) for number in range(50)},
    }
    with h5py.File(tmp_path / "a.h5", "w", **options) as file:
        for name, array in stored.items():
            file[name] = array
        file["step"], file["text"], file["large"] = 3, "text", np.ones(2)
        file.attrs["keras_version"] = "2.15.0"
    found = open_hdf5([tmp_path / "a.h5"])
    (tmp_path / "a.h5").unlink()  # it stays open
    assert found.shapes.keys() == {*stored, "step", "text", "large"}
    for name, array in stored.items():
        np.testing.assert_array_equal(found.read(name), array.astype("float32"), strict=True)
    dtypes = [found.dtypes[name] for name in ("scalar", "half", "step", "text", "large")]
    assert dtypes == ["F32", "F16", "another dtype", "another dtype", "F64"]
    for name in ("step", "text", "large"):
        with pytest.raises(ValueError, match=f"must be F32, F16 or BF16. Received: {name!r}"):
            found.read(name)


def test_two_files_belong_together_and_bfloat16_is_read(tmp_path):
    """Keras writes bfloat16 as opaque values."""
    layer = keras.layers.Dense(3, dtype="bfloat16", bias_initializer="ones")
    keras.Sequential([keras.Input([2]), layer]).save_weights(tmp_path / "1.weights.h5")
    with h5py.File(tmp_path / "2.h5", "w") as file:
        file["other"] = ONES
    found = open_hdf5([tmp_path / "1.weights.h5", tmp_path / "2.h5"])
    kernel = next(name for name in found.shapes if name.endswith("dense/vars/0"))
    assert found.dtypes[kernel] == "BF16"
    np.testing.assert_array_equal(
        found.read(kernel), keras.ops.convert_to_numpy(keras.ops.cast(layer.kernel, "float32"))
    )
    np.testing.assert_array_equal(found.read("other"), ONES)
    with pytest.raises(ValueError, match="both contain 'other'"):
        open_hdf5([tmp_path / "2.h5", tmp_path / "2.h5"])


# Hostile files. Whoever opens the pipe "secret" waits forever.

SECRET, BOMB = "secret", {"compression": "gzip", "data": np.zeros(2**24, "uint8")}


def virtual(name):
    def write(file):
        layout = h5py.VirtualLayout((6,), "float32")
        layout[:] = h5py.VirtualSource(name, "a", (6,))
        file.create_virtual_dataset("virtual", layout)

    return write


def dataset(**options):
    return lambda file: file.create_dataset("b", **options)


def assigned(name, value):
    return lambda file: file.__setitem__(name, value)


def linked(file):
    file["group/up"] = file["/"]


def named_dtype(file):
    file["type"] = np.dtype("float32")
    file.create_dataset("b", data=ONES, dtype=file["type"])


def deep(file):
    for _ in range(250):
        file = file.create_group("deep")


def many(file):
    for number in range(500):
        file.create_group(str(number))


BY_H5PY = {
    "an external link": (assigned("b", h5py.ExternalLink(SECRET, "/a")), "'b' is a link to"),
    "a soft link": (assigned("b", h5py.SoftLink("/a")), "'b' is a link to another place"),
    "a virtual dataset": (virtual(SECRET), "'virtual' is virtual"),
    "external storage": (
        dataset(shape=6, dtype="f4", external=[(SECRET, 0, 24)]),
        "'b' has its values in another file",
    ),
    "a cycle": (linked, "'group/up' is a second name"),
    "a second name": (lambda file: file.__setitem__("b", file["a"]), "is a second name"),
    "a dtype of others": (named_dtype, "'b' shares its dtype|neither a group"),
    "a bomb": (dataset(**BOMB), "'b' is compressed"),
    "a fill value": (dataset(shape=2**40, chunks=2**20, fillvalue=1, dtype="f4"), "in chunks"),
    "unwritten values": (dataset(shape=2**40, dtype="f4"), "values of 'b' are not in the file"),
    "object references": (dataset(shape=2, dtype=h5py.ref_dtype, data=None), "'b'"),
    "records": (dataset(data=np.zeros(2, "f4,f4")), "'b' has a dtype that weights do not have"),
    "deep groups": (deep, "is too long"),
    "many groups": (many, "more than 500 objects"),
}


def one_more(file):
    file["b_b"] = ONES


def changed(*pairs, make=one_more):
    """Return a function that writes a file and replaces bytes of it."""

    def write(path):
        with h5py.File(path, "w") as file:
            file["a"] = ONES
            make(file)
        content = path.read_bytes()
        for old, new in pairs:
            assert old in content
            content = content.replace(old, new)
        path.write_bytes(content)

    return write


def content(data):
    return lambda path: path.write_bytes(data)


def family(path):
    with h5py.File(f"{path.stem}%d.h5", "w", driver="family") as file:
        file["a"] = ONES
    Path(f"{path.stem}0.h5").rename(path)


def numbers(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def shared(file):
    file["large"], file["b"] = values(1000), values(7)


SHAPE, PLACE = numbers(2, 3), numbers(2072, 24)
LINK = changed(
    (b"\x40\x03b_b", b"\x41\x03b_b"), make=assigned("b_b", h5py.ExternalLink(SECRET, "/a"))
)
SHARED = changed(
    (numbers(7, 7), numbers(1000, 1000)), (numbers(6072, 28), numbers(2072, 4000)), make=shared
)
BY_HAND = {
    "a link of another kind": (LINK, "'b_b' is a link to another place"),
    "a path as a name": (changed((b"b_b", b"b/b")), "'b/b' is not a valid name"),
    "the group itself": (changed((b"b_b", b".\0\0")), "'.' is not a valid name"),
    "a name that is not UTF-8": (changed((b"b_b", b"b\xff\xff")), "codec can't decode"),
    "an enormous shape": (changed((SHAPE, numbers(2**40, 3))), "invalid dataset size"),
    "the place of another dataset": (SHARED, "its datasets are larger than the file"),
    "only the beginning": (content(b"\x89HDF\r\n\x1a\n"), "Unable to"),
    "a part of a family": (family, "Unable to"),
}


HOSTILE = BY_HAND | {kind: (changed(make=make), match) for kind, (make, match) in BY_H5PY.items()}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_and_leads_nowhere(kind, tmp_path, monkeypatch):
    write, match = HOSTILE[kind]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hdf5_files, "_MOST_OBJECTS", 500)
    path = tmp_path / "a.h5"
    write(path)
    os.mkfifo(SECRET)
    before = sorted(tmp_path.iterdir())
    with measured() as used, pytest.raises(ValueError, match=match) as error:
        open_hdf5([path])
    assert sorted(tmp_path.iterdir()) == before
    assert used.megabytes < 24
    assert "a.h5' is not an HDF5 file of weights" in str(error.value)
    assert "save the weights again" in str(error.value)
    assert len(str(error.value)) < 700


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    (tmp_path / "a.h5").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    with pytest.raises(ValueError, match="a.h5' is a pointer of Git LFS. Run `git lfs pull`"):
        open_hdf5([tmp_path / "a.h5"])
