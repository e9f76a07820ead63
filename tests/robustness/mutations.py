"""Random damage to a folder: one change per mutant, reproducible from a seed."""

import copy
import json
import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from keras_bert_d2l.files import CHECKSUMS, write_checksums

# Values that a field of a configuration could get by mistake or by malice.
WRONG_VALUES = (
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.5, 10**6, 10**12, 10**400, math.nan, math.inf),
    *("", "x", "\x00", "../..", "a" * 10_000, [], [[]], {}, {"x": 1}, ["x"] * 3),
)
SPARSE_BYTES = 2**27  # larger than any file or memory limit of these tests


def mutate(folder: Path, rng: random.Random) -> str:
    """Damage a folder or file in one way that is possible for it; return how, and which file."""
    while True:
        files = _files(folder)
        name = rng.choice(sorted(MUTATIONS))
        file = rng.choice(files)
        if MUTATIONS[name](file, files, rng):
            return f"{name} of {file.relative_to(folder) if file != folder else 'it'}"


def _files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _flip_bit(file: Path, files: list[Path], rng: random.Random) -> bool:
    data = bytearray(file.read_bytes())
    if not data:
        return False
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return True


def _truncate(file: Path, files: list[Path], rng: random.Random) -> bool:
    size = file.stat().st_size
    if not size:
        return False
    os.truncate(file, rng.choice([0, size - 1, rng.randrange(size)]))
    return True


def _extend(file: Path, files: list[Path], rng: random.Random) -> bool:
    os.truncate(file, SPARSE_BYTES)
    return True


def _delete(file: Path, files: list[Path], rng: random.Random) -> bool:
    file.unlink()
    return True


def _replace_by_folder(file: Path, files: list[Path], rng: random.Random) -> bool:
    file.unlink()
    file.mkdir()
    return True


def _replace_by_noise(file: Path, files: list[Path], rng: random.Random) -> bool:
    file.write_bytes(rng.choice([rng.randbytes(200), b"[" * 100_000, b'{"a":' * 100_000, b"null"]))
    return True


def _swap(file: Path, files: list[Path], rng: random.Random) -> bool:
    other = rng.choice(files)
    if other.read_bytes() == file.read_bytes():
        return False
    aside = file.with_name(file.name + ".aside")
    file.rename(aside)
    other.rename(file)
    aside.rename(other)
    return True


def _edit_field(file: Path, files: list[Path], rng: random.Random) -> bool:
    formats = {".json": (json.loads, json.dumps), ".yaml": (yaml.safe_load, yaml.safe_dump)}
    if file.suffix not in formats:
        return False
    read, write = formats[file.suffix]
    content = read(file.read_text(encoding="utf-8"))
    file.write_text(write(_edited(content, rng)), encoding="utf-8")
    return True


def _edited(content: object, rng: random.Random) -> object:
    """Return a JSON value in which one field has changed, is missing or is new."""
    places = list(_places(content))
    if not places:
        return rng.choice(WRONG_VALUES)
    holder, key = rng.choice(places)
    change = rng.random()
    if change < 0.2:
        del holder[key]
    elif change < 0.3 and isinstance(holder, dict):
        holder["unknown"] = rng.choice(WRONG_VALUES)
    elif change < 0.5:
        other_holder, other_key = rng.choice(places)
        # A copy, because a value that contains itself cannot be written.
        other = copy.deepcopy(other_holder[other_key])
        holder[key] = other if other_holder is not holder else [holder[key]]
    else:
        holder[key] = rng.choice(WRONG_VALUES)
    return content


def _places(content: object) -> Iterator[tuple]:
    """Yield each list or dictionary within a JSON value with each of its keys."""
    if isinstance(content, dict | list):
        for key in list(content) if isinstance(content, dict) else range(len(content)):
            yield content, key
            yield from _places(content[key])


MUTATIONS: dict[str, Callable[[Path, list[Path], random.Random], bool]] = {
    "bit flip": _flip_bit,
    "truncation": _truncate,
    "sparse 128 MB": _extend,
    "deleted file": _delete,
    "folder instead of file": _replace_by_folder,
    "noise instead of file": _replace_by_noise,
    "swapped files": _swap,
    "edited field": _edit_field,
}


def sign_again(folder: Path) -> None:
    """Update all `SHA256SUMS` below a folder, as if the damage had been intended."""
    for checksums in list(folder.rglob(CHECKSUMS)):
        if checksums.is_file():
            write_checksums(checksums.parent)
