"""Read Google's TFRecord files of pretraining examples, and write files in the same format."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.pretraining.masking_options import Masking
from keras_bert_d2l.data.pretraining.tfrecords import read_tfrecords, write_tfrecords

ROW = {
    "input_ids": [2, 7, 4, 3, 9, 3, 0, 0],
    "input_mask": [1, 1, 1, 1, 1, 1, 0, 0],
    "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0],
    "masked_lm_positions": [2, 0, 0],
    "masked_lm_ids": [8, 0, 0],
    "masked_lm_weights": [1.0, 0.0, 0.0],
    "next_sentence_labels": [0],
}


def write(path, rows):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            example = tf.train.Example()
            for name, values in row.items():
                feature = example.features.feature[name]
                is_float = isinstance(values[0], float)
                (feature.float_list if is_float else feature.int64_list).value.extend(values)
            writer.write(example.SerializeToString())
    return path


def read(path, **options):
    options = {"batch_size": 1, "vocab_size": 10, **options}
    return list(read_tfrecords(path, **options).as_numpy_iterator())


@pytest.mark.slow
def test_an_example_in_google_format_is_read_as_a_batch(tmp_path):
    rows = [ROW, {**ROW, "next_sentence_labels": [1]}]
    ((features, labels, weights),) = read(write(tmp_path / "a.tfrecord", rows), batch_size=2)
    assert features["tokens"].tolist() == [ROW["input_ids"]] * 2
    assert features["segments"].tolist() == [ROW["segment_ids"]] * 2
    assert features["valid_lens"].tolist() == [6, 6]
    assert features["pred_positions"].tolist() == [[2, 0, 0]] * 2
    assert labels["mlm"].tolist() == [[8, 0, 0]] * 2
    assert labels["nsp"].tolist() == [1, 0], "Google uses 0 for next, we use 1"
    assert weights["mlm"].tolist() == [[1, 0, 0]] * 2
    assert weights["nsp"].tolist() == [1, 1]
    assert {array.dtype.name for array in features.values()} == {"int32"}


def test_new_feature_names_and_files_without_next_sentence_labels_are_read(tmp_path):
    row = {"input_word_ids": ROW["input_ids"], "input_type_ids": ROW["segment_ids"]}
    row |= {name: ROW[name] for name in ROW if name.startswith(("masked", "input_mask"))}
    ((features, labels, weights),) = read(write(tmp_path / "a.tfrecord", [row]))
    assert features["tokens"].tolist() == [ROW["input_ids"]]
    assert labels.keys() == weights.keys() == {"mlm"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"split": "train", "held_out": 0.3, "num_predictions": 2},
        {"max_len": 12, "masking": Masking(count="bernoulli")},  # some rows have no predictions
    ],
)
def test_the_written_examples_equal_those_of_the_pipeline(make_store, tmp_path, options):
    text = make_store([[5, 7, 3, 9, 4]] * 30)
    options = {"max_len": 24, **options}
    path = tmp_path / "examples" / "a.tfrecord"
    count = write_tfrecords(text.store, text.tokenizer, path, dupe_factor=2, seed=4, **options)
    vocab_size = len(text.tokenizer.vocab)
    batches = read(path, batch_size=count, vocab_size=vocab_size)
    expected = []
    for seed in (4, 5):
        rows = pretraining_dataset(
            text.store, text.tokenizer, batch_size=1, drop_remainder=False, seed=seed, **options
        )
        expected += list(rows.as_numpy_iterator())
    assert count == len(expected) > 60
    joined = tf.nest.map_structure(lambda *arrays: np.concatenate(arrays), *expected)
    for theirs, ours in zip(batches[0], joined, strict=True):
        assert theirs.keys() == ours.keys()
        for name, array in ours.items():
            np.testing.assert_array_equal(theirs[name], array, err_msg=name)
    assert [path.name for path in (tmp_path / "examples").iterdir()] == ["a.tfrecord"]


@pytest.mark.slow
def test_the_same_call_writes_the_same_bytes(make_store, tmp_path):
    text = make_store([[5, 7, 3, 9, 4]] * 10)
    contents = set()
    for name in "ab":
        write_tfrecords(text.store, text.tokenizer, tmp_path / name, dupe_factor=1, max_len=24)
        contents.add((tmp_path / name).read_bytes())
    assert len(contents) == 1


@pytest.mark.slow
def test_files_are_read_in_order_or_shuffled_by_the_seed(tmp_path):
    rows = [{**ROW, "masked_lm_ids": [place % 10, 0, 0]} for place in range(30)]
    for number in range(3):
        write(tmp_path / f"{number}.tfrecord", rows[10 * number : 10 * number + 10])

    def ids(**options):
        batches = read(tmp_path / "*.tfrecord", **options)
        return [int(row[0]) for _, labels, _ in batches for row in labels["mlm"]]

    assert ids() == [*range(10)] * 3
    assert ids(epochs=2, batch_size=7) == ([*range(10)] * 6)[:56]
    assert len(ids(batch_size=7, drop_remainder=False)) == 30
    assert ids(seed=1) == ids(seed=1) != ids(seed=2)
    assert sorted(ids(seed=1)) == sorted(ids())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_ids": [2, 7, 10, 3, 9, 3, 0, 0]}, "`input_ids` must be from 0 to 9"),
        ({"masked_lm_ids": [-1, 0, 0]}, "`masked_lm_ids` must be from 0 to 9"),
        ({"masked_lm_positions": [8, 0, 0]}, "`masked_lm_positions` must be from 0 to 7"),
        ({"input_mask": [0] * 8}, "`sum of input_mask` must be from 1 to 8. Received: 0"),
        ({"segment_ids": [0, 0, 2, 0, 0, 0, 0, 0]}, "`segment_ids` must be from 0 to 1"),
        ({"next_sentence_labels": [2]}, "`next_sentence_labels` must be from 0 to 1. Received: 2"),
        ({"input_mask": [0, 1, 1, 1, 1, 1, 1, 0]}, "`input_mask` must be ones, then zeros"),
    ],
)
def test_values_out_of_range_raise_an_error(tmp_path, change, message):
    path = write(tmp_path / "a.tfrecord", [{**ROW, **change}])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        read(path)


def test_drop_remainder_must_be_a_boolean(tmp_path):
    path = write(tmp_path / "a.tfrecord", [ROW])
    with pytest.raises(ValueError, match="`drop_remainder` must be True or False. Received: .*'x'"):
        read(path, drop_remainder="x")


def test_other_files_are_rejected(tmp_path):
    (tmp_path / "text").write_text("This is no file of records, but it is long enough for one.")
    with pytest.raises(ValueError, match="text' is not a TFRecord file of examples"):
        read(tmp_path / "text")
    row = {name: values for name, values in ROW.items() if name != "masked_lm_ids"}
    with pytest.raises(ValueError, match=r"no 'masked_lm_ids' in the first example.*'input_ids'"):
        read(write(tmp_path / "other", [row]))
    with pytest.raises(ValueError, match=r"no 'input_ids' in the first example.*nothing"):
        read(write(tmp_path / "empty", []))
    with pytest.raises(FileNotFoundError, match="missing"):
        read(tmp_path / "missing")
    with pytest.raises(ValueError, match="an empty list"):
        read([])


def test_arguments_out_of_range_are_rejected(make_store, tmp_path):
    text = make_store([[5, 5]] * 4)
    with pytest.raises(ValueError, match="dupe_factor=0"):
        write_tfrecords(text.store, text.tokenizer, tmp_path / "a", dupe_factor=0)
    for option in ({"causal": True}, {"shard": (1, 2)}, {"epochs": 3}):
        with pytest.raises(ValueError, match="does not define an example.*omit it"):
            write_tfrecords(text.store, text.tokenizer, tmp_path / "a", **option)
    for rows in ("packed", "bucketed"):
        with pytest.raises(ValueError, match=f"Received: rows='{rows}'; omit it"):
            write_tfrecords(text.store, text.tokenizer, tmp_path / "a", rows=rows)
    with pytest.raises(ValueError, match="batch_size=0"):
        read(write(tmp_path / "b", [ROW]), batch_size=0)


def test_the_error_for_an_unwritable_file_names_it(make_store, tmp_path):
    text = make_store([[5, 5]] * 4)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_tfrecords(text.store, text.tokenizer, tmp_path / "file" / "a", max_len=12)
    assert [path.name for path in tmp_path.iterdir() if path.name != "store"] == ["file"]
