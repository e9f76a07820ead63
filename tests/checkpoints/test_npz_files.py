import zipfile

import numpy as np
import pytest

from keras_bert_d2l.checkpoints import array_files
from keras_bert_d2l.checkpoints.array_files import open_npz


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "net.npz", a=np.arange(6.0).reshape(2, 3), b=np.float32(7))
    return tmp_path / "net.npz"


def test_shapes_values_and_scalars_are_read(file):
    arrays = open_npz(file)
    assert arrays.shapes == {"a": (2, 3), "b": ()}
    assert arrays.dtypes == {"a": "float64", "b": "float32"}
    assert arrays.metadata == {"b": "7.0"}
    np.testing.assert_array_equal(arrays.read("a"), np.arange(6, dtype="float32").reshape(2, 3))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"file_size": 2**31, "compress_size": 2**31}, "its arrays are larger than the file"),
        ({"file_size": 2**31}, "'a.npy' has 2,147,483,648 bytes instead of"),
    ],
)
def test_a_size_that_the_file_cannot_have_is_rejected(entry, message, file, monkeypatch):
    def infolist(archive):
        entries = original(archive)
        for name, value in entry.items():
            setattr(entries[0], name, value)
        return entries

    original = zipfile.ZipFile.infolist
    monkeypatch.setattr(zipfile.ZipFile, "infolist", infolist)
    with pytest.raises(ValueError, match=message):
        open_npz(file)


def test_zeros_beyond_the_ratio_of_compression_are_rejected(file, monkeypatch):
    monkeypatch.setattr(array_files, "_LARGEST_RATIO", 10)
    np.savez_compressed(file, a=np.zeros(10_000))
    with pytest.raises(ValueError, match="'a.npy' cannot have 80,128 bytes"):
        open_npz(file)


def test_a_changed_byte_never_changes_values_silently(file):
    expected, original = open_npz(file).read("a"), file.read_bytes()
    for seed in range(200):
        content, rng = bytearray(original), np.random.default_rng(seed)
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        file.write_bytes(content)
        try:
            arrays = open_npz(file)
            values = arrays.read("a") if "a" in arrays.shapes else expected  # a name may change
        except ValueError:
            continue
        np.testing.assert_array_equal(values, expected)
