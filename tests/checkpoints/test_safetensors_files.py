import json
import struct

import ml_dtypes
import numpy as np
import pytest

from keras_bert_d2l.checkpoints.array_files import open_safetensors, write_safetensors

ARRAY = np.array([[1.5, -2.0, 3e-3], [0.0, 65504.0, -1e-7]], "float32")
EIGHT = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def write_raw(file, header, data):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + data)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"a": ARRAY, "scalar": np.array(2.0, "float32")}, {"format": "keras"})
    return file


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16])
def test_every_float_is_read_as_float32_without_loss(dtype, file):
    stored = ARRAY.astype(dtype)
    write_safetensors(file, {"a": stored}, {"format": "keras"})
    value = open_safetensors([file]).read("a")
    assert value.dtype == np.float32
    np.testing.assert_array_equal(value, stored.astype("float32"))


@pytest.mark.parametrize("dtype", ["int64", "float64", "bool"])
def test_other_dtypes_are_listed_but_not_read(dtype, file):
    write_safetensors(file, {"ids": ARRAY.astype(dtype), "a": ARRAY}, {"format": "keras"})
    tensors = open_safetensors([file])
    assert tensors.shapes["ids"] == (2, 3)
    np.testing.assert_array_equal(tensors.read("a"), ARRAY)
    with pytest.raises(ValueError, match="model.safetensors': weights must be F32.*'ids' in"):
        tensors.read("ids")


@pytest.mark.parametrize("kept", [0, 4, 8, 60, -1])
def test_a_truncated_file_is_rejected(kept, file):
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match="model.safetensors' is not a complete.*copy it again"):
        open_safetensors([file])


@pytest.mark.parametrize(
    ("header", "num_bytes"),
    [
        ({"a": EIGHT, "b": {**EIGHT, "data_offsets": [4, 12]}}, 12),
        ({"a": {**EIGHT, "data_offsets": [2**40, 2**40 + 8]}}, 8),
        ({"a": {**EIGHT, "shape": [2**62, 4], "data_offsets": [0, 0]}}, 0),
        ({"a": {**EIGHT, "dtype": "F31"}}, 8),
        (b"[1]", 0),
    ],
    ids=["overlapping", "outside", "overflowing shape", "unknown dtype", "no object"],
)
def test_an_inconsistent_header_is_rejected(header, num_bytes, file):
    write_raw(file, header, bytes(num_bytes))
    with pytest.raises(ValueError, match="model.safetensors' is not a complete safetensors file"):
        open_safetensors([file])


def test_arrays_come_from_the_file_that_was_opened_even_if_it_is_replaced(file):
    tensors = open_safetensors([file])
    expected = {name: tensors.read(name) for name in tensors.shapes}
    other = file.with_name("other")
    write_safetensors(other, {name: np.full_like(array, 9) for name, array in expected.items()}, {})
    other.replace(file)
    for name, array in expected.items():
        np.testing.assert_array_equal(tensors.read(name), array)


def test_a_header_that_is_far_too_long_is_rejected_before_it_is_parsed(file):
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    write_raw(file, {"x" * 10_000_000: entry}, b"")
    with pytest.raises(ValueError, match="its header has 10,000,.* bytes"):
        open_safetensors([file])
