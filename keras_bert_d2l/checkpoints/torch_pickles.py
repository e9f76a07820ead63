"""The pickle in a file of `torch.save`, interpreted as a description of tensors.

`pickletools.genops` splits a pickle into opcodes without executing them. The few opcodes and names
that `torch.save` writes for a state dict are interpreted here. Everything else is a `ValueError`.
This module imports and calls nothing that a file names.

Source: PyTorch, torch/serialization.py and torch/_weights_only_unpickler.py.
"""

import io
import math
import pickletools
from typing import Any, BinaryIO, NamedTuple

from keras_bert_d2l.checkpoints.array_files import check, num_values
from keras_bert_d2l.checks import shown
from keras_bert_d2l.text_arguments import has_surrogate

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


class Storage(NamedTuple):
    """An array of values in the file."""

    key: str
    size: int  # in values
    dtype: str
    value_bytes: int

    @property
    def num_bytes(self) -> int:
        return self.size * self.value_bytes


class Tensor(NamedTuple):
    """A part of a storage. The offset and the strides count values."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Name(NamedTuple):
    name: str


class Pickles:
    """Interprets the pickles of a file.

    Attributes:
        storages: The storages that the pickles describe, by their keys.
    """

    def __init__(self) -> None:
        self.storages: dict[str, Storage] = {}

    def read(self, file: BinaryIO) -> object:
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

    def _storage(self, description: object) -> Storage:
        match description:
            case ("storage", _Name(name), str(key), str(), int(size), *view) if (
                name in _DTYPES and size >= 0 and view in ([], [None])
            ):
                storage = Storage(key, size, *_DTYPES[name])
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
        case (Tensor() as tensor, *_) if name == _PARAMETER:
            return tensor
        case (Storage() as storage, offset, tuple(shape), tuple(strides), *_) if (
            name in _TENSORS
            and len(shape) == len(strides) <= _MOST_AXES
            and all(type(number) is int and number >= 0 for number in (offset, *shape, *strides))
        ):
            # Along an axis of one value, PyTorch may write any stride.
            strides = tuple(x if n > 1 else 0 for x, n in zip(strides, shape, strict=True))
            needed = max(math.prod(n or 1 for n in shape), offset + num_values(shape, strides))
            is_inside = needed <= (2**31 if 0 in shape else storage.size)  # no value is repeated
            check(is_inside, f"it has a tensor of the shape {shown(shape)} outside of its storage")
            return Tensor(storage, offset, shape, strides)
    raise ValueError(f"its pickle calls {shown(name)} with unexpected arguments")


def state_dict(content: Any) -> dict[str, Tensor]:
    """Return the tensors of a state dict, or of the one inside a training checkpoint."""
    check(isinstance(content, dict), f"it has {shown(_short(content))} instead of a dictionary")
    found = [x for x in (content, *map(content.get, _WRAPPERS)) if _is_state_dict(x)]
    others = [key for key, value in content.items() if not isinstance(value, Tensor)]
    check(
        len(found) == 1, f"its entries {shown(others)} are neither tensors nor a single state dict"
    )
    return found[0]


def _is_state_dict(value: Any) -> bool:
    return isinstance(value, dict) and 0 < len(value) == sum(
        isinstance(name, str) and not has_surrogate(name) and isinstance(tensor, Tensor)
        for name, tensor in value.items()
    )
