"""Vectors of texts in a file, which `similar` writes once and reads in later calls.

The vectors are the rows of a `.npy` file, one per different text. A JSON file next to it identifies
the model and the texts, and says how many rows have been written, so that an interrupted call can
be resumed. Until then, the file is too short for its header, so no program takes it for whole. The
rows are not written through a memory map, because a full disk would end the process.

N: number of different texts, D: hidden width.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from keras import ops

from keras_bert_d2l.checks import check_path, is_integer
from keras_bert_d2l.files import disk_errors, write_json
from keras_bert_d2l.locks import lock_file
from keras_bert_d2l.progress import parts
from keras_bert_d2l.reading import DAMAGE, errors_naming, has_file, read_json_object
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import ConfigDict, PathLike

_AT_ONCE = 2048  # texts between two records of how many rows have been written
_CHECKED, _TOLERANCE = 1000, 1e-3  # vectors whose length is checked, at most, and its error


def stored_vectors(
    path: PathLike,
    texts: Sequence[str],
    model: TextEmbedder,
    tokenizer: Tokenizer,
    encode: Callable[[Sequence[str]], np.ndarray],
    truncate: bool,
) -> np.ndarray:
    """Return the vectors of texts from a file, after encoding those that it lacks.

    Args:
        path: The `.npy` file.
        texts: N different texts.
        model: The model.
        tokenizer: Its tokenizer.
        encode: Returns the vectors of some texts, float32.
        truncate: Whether `encode` truncates texts. A file is only for one of both.

    Returns: float32 `(N, D)`, mapped into memory and read-only.

    Raises:
        BlockingIOError: Another process is writing the file.
        FileNotFoundError: The file is a link that leads nowhere.
        ValueError: The file belongs to a different model or to different texts, or is something
            else.
    """
    check_path("vectors", path)
    path = pathlib.Path(path)
    name, about = os.fspath(path), path.with_suffix(".json")
    if path.suffix != ".npy":
        raise ValueError(f"`vectors` must end in .npy. Received: {name!r}.")
    shape = (len(texts), model.bert_config.num_hiddens)
    options = {"truncate": bool(truncate), "shape": [*shape]}
    facts = {"model": _fingerprint(model, tokenizer), "texts": _sha256(texts), **options}
    if _num_written(path, about, facts) < len(texts):
        busy = f"Another process is writing {name!r}. Wait until it has finished."
        with lock_file(path, busy):
            written = _num_written(path, about, facts)  # another process may have just written it
            write_json(about, {**facts, "written": written})
            with disk_errors(path), open(path, "r+b") as file:
                if written:
                    file.seek(_opened(path, shape, written).offset + 4 * written * shape[1])
                else:
                    file.truncate()
                    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(file, header)
                for part in parts("Encoding", len(texts) - written, _AT_ONCE):
                    start, stop = written + part.start, written + part.stop
                    file.write(encode(texts[start:stop]).astype("<f4").tobytes())
                    file.flush()
                    os.fsync(file.fileno())
                    write_json(about, {**facts, "written": stop})
    elif not texts:
        return np.zeros(shape, np.float32)
    return _opened(path, shape, len(texts))


def _num_written(path: pathlib.Path, about: pathlib.Path, facts: ConfigDict) -> int:
    """Return how many rows have been written, after a check that they are those of `facts`."""
    name, is_empty = os.fspath(path), not has_file(path) or not path.stat().st_size
    if not is_empty and not has_file(about):
        raise ValueError(
            f"`vectors` must be a file that `similar` wrote. Received: {name!r}, without "
            f"{about.name!r} next to it. Choose another file."
        )
    found = read_json_object(about) if has_file(about) else facts
    if not facts.keys() <= found.keys():
        raise ValueError(f"{os.fspath(about)!r} is not a record of vectors. Choose another file.")
    if is_empty:  # it was deleted, or is the lock of a process that has just begun
        return 0
    for key, right in facts.items():
        if found.get(key) != right:
            other = {"model": key, "truncate": "`truncate`"}.get(key, "list of texts")
            raise ValueError(
                f"`vectors` must be a file for this model and these texts. Received: {name!r}, "
                f"which is for a different {other}. Choose another file, or delete this one."
            )
    written = found.get("written", -1)
    if not is_integer(written) or not 0 <= written <= facts["shape"][0]:
        raise ValueError(f"{os.fspath(about)!r} is damaged. Delete it and {path.name!r}.")
    return int(written)


def _opened(path: pathlib.Path, shape: tuple[int, int], written: int) -> np.memmap:
    """Return the rows that have been written, mapped into memory."""
    remedy = f"Delete it and {path.with_suffix('.json').name!r}."
    with errors_naming(path, " is damaged", remedy, DAMAGE):
        with open(path, "rb") as file:
            np.lib.format.read_magic(file)
            stored, _, dtype = np.lib.format.read_array_header_1_0(file)
            if stored != shape or dtype != np.float32:
                raise ValueError(f"it has the shape {stored} and the dtype {dtype}")
            rows = np.memmap(file, dtype, "r", file.tell(), (written, shape[1]))
        lengths = np.linalg.norm(rows[:: len(rows) // _CHECKED + 1], axis=1)
        if (np.abs(lengths[lengths != 0] - 1) > _TOLERANCE).any():
            raise ValueError("not all of its vectors have the length 1")
    return rows


def _fingerprint(model: TextEmbedder, tokenizer: Tokenizer) -> str:
    """Return a hash of everything that vectors depend on."""
    options = {name: getattr(model, name) for name in model.fields}
    settings = [model.bert_config.to_dict(), options, model.dtype_policy.name]
    text = json.dumps([*settings, tokenizer.get_config()], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for weight in model.weights:
        digest.update(np.ascontiguousarray(ops.convert_to_numpy(weight)).tobytes())
    return digest.hexdigest()


def _sha256(texts: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d:%b" % (len(content), content))
    return digest.hexdigest()
