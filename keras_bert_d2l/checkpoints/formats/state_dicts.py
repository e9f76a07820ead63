"""State dicts of PyTorch programs: an npz or safetensors file in, its weights by name out.

A state dict holds weights by name and nothing of the program around them. What the shapes do not
tell, the file says beside the weights: the number of attention heads, as the array `num_heads` of
an npz file or the entry `num_heads` of a safetensors file's metadata; in the same way, if it
likes, `dropout`. PyTorch's own files are pickles, which may run code when they are read, and are
refused.
"""

import contextlib
import os
import pathlib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import safetensors

from keras_bert_d2l.checkpoints.weights.safetensors_files import SafetensorsFiles
from keras_bert_d2l.checkpoints.weights.transfer import TRANSPOSED, Row, Tensors
from keras_bert_d2l.config import BERTConfig

SUFFIXES = (".safetensors", ".npz")
PICKLE_SUFFIXES = (".params", ".pt", ".pth", ".bin", ".pkl")
_ARGUMENTS: dict[str, Callable[[Any], Any]] = {"num_heads": int, "dropout": float}
# Where some names begin so, the other arrays are no weights: inputs and outputs, for instance.
_PREFIX = "w/"
_HOW_TO_SAVE = (
    "`safetensors.torch.save_file(state, 'pretrained.safetensors', metadata={'num_heads': '4'})`"
)


class StateDict:
    """The `Tensors` of a state dict in one file.

    Where names begin with `w/`, those alone are weights, without these two letters; elsewhere
    all arrays are.

    Args:
        file: An npz or safetensors file, by its suffix.

    Attributes:
        arguments: What the file says of `num_heads` and `dropout`, where it does.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged, holds pickled objects, or what it says of an argument is
            no number.
    """

    def __init__(self, file: pathlib.Path) -> None:
        self.source = os.fspath(file)
        read = _read_npz if file.suffix == ".npz" else _read_safetensors
        self._tensors, said = read(file)
        stored = self._tensors.shapes().keys() - said.keys()
        prefixed = [name for name in stored if name.startswith(_PREFIX)]
        self._names = {name.removeprefix(_PREFIX): name for name in prefixed or stored}
        self.arguments = {name: _number(self.source, name, value) for name, value in said.items()}

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the shapes of the weights by name."""
        shapes = self._tensors.shapes()
        return {name: shapes[stored] for name, stored in self._names.items()}

    def dtypes(self) -> Mapping[str, str]:
        """Returns the dtypes of the weights by name."""
        dtypes = self._tensors.dtypes()
        return {name: dtypes[stored] for name, stored in self._names.items()}

    def read(self, name: str) -> np.ndarray:
        """Returns one weight as float32."""
        return self._tensors.read(self._names[name])

    def leave_out(self, name: str) -> None:
        """Makes a name no weight any more: a buffer that the model computes itself."""
        del self._names[name]

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """Returns the shape of a weight that a configuration is read from.

        Raises:
            ValueError: The weight is missing, or has not as many axes as it must have.
        """
        shape = self.shapes().get(name)
        if shape is None:
            raise ValueError(
                f"{self.source!r} lacks the weight {name!r}. The file is of another model, or not "
                "whole: copy it again."
            )
        if len(shape) != rank:
            raise ValueError(
                f"{self.source!r}: {name!r} must have {rank} axes. Received: the shape {shape}."
            )
        return shape

    def num_blocks(self, prefix: str) -> int:
        """Returns how many blocks the names that begin with `prefix` tell of."""
        names = [name.removeprefix(prefix) for name in self._names if name.startswith(prefix)]
        return len({name.partition(".")[0] for name in names})

    def config(self, preset: str, num_heads: int | None, **sizes: int) -> BERTConfig:
        """Returns the configuration of the program that wrote the file.

        Args:
            preset: The program, a preset of `BERTConfig`.
            num_heads: The number of heads where the file does not say it.
            **sizes: The fields that the shapes tell.

        Raises:
            ValueError: The number of heads is unknown, or does not go with the sizes.
        """
        said = self.arguments.get("num_heads", num_heads)
        if said is None:
            raise ValueError(
                f"{self.source!r} does not say how many attention heads the model has, and its "
                "weights do not tell. Pass `num_heads`, or store it beside the weights: in an npz "
                "file as the array 'num_heads', in a safetensors file as metadata, "
                f"{_HOW_TO_SAVE}."
            )
        arguments = {**self.arguments, "num_heads": said}
        try:
            return BERTConfig.preset(preset, **arguments, **sizes)
        except ValueError as error:
            raise ValueError(f"{self.source!r}: {error}") from error


def dense(ours: str, theirs: str) -> list[Row]:
    """Returns the rows of an `nn.Linear`, which keeps its kernel as (out, in)."""
    return [
        Row(f"{ours}/kernel", f"{theirs}.weight", TRANSPOSED),
        Row(f"{ours}/bias", f"{theirs}.bias"),
    ]


def layer_norm(ours: str, theirs: str, scale: str = "weight", shift: str = "bias") -> list[Row]:
    """Returns the rows of an `nn.LayerNorm`, or of another class with other names."""
    return [Row(f"{ours}/gamma", f"{theirs}.{scale}"), Row(f"{ours}/beta", f"{theirs}.{shift}")]


def refuse_pickle(file: pathlib.Path) -> None:
    """Raises the `ValueError` on PyTorch's own files."""
    raise ValueError(
        f"{os.fspath(file)!r} is a pickle of PyTorch or MXNet, which may run code when it is read, "
        "and is not read. Turn it into safetensors where PyTorch is, with the model's number of "
        f"heads: `state = torch.load({file.name!r}, weights_only=True)`, then {_HOW_TO_SAVE}."
    )


class _Npz:
    """The `Tensors` of an npz file, which is a zip archive of arrays, read one at a time."""

    def __init__(self, file: pathlib.Path) -> None:
        self.source = os.fspath(file)
        self._file = file
        if not file.is_file():
            raise FileNotFoundError(f"There is no file {self.source!r}.")
        with self._refusing_damage(), zipfile.ZipFile(file) as archive:
            self._headers = {
                entry.removesuffix(".npy"): _header(archive, entry) for entry in archive.namelist()
            }

    @contextlib.contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(
                f"{self.source!r} is no whole npz file of plain arrays: {error}. Copy it again, or "
                "write it anew with `numpy.savez(file, **arrays)`, of numbers alone."
            ) from error

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: shape for name, (shape, _) in self._headers.items()}

    def dtypes(self) -> Mapping[str, str]:
        return {name: dtype.name for name, (_, dtype) in self._headers.items()}

    def read(self, name: str) -> np.ndarray:
        dtype = self._headers[name][1]
        if dtype.kind != "f":
            raise ValueError(
                f"{self.source!r}: weights must be floating-point numbers. Received: {name!r} in "
                f"{dtype}; where a file holds other arrays too, the names of its weights begin "
                f"with {_PREFIX!r}."
            )
        return self.stored(name).astype(np.float32, copy=False)

    def stored(self, name: str) -> np.ndarray:
        """Returns an array as it is stored; never one of Python objects, which may run code."""
        with self._refusing_damage(), np.load(self._file, allow_pickle=False) as stored:
            return stored[name]


def _header(archive: zipfile.ZipFile, entry: str) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        # Version 3 differs from 2 in the encoding of names within a dtype; numbers have none.
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    return shape, dtype


def _read_npz(file: pathlib.Path) -> tuple[Tensors, dict[str, Any]]:
    npz = _Npz(file)
    return npz, {name: npz.stored(name) for name in _ARGUMENTS if name in npz.shapes()}


def _read_safetensors(file: pathlib.Path) -> tuple[Tensors, dict[str, Any]]:
    tensors = SafetensorsFiles([file])  # which checks the header
    with safetensors.safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata() or {}
    return tensors, {name: metadata[name] for name in _ARGUMENTS if name in metadata}


def _number(source: str, name: str, value: Any) -> Any:
    try:
        return _ARGUMENTS[name](value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{source!r}: `{name}` must be one number. Received: {value!r:.80}."
        ) from error
