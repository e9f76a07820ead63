"""Weights that `torch.save` wrote (`pytorch_model.bin`, `.pt`, `.pth`), read without unpickling.

Such a file is a zip archive or, before PyTorch 1.6, a sequence of pickles and values. Its pickle
describes each tensor as a part of a storage, an array of values that follows the pickle.
`torch_pickles.py` interprets it. The entries of an archive are read in place, not extracted.
"""

import math
import os
import pathlib
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints.archives import Limited
from keras_bert_d2l.checkpoints.array_files import ArrayFile, NamedArrays, Place, check, together
from keras_bert_d2l.checkpoints.torch_pickles import Pickles, Tensor, state_dict
from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import DAMAGE, errors_naming

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the format before PyTorch 1.6
_ZIP, _LOCAL_HEADER = b"PK\3\4", struct.Struct("<4s22xHH")
_MOST_SHARING = 2  # bytes of all tensors per byte of the file; a tied MLM head shares its kernel
_CHUNK = 2**20  # bytes
_REFUSAL = (
    " is not a PyTorch file of weights",
    "Pickles can run code, so only state dicts are read, without unpickling. Copy the file again, "
    "or save the weights alone in the program that made the model: "
    "`safetensors.torch.save_model(model, 'model.safetensors')`.",
    # pickletools warns of wrong escapes, and Python may be told to raise warnings.
    (*DAMAGE, DeprecationWarning),
)


def open_torch(files: Sequence[pathlib.Path]) -> NamedArrays:
    """Open one file of `torch.save`, or all files of a sharded model, in any order.

    The files stay open, so the arrays belong together even if the files are replaced later. A
    training checkpoint may have the state dict under a key, such as `"state_dict"`, next to
    numbers, strings, lists and dictionaries.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged or has something other than a state dict, or two files contain
            the same name.
    """
    return together(files, [_TorchFile(path) for path in files])


class _Entry(NamedTuple):
    start: int = 0
    size: int = 0
    crc: int = 0


class _TorchFile(ArrayFile):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path)
        self._storages: dict[str, _Entry] = {}
        with errors_naming(path, *_REFUSAL):
            is_zip = self._file.read(len(_ZIP)) == _ZIP
            self._file.seek(0)
            content = (self._read_zip if is_zip else self._read_old)(Pickles(), self._file)
            self._tensors = state_dict(content)
            self.places = {name: self._place(tensor) for name, tensor in self._tensors.items()}
            size = sum(math.prod(x.shape) * x.storage.value_bytes for x in self._tensors.values())
            most = _MOST_SHARING * self._size
            check(size <= most, f"its tensors have {size:,} bytes, far more than the file")

    def read(self, name: str) -> np.ndarray:
        key = self._tensors[name].storage.key
        with errors_naming(self.path, *_REFUSAL):
            self._check_crc(self._storages[key])
        self._storages[key] = self._storages[key]._replace(crc=0)  # checked once
        return super().read(name)

    def _place(self, tensor: Tensor) -> Place:
        storage, offset, shape, strides = tensor
        start = self._storages[storage.key].start + offset * storage.value_bytes
        return Place(storage.dtype, shape, start, strides)

    def _read_zip(self, pickles: Pickles, file: BinaryIO) -> object:
        entries = _entries(zipfile.ZipFile(Limited(file)), file)
        folder = next(iter(entries), "").partition("/")[0]
        pickle = entries[f"{folder}/data.pkl"]
        self._check_crc(pickle)
        order = entries.get(f"{folder}/byteorder", _Entry())  # PyTorch 1 writes none
        file.seek(order.start)
        check(file.read(min(order.size, 9)) in (b"little", b""), "its values are not little-endian")
        file.seek(pickle.start)
        content = pickles.read(file)
        check(file.tell() == pickle.start + pickle.size, "its pickle has another size")
        for key, storage in pickles.storages.items():
            self._storages[key] = entries[f"{folder}/data/{key}"]
            is_right = self._storages[key].size == storage.num_bytes
            check(is_right, f"its storage {shown(key)} does not have {storage.num_bytes:,} bytes")
        return content

    def _read_old(self, pickles: Pickles, file: BinaryIO) -> object:
        check(pickles.read(file) == _MAGIC, "it is a pickle of another program")
        check(pickles.read(file) == _VERSION, f"its format is not version {_VERSION}")
        system, content, keys = (pickles.read(file) for _ in range(3))
        is_little = isinstance(system, dict) and system.get("little_endian") is True
        check(is_little, "its values are not little-endian")
        for key in keys if isinstance(keys, list) else ():
            check(isinstance(key, str) and key not in self._storages, "it repeats a storage")
            storage = pickles.storages[key]
            size = int.from_bytes(file.read(8), "little", signed=True)
            check(size == storage.size, f"its storage {shown(key)} does not have {size:,} values")
            self._storages[key] = _Entry(file.tell(), storage.num_bytes)
            file.seek(storage.num_bytes, os.SEEK_CUR)
        check(file.tell() == self._size, "it does not end with its last storage")
        return content

    def _check_crc(self, entry: _Entry) -> None:
        if entry.crc:  # 0: a setting of PyTorch leaves checksums out
            self._file.seek(entry.start)
            crc = 0
            for done in range(0, entry.size, _CHUNK):
                crc = zlib.crc32(self._file.read(min(_CHUNK, entry.size - done)), crc)
            check(crc == entry.crc, "its values do not match their checksum")


def _entries(archive: zipfile.ZipFile, file: BinaryIO) -> dict[str, _Entry]:
    """Return the places of the entries of an archive, by their names."""
    found: dict[str, _Entry] = {}
    folder, end = None, 0
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        name, size = entry.orig_filename, entry.file_size
        first, *others = name.split("/")
        folder = folder or first
        file.seek(entry.header_offset)
        signature, *lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        start = entry.header_offset + _LOCAL_HEADER.size + sum(lengths)
        for problem, is_found in {
            "occurs twice": name in found,
            "is outside of its folder": first != folder or not others or ".." in others,
            "has a name that is not valid": name != entry.filename or "\\" in name,
            "is encrypted": entry.flag_bits & 1,
            "is compressed": entry.compress_type or entry.compress_size != size,
            "overlaps another one": signature != _ZIP or entry.header_offset < end,
            "is incomplete": start + size > archive.start_dir,
        }.items():
            check(not is_found, f"its entry {shown(name)} {problem}")
        end = start + size
        found[name] = _Entry(start, size, entry.CRC)
    return found
