"""`write_features`: write the vectors of texts to a .npz, .parquet or .jsonl file.

N: number of texts, L: number of layers, T: tokens per text, D: hidden width.
"""

import contextlib
import json
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from keras_bert_d2l.files import replacing_file
from keras_bert_d2l.inference.features.extraction import Features
from keras_bert_d2l.types import PathLike

Write: TypeAlias = Callable[[Features], None]
_ROWS_PER_GROUP = 256  # rows of a Parquet file that are in memory at the same time


def write_features(path: PathLike, features: Iterable[Features]) -> int:
    """Write the vectors of texts to a file, one text at a time.

    The extension of the file selects the format:

    - `.npz`: `vectors`, float32 `(N, L, D)`. Without pooling, the rows of all tokens: `vectors`
      float32 `(rows, L, D)` and `starts` int64 `(N + 1,)`; the rows of text i are
      `vectors[starts[i]:starts[i + 1]]`.
    - `.parquet`: the columns `text`, `tokens` and `vectors`, nested lists of the shape `(L, D)` or
      `(L, T, D)`. Requires the extra `parquet`.
    - `.jsonl`: an object with the same three fields per line.

    A file at `path` is replaced when the new one is complete.

    Args:
        path: The file.
        features: The result of `extract_features`.

    Returns: the number of texts, N.

    Raises:
        ValueError: The extension is unknown, or there are no texts.
        ImportError: pyarrow is not installed.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
    model = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    found = kb.extract_features(model, ["the cat", "sat"], pooling="mean", tokenizer=tokenizer)
    kb.write_features("vectors.npz", found)
    ```
    """
    check_features_path(path)
    num_texts = 0
    with (
        replacing_file(path) as temporary,
        _WRITERS[pathlib.Path(path).suffix](temporary) as write,
    ):
        for found in features:
            write(found)
            num_texts += 1
        if not num_texts:
            raise ValueError("`features` must have at least one text. Received: none.")
    return num_texts


def check_features_path(path: PathLike) -> None:
    """Raise `ValueError` if a file has no extension that `write_features` knows."""
    if pathlib.Path(path).suffix not in _WRITERS:
        raise ValueError(f"The file must end in {', '.join(_WRITERS)}. Received: {str(path)!r}.")


@contextlib.contextmanager
def _npz_writer(path: pathlib.Path) -> Iterator[Write]:
    # The header of an array contains its length, so the vectors wait in a file of their own.
    with tempfile.TemporaryFile(dir=path.parent) as vectors:
        starts, shape, is_pooled = [0], (0, 0), True

        def write(features: Features) -> None:
            nonlocal shape, is_pooled
            is_pooled = features.vectors.ndim == 2
            rows = features.vectors[None] if is_pooled else features.vectors.swapaxes(0, 1)
            vectors.write(rows.astype("<f4").tobytes())
            starts.append(starts[-1] + len(rows))
            shape = rows.shape[1:]

        yield write
        vectors.seek(0)
        with zipfile.ZipFile(path, "w") as archive:
            with archive.open("vectors.npy", "w", force_zip64=True) as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (starts[-1], *shape)}
                np.lib.format.write_array_header_1_0(file, header)
                shutil.copyfileobj(vectors, file)
            if not is_pooled:
                with archive.open("starts.npy", "w") as file:
                    np.lib.format.write_array(file, np.array(starts), allow_pickle=False)


@contextlib.contextmanager
def _parquet_writer(path: pathlib.Path) -> Iterator[Write]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files require pyarrow. Install it with "
            "`pip install 'keras-bert-d2l[parquet]'`, or write .npz or .jsonl."
        ) from error
    rows: list[dict[str, object]] = []
    with contextlib.ExitStack() as stack:
        file: pyarrow.parquet.ParquetWriter | None = None

        def flush() -> None:
            if file is not None:
                file.write_table(pyarrow.Table.from_pylist(rows, file.schema))
                rows.clear()

        def write(features: Features) -> None:
            nonlocal file
            if file is None:
                vectors = pyarrow.float32()
                for _ in features.vectors.shape:
                    vectors = pyarrow.list_(vectors)
                texts = pyarrow.string()
                columns = {"text": texts, "tokens": pyarrow.list_(texts), "vectors": vectors}
                file = pyarrow.parquet.ParquetWriter(path, pyarrow.schema(columns))
                stack.enter_context(file)
            rows.append({**_fields(features), "vectors": features.vectors.tolist()})
            if len(rows) == _ROWS_PER_GROUP:
                flush()

        yield write
        flush()


@contextlib.contextmanager
def _jsonl_writer(path: pathlib.Path) -> Iterator[Write]:
    with open(path, "w", encoding="utf-8") as file:

        def write(features: Features) -> None:
            # The shortest digits that give the same float32 number.
            shortest = np.array([float(str(x)) for x in features.vectors.ravel()])
            vectors = shortest.reshape(features.vectors.shape).tolist()
            record = {**_fields(features), "vectors": vectors}
            file.write(f"{json.dumps(record, ensure_ascii=False)}\n")

        yield write


def _fields(features: Features) -> dict[str, object]:
    return {"text": features.text, "tokens": list(features.tokens)}


_WRITERS = {".npz": _npz_writer, ".parquet": _parquet_writer, ".jsonl": _jsonl_writer}
