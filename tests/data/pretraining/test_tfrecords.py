"""Read Google's TFRecord files of pretraining examples."""

import pytest
import tensorflow as tf

from keras_bert_d2l.data.pretraining.tfrecords import read_tfrecords

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
def test_files_are_read_in_order_or_shuffled_by_the_seed(tmp_path):
    rows = [{**ROW, "masked_lm_ids": [place % 10, 0, 0]} for place in range(30)]
    for number in range(3):
        write(tmp_path / f"{number}.tfrecord", rows[10 * number : 10 * number + 10])

    def ids(**options):
        batches = read(tmp_path / "*.tfrecord", batch_size=7, **options)
        return [int(row[0]) for _, labels, _ in batches for row in labels["mlm"]]

    assert ids(epochs=2) == ([*range(10)] * 6)[:56]
    shuffled = ids(seed=1, drop_remainder=False)
    assert sorted(shuffled) == sorted([*range(10)] * 3)
    assert ids(seed=1, drop_remainder=False) == shuffled != ids(seed=2, drop_remainder=False)


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


@pytest.mark.parametrize("option", ["batch_size", "vocab_size", "epochs", "drop_remainder"])
def test_the_error_for_an_option_out_of_range_names_it(tmp_path, option):
    with pytest.raises(ValueError, match=rf"`{option}` must be .*: {option}=-1"):
        read(write(tmp_path / "a.tfrecord", [ROW]), **{option: -1})
