"""Weights in HDF5: `tf_model.h5`, `.h5` of Keras 2 and `.weights.h5` of Keras 3.

An HDF5 file is a small file system, and hostile ones abuse it: links, external storage and virtual
datasets read other files of the machine (CVE-2026-1669), and compressed or unwritten values fill
its memory. h5py shows here only which datasets there are and where their values lie. It opens no
link to another place and reads no values: they are read at their places, as in safetensors files.
Keras writes nothing else. Attributes are not looked at.
"""

import io
import math
import pathlib
from collections.abc import Mapping, Sequence

import h5py
import numpy as np

from keras_bert_d2l.checkpoints.array_files import ArrayFile, NamedArrays, Place, check, together
from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import DAMAGE, errors_naming

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MOST_OBJECTS = 10_000  # BERT large has 2,000
_MOST_CHARACTERS = 1000  # of a path; those of TensorFlow's BERTs have 100
_BFLOAT16_BYTES = 2  # Keras writes bfloat16 as an opaque type of this size
_DTYPES = {h5py.h5t.IEEE_F32LE: "F32", h5py.h5t.IEEE_F16LE: "F16", h5py.h5t.IEEE_F64LE: "F64"}
# Kinds of datasets that are not weights, such as a step count.
_OTHERS = (h5py.h5t.FLOAT, h5py.h5t.INTEGER, h5py.h5t.STRING, h5py.h5t.ENUM)
_REMEDY = (
    "Only plain datasets are read, as Keras writes them without compression. If the file is "
    "damaged, copy it again. Otherwise save the weights again in the program that made them."
)


def open_hdf5(files: Sequence[pathlib.Path]) -> NamedArrays:
    """Open one HDF5 file of weights, or all files of a sharded model, in any order.

    The names are the full paths of the datasets, such as `bert/pooler/dense/kernel:0`. Datasets of
    integers, strings and booleans are listed; to read one of them is an error.

    The files stay open, so the arrays belong together even if the files are replaced later.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file is damaged or has something other than groups and plain datasets, or two
            files contain the same name.
    """
    return together(files, [_HDF5File(path) for path in files])


def write_hdf5(file: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by their paths to a folder that is not yet visible to readers."""
    content = io.BytesIO()  # HDF5 crashes if it writes to a full disk
    with h5py.File(content, "w") as written:
        for path, array in arrays.items():
            written.create_dataset(path, data=array)
    file.write_bytes(content.getbuffer())


class _HDF5File(ArrayFile):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__(path)
        self._sum = 0  # of the bytes of all datasets
        self._seen: set[int] = set()
        self.places: dict[str, Place] = {}
        what, errors = " is not an HDF5 file of weights", (*DAMAGE, TypeError, MemoryError)
        with errors_naming(path, what, _REMEDY, errors):
            check(self._file.read(len(_SIGNATURE)) == _SIGNATURE, "it does not begin as HDF5 does")
            # The driver of Python files neither locks the file nor opens another one.
            with h5py.File(self._file, "r") as file:
                self._walk(file.id)

    def _walk(self, root: h5py.h5g.GroupID) -> None:
        """Find the datasets of all groups."""
        groups = [("", root)]
        self._seen.add(h5py.h5o.get_info(root).addr)
        while groups:
            path, group = groups.pop()
            for link, address in self._links(group, path):
                name = path + link.decode()
                check(len(name) <= _MOST_CHARACTERS, f"{shown(name)} is too long")
                check(address not in self._seen, f"{shown(name)} is a second name of an object")
                self._seen.add(address)
                found = h5py.h5o.open(group, link)
                if isinstance(found, h5py.h5g.GroupID):
                    groups.append((f"{name}/", found))
                    continue
                is_dataset = isinstance(found, h5py.h5d.DatasetID)
                check(is_dataset, f"{shown(name)} is neither a group nor a dataset")
                self.places[name] = self._place(name, found)

    def _links(self, group: h5py.h5g.GroupID, path: str) -> list[tuple[bytes, int]]:
        """Return the names and addresses of the objects of a group."""
        links: list[tuple[bytes, int, int]] = []
        room = _MOST_OBJECTS - len(self._seen)

        def add(name: bytes, link: h5py.h5l.LinkInfo) -> bool | None:
            links.append((name, link.type, link.u))  # the `link` is the same object in each call
            return True if len(links) > room else None  # `True` ends the iteration

        group.links.iterate(add, info=True)
        check(len(links) <= room, f"it has more than {_MOST_OBJECTS:,} objects")
        for name, kind, _ in links:
            where = shown(path + name.decode())
            check(kind == h5py.h5l.TYPE_HARD, f"{where} is a link to another place")
            check(name not in (b"", b".") and b"/" not in name, f"{where} is not a valid name")
        return [(name, address) for name, _, address in links]

    def _place(self, name: str, dataset: h5py.h5d.DatasetID) -> Place:
        creation, type = dataset.get_create_plist(), dataset.get_type()
        layout = creation.get_layout()
        for problem, is_found in {
            "is virtual: its values are in other files": layout == h5py.h5d.VIRTUAL,
            "has its values in another file": creation.get_external_count(),
            "is compressed or in chunks": layout != h5py.h5d.CONTIGUOUS or creation.get_nfilters(),
            "shares its dtype with others": type.committed(),
        }.items():
            check(not is_found, f"{shown(name)} {problem}")
        kind, shape, start = type.get_class(), dataset.shape, dataset.get_offset()
        is_bfloat16 = (kind, type.get_size()) == (h5py.h5t.OPAQUE, _BFLOAT16_BYTES)
        dtype = "BF16" if is_bfloat16 else "another dtype" if kind in _OTHERS else ""
        dtype = next((spelled for known, spelled in _DTYPES.items() if type.equal(known)), dtype)
        check(dtype != "", f"{shown(name)} has a dtype that weights do not have")
        # Values that were never written have no place: HDF5 would invent them.
        check(start is not None, f"the values of {shown(name)} are not in the file")
        size = math.prod(shape) * type.get_size()
        check(start + size <= self._size, f"{shown(name)} is larger than the file")
        self._sum += size
        check(self._sum <= self._size, "its datasets are larger than the file")
        return Place(dtype, shape, start)
