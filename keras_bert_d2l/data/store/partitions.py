"""Divide entries with keys into parts that fit into memory, with files on disk.

E: entries of a block or part, C: their columns.
"""

import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np

from keras_bert_d2l.data.store.shards import open_files, put

ENTRIES_AT_ONCE = 1 << 18  # in memory; of two columns, they take 20 MB with sort order
_MOST_FILES = 512  # open at the same time
_MOST_LEVELS = 4  # of files; only very many equal keys could need more


def partitions(
    blocks: Iterator[np.ndarray], count: int, directory: pathlib.Path, level: int = 0
) -> Iterator[np.ndarray]:
    """Divide entries into parts by their keys, the first column.

    Args:
        blocks: The entries, uint64 `(E, C)` each, at least one block.
        count: Number of entries in all blocks.
        directory: Folder for temporary files.
        level: How often these entries were divided before.

    Yields:
        Entries, uint64 `(E, C)`. All entries with the same key are in the same part, in the order
        in which they were given.
    """
    if count <= ENTRIES_AT_ONCE or level == _MOST_LEVELS:
        yield np.concatenate(list(blocks))
        return
    # Twice as many as needed, because files differ in size.
    num_files = min(2 * count // ENTRIES_AT_ONCE + 1, _MOST_FILES)
    sizes, num_columns = np.zeros(num_files, np.int64), 0
    with tempfile.TemporaryDirectory(dir=directory, prefix=".parts.") as folder:
        paths = [pathlib.Path(folder, str(number)) for number in range(num_files)]
        with open_files(pathlib.Path(folder), [path.name for path in paths], "wb") as files:
            for block in blocks:
                keys = block[:, 0] // np.uint64(_MOST_FILES**level)
                part = (keys % np.uint64(num_files)).astype(np.int64)
                counts = np.bincount(part, minlength=num_files)
                block = block[np.argsort(part, kind="stable")]
                for file, some in zip(files, np.split(block, np.cumsum(counts)[:-1]), strict=True):
                    put(file, some)
                sizes += counts
                num_columns = block.shape[1]
        for path, size in zip(paths, sizes.tolist(), strict=True):
            if size:
                yield from partitions(_read(path, num_columns), size, directory, level + 1)
            path.unlink()


def _read(path: pathlib.Path, num_columns: int) -> Iterator[np.ndarray]:
    with open(path, "rb") as file:
        while len(values := np.fromfile(file, "<u8", num_columns * ENTRIES_AT_ONCE)):
            yield values.reshape(-1, num_columns)
