"""Weights that `torch.save` wrote (`pytorch_model.bin`, `.pt`, `.pth`), read without unpickling.

Such a file is a zip archive or, before PyTorch 1.6, a sequence of pickles and values. Its pickle
describes each tensor as a part of a storage, an array of values that follows the pickle. The
entries of an archive are not compressed, so the values are read in place.

`pickletools.genops` splits a pickle into opcodes without executing them. The few opcodes and names
that `torch.save` writes for a state dict are interpreted here. Everything else is a `ValueError`.
This module imports and calls nothing that a file names.

Source: PyTorch, torch/serialization.py and torch/_weights_only_unpickler.py.
"""

import io
import math
import os
import pathlib
import pickletools
import struct
import zipfile
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from keras_bert_d2l.checkpoints.array_files import (
    ArrayFile,
    NamedArrays,
    Place,
    check,
    num_values,
    together,
)
from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import DAMAGE, errors_naming
from keras_bert_d2l.text_arguments import has_surrogate

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the format before PyTorch 1.6
_ZIP, _LOCAL_HEADER = b"PK\3\4", struct.Struct("<26xHH")  # lengths of the name and the extras
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
# Kinds of storages, the dtypes of their values, as spelled in safetensors files, and their bytes.
_STORAGES = """
    Double F64 8, Float F32 4, Half F16 2, BFloat16 BF16 2, Long I64 8, Int I32 4, Short I16 2,
    Char I8 1, Byte U8 1, Bool BOOL 1
"""
_DTYPES = {
    f"torch {kind}Storage": (dtype, int(num_bytes))
    for kind, dtype, num_bytes in map(str.split, _STORAGES.split(","))
}
_DICT, _PARAMETER = "collections OrderedDict", "torch._utils _rebuild_parameter"
_TENSORS = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor")
_NAMES = {_DICT, _PARAMETER, *_TENSORS, *_DTYPES}
_WRAPPERS = ("state_dict", "model_state_dict", "module", "model")  # keys of training checkpoints
_MOST_BYTES = 2**19  # of a pickle; that of BERT large with its optimizer has 170,000
_MOST_AXES = 8
_VALUES = "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE".split()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
# How many values an opcode takes from the stack. The last ones take all that follow the last mark.
_TAKEN = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2, "STACK_GLOBAL": 2}
_TAKEN |= {"REDUCE": 2, "BUILD": 1, "BINPERSID": 1}
_TAKEN_TO_MARK = ("TUPLE", "APPENDS", "SETITEMS")


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


class _Storage(NamedTuple):
    """An array of values in the file."""

    key: str
    size: int  # in values
    dtype: str
    value_bytes: int

    @property
    def num_bytes(self) -> int:
        return self.size * self.value_bytes


class _Tensor(NamedTuple):
    """A part of a storage. The offset and the strides count values."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Name(NamedTuple):
    name: str


class _TorchFile(ArrayFile):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path)
        self._starts: dict[str, int] = {}
        self._unchecked: dict[str, zipfile.ZipInfo] = {}  # the storages that were not read yet
        with errors_naming(path, *_REFUSAL):
            is_zip = self._file.read(len(_ZIP)) == _ZIP
            self._file.seek(0)
            pickles = _Pickles()
            content = self._read_zip(pickles) if is_zip else self._read_old(pickles)
            self._tensors = _state_dict(content)
            self.places = {name: self._place(tensor) for name, tensor in self._tensors.items()}
            size = sum(math.prod(x.shape) * x.storage.value_bytes for x in self._tensors.values())
            most = _MOST_SHARING * self._size
            check(size <= most, f"its tensors have {size:,} bytes, far more than the file")

    def read(self, name: str) -> np.ndarray:
        entry = self._unchecked.pop(self._tensors[name].storage.key, None)
        if entry is not None and entry.CRC:  # 0: a setting of PyTorch leaves checksums out
            with errors_naming(self.path, *_REFUSAL), self._archive.open(entry) as values:
                while values.read(_CHUNK):  # the end is compared with the checksum
                    pass
        return super().read(name)

    def _place(self, tensor: _Tensor) -> Place:
        storage, offset, shape, strides = tensor
        start = self._starts[storage.key] + offset * storage.value_bytes
        return Place(storage.dtype, shape, start, strides)

    def _read_zip(self, pickles: "_Pickles") -> object:
        self._archive = zipfile.ZipFile(self._file)
        entries = {x.filename.partition("/")[2]: x for x in self._archive.infolist()}
        for name, entry in entries.items():
            check(not entry.compress_type, f"its entry {shown(name)} is compressed")
        # PyTorch 1 writes no byte order.
        order = self._archive.read(entries["byteorder"]) if "byteorder" in entries else b"little"
        check(order == b"little", "its values are not little-endian")
        pickle = io.BytesIO(self._archive.read(entries["data.pkl"]))
        content = pickles.read(pickle)
        check(not pickle.read(1), "its pickle has another size")
        for key, storage in pickles.storages.items():
            entry = self._unchecked[key] = entries[f"data/{key}"]
            self._file.seek(entry.header_offset)
            lengths = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
            start = self._starts[key] = entry.header_offset + _LOCAL_HEADER.size + sum(lengths)
            is_right = entry.file_size == storage.num_bytes <= self._size - start
            check(is_right, f"its storage {shown(key)} does not have {storage.num_bytes:,} bytes")
        return content

    def _read_old(self, pickles: "_Pickles") -> object:
        file = self._file
        check(pickles.read(file) == _MAGIC, "it is a pickle of another program")
        check(pickles.read(file) == _VERSION, f"its format is not version {_VERSION}")
        system, content, keys = (pickles.read(file) for _ in range(3))
        is_little = isinstance(system, dict) and system.get("little_endian") is True
        check(is_little, "its values are not little-endian")
        for key in keys if isinstance(keys, list) else ():
            check(isinstance(key, str) and key not in self._starts, "it repeats a storage")
            storage = pickles.storages[key]
            size = int.from_bytes(file.read(8), "little", signed=True)
            check(size == storage.size, f"its storage {shown(key)} does not have {size:,} values")
            self._starts[key] = file.tell()
            file.seek(storage.num_bytes, os.SEEK_CUR)
        check(file.tell() == self._size, "it does not end with its last storage")
        return content


class _Pickles:
    """Interprets the pickles of a file.

    Attributes:
        storages: The storages that the pickles describe, by their keys.
    """

    def __init__(self) -> None:
        self.storages: dict[str, _Storage] = {}

    def read(self, file: IO[bytes]) -> object:
        """Return the content of the pickle that starts at the position of a file, and skip it."""
        start = file.tell()
        pickle = io.BytesIO(file.read(_MOST_BYTES))
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the values below each mark
        self._memo: dict[int, object] = {}
        for opcode, argument, _ in pickletools.genops(pickle):
            self._step(opcode.name, argument)
        file.seek(start + pickle.tell())
        content = self._stack.pop()
        check(not self._stack and not self._below, "its pickle has values that it does not use")
        return content

    def _step(self, opcode: str, argument: Any) -> None:
        items = [self._stack.pop() for _ in range(_TAKEN.get(opcode, 0))][::-1]
        if opcode in _TAKEN_TO_MARK:
            items, self._stack = self._stack, self._below.pop()
        push = self._stack.append
        match opcode:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case _ if opcode in _VALUES:
                push(argument)
            case _ if opcode in _CONSTANTS:
                push(_CONSTANTS[opcode])
            case _ if opcode in _EMPTY:
                push(_EMPTY[opcode]())
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(items))
            case "MARK":
                self._below.append(self._stack)
                self._stack = []
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]
            case "BINGET" | "LONG_BINGET":
                push(self._memo[argument])
            case "APPEND" | "APPENDS" if isinstance(self._stack[-1], list):
                self._stack[-1].extend(items)
            case "SETITEM" | "SETITEMS" if isinstance(self._stack[-1], dict):
                _update(self._stack[-1], items)
            case "BUILD" if isinstance(self._stack[-1], dict) and isinstance(items[0], dict):
                pass  # the versions of the modules, which do not matter
            case "GLOBAL" | "STACK_GLOBAL":
                push(_known(argument or " ".join(map(_short, items))))
            case "REDUCE":
                push(_result(*items))
            case "BINPERSID":
                push(self._storage(items[0]))
            case _:
                raise ValueError(f"its pickle has the unexpected opcode {opcode}")

    def _storage(self, description: object) -> _Storage:
        match description:
            case ("storage", _Name(name), str(key), str(), int(size), *view) if (
                name in _DTYPES and size >= 0 and view in ([], [None])
            ):
                storage = _Storage(key, size, *_DTYPES[name])
                if self.storages.setdefault(key, storage) == storage:
                    return storage
        raise ValueError(
            f"it has an unexpected description of a storage, {shown(_short(description))}"
        )


def _short(value: object) -> str:
    """Return a value for a message. The `repr` of nested values can have any length."""
    return value if isinstance(value, str) else f"<{type(value).__name__}>"


def _known(name: str) -> _Name:
    check(name in _NAMES, f"it needs {shown(name)}, which is not part of a state dict")
    return _Name(name)


def _update(target: dict[str | int, object], items: list[Any]) -> None:
    for key, value in zip(items[::2], items[1::2], strict=True):
        is_new = isinstance(key, str | int) and key not in target
        check(is_new, f"its key {shown(_short(key))} occurs twice or is not a name")
        target[key] = value


def _result(function: object, arguments: Any) -> object:
    """Return what a function makes: an ordered dictionary, a tensor or a parameter."""
    name = function.name if isinstance(function, _Name) else _short(function)
    match arguments:
        case () if name == _DICT:
            return {}
        case (_Tensor() as tensor, *_) if name == _PARAMETER:
            return tensor
        case (_Storage() as storage, offset, tuple(shape), tuple(strides), *_) if (
            name in _TENSORS
            and len(shape) == len(strides) <= _MOST_AXES
            and all(type(number) is int and number >= 0 for number in (offset, *shape, *strides))
        ):
            # Along an axis of one value, PyTorch may write any stride.
            strides = tuple(x if n > 1 else 0 for x, n in zip(strides, shape, strict=True))
            needed = max(math.prod(n or 1 for n in shape), offset + num_values(shape, strides))
            is_inside = needed <= (2**31 if 0 in shape else storage.size)  # no value is repeated
            check(is_inside, f"it has a tensor of the shape {shown(shape)} outside of its storage")
            return _Tensor(storage, offset, shape, strides)
    raise ValueError(f"its pickle calls {shown(name)} with unexpected arguments")


def _state_dict(content: Any) -> dict[str, _Tensor]:
    """Return the tensors of a state dict, or of the one inside a training checkpoint."""
    check(isinstance(content, dict), f"it has {shown(_short(content))} instead of a dictionary")
    found = [x for x in (content, *map(content.get, _WRAPPERS)) if _is_state_dict(x)]
    others = [key for key, value in content.items() if not isinstance(value, _Tensor)]
    check(
        len(found) == 1, f"its entries {shown(others)} are neither tensors nor a single state dict"
    )
    return found[0]


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and 0 < len(value) == sum(
        isinstance(name, str) and not has_surrogate(name) and isinstance(tensor, _Tensor)
        for name, tensor in value.items()
    )
