"""Files of vectors contain exactly the vectors, and are written one text at a time."""

import json
import tracemalloc

import numpy as np
import pytest

from keras_bert_d2l import Features, write_features

RNG = np.random.default_rng(0)


def test_json_has_the_shortest_digits_of_each_number(tmp_path):
    vectors = np.float32([[[0.1, 1 / 3]]])
    write_features(tmp_path / "a.jsonl", [Features("a", ("a",), vectors)])
    assert '"vectors": [[[0.1, 0.33333334]]]' in (tmp_path / "a.jsonl").read_text()


def make_features(lengths, pooled=False):
    for length in lengths:
        shape = (2, 4) if pooled else (2, length, 4)
        tokens = tuple(f"t{index}" for index in range(length))
        yield Features(f"text “{length}”", tokens, RNG.normal(size=shape).astype("float32"))


def read(path):
    """Return the texts, the tokens and the vectors of a Parquet or JSONL file."""
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return [(row["text"], tuple(row["tokens"]), np.float32(row["vectors"])) for row in rows]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("pooled", [False, True])
def test_tables_contain_texts_tokens_and_exact_vectors(suffix, pooled, tmp_path):
    expected = list(make_features([3, 1, 5] * 100, pooled))
    path = tmp_path / f"vectors{suffix}"
    assert write_features(path, expected) == 300
    for (text, tokens, vectors), one in zip(read(path), expected, strict=True):
        assert (text, tokens) == (one.text, one.tokens)
        np.testing.assert_array_equal(vectors, one.vectors)


def test_npz_contains_one_row_for_each_text_with_pooling(tmp_path):
    expected = list(make_features([3, 1, 5], pooled=True))
    write_features(tmp_path / "vectors.npz", expected)
    with np.load(tmp_path / "vectors.npz") as arrays:
        assert list(arrays) == ["vectors"]
        np.testing.assert_array_equal(arrays["vectors"], [one.vectors for one in expected])


def test_npz_contains_the_rows_of_all_tokens_without_pooling(tmp_path):
    expected = list(make_features([3, 1, 5]))
    write_features(tmp_path / "vectors.npz", expected)
    with np.load(tmp_path / "vectors.npz") as arrays:
        starts, vectors = arrays["starts"], arrays["vectors"]
    np.testing.assert_array_equal(starts, [0, 3, 4, 9])
    for index, one in enumerate(expected):
        rows = vectors[starts[index] : starts[index + 1]]
        np.testing.assert_array_equal(rows.swapaxes(0, 1), one.vectors)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".jsonl"])
def test_memory_does_not_grow_with_the_number_of_texts(suffix, tmp_path):
    write_features(tmp_path / f"first{suffix}", make_features([8]))  # imports what it needs
    peaks = []
    for count in (600, 3000):
        tracemalloc.start()
        write_features(tmp_path / f"{count}{suffix}", make_features([8] * count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 200_000, peaks


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "vectors.npz"
    write_features(path, make_features([3]))
    before = path.read_bytes()

    def broken():
        yield from make_features([3])
        raise ValueError("broken text")

    with pytest.raises(ValueError, match="broken text"):
        write_features(path, broken())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in .npz, .parquet, .jsonl"):
        write_features(tmp_path / "vectors.csv", make_features([3]))
    with pytest.raises(ValueError, match="at least one text"):
        write_features(tmp_path / "vectors.npz", [])
    assert list(tmp_path.iterdir()) == []
