import functools

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.audit import COMPILED, audit_saved_model
from keras_bert_d2l.serving.saved_model import WARMUP_FILE, export_saved_model
from keras_bert_d2l.signatures.compiled import CompiledEncoder, compiled_lengths, compiled_shapes
from tests.family import config_of
from tests.own_model import own_model
from tests.serving.conftest import TOP_K

TEXTS = ["red [MASK]", "", "[MASK] blue [MASK]ish green", "Reddish, green"]


def test_the_lengths_grow_by_half_up_to_the_maximum():
    assert compiled_lengths(512) == (16, 24, 32, 48, 64, 96, 128)
    assert compiled_lengths(50) == (16, 24, 32, 48, 50)
    assert compiled_lengths(7) == (7,)


def test_the_number_of_shapes_is_bounded():
    for max_len in (1, 7, 16, 100, 128, 512, 8192):
        shapes = compiled_shapes(max_len)
        assert 0 < len(shapes) <= 16
        assert all(rows * length <= 128 for rows, length in shapes)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 3), (1, 16)),
        ((3, 17), (4, 24)),
        ((1, 128), (1, 128)),
        ((0, 5), (1, 16)),
        ((1, 129), None),  # too long
        ((9, 16), None),  # too many rows
        ((5, 16), (8, 16)),
        ((5, 17), None),  # 8 rows of 24 tokens are too many
    ],
)
def test_small_batches_are_padded_and_the_others_are_not_compiled(shape, expected):
    seen = []

    def encoder(is_compiled, *batch):
        seen.append((is_compiled, *(np.asarray(x).tolist() for x in batch)))
        return tf.cast(batch[0], tf.float32)[:, :, None]

    encode, compiled = (functools.partial(encoder, is_compiled) for is_compiled in (False, True))
    config = config_of("roberta", max_len=512)
    tokens = np.arange(shape[0] * shape[1], dtype="int32").reshape(shape) + 5
    lengths = np.full(shape[0], shape[1], "int32")
    encoded = CompiledEncoder(encode, compiled, config)(tokens, np.zeros_like(tokens), lengths)
    np.testing.assert_array_equal(encoded[:, :, 0], tokens)
    [(is_compiled, ids, segments, valid_lens)] = seen
    assert is_compiled == (expected is not None)
    rows, length = expected or shape
    around = [(0, rows - shape[0]), (0, length - shape[1])]
    assert ids == np.pad(tokens, around, constant_values=config.pad_id).tolist()
    assert segments == np.zeros((rows, length)).tolist()
    assert valid_lens == [*lengths.tolist(), *[1] * (rows - shape[0])]


@pytest.mark.slow
def test_a_compiled_export_answers_like_the_default_one(served, model, tokenizer, tmp_path):
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    folder = export_saved_model(model, tmp_path, tokenizer=tokenizer, top_k=TOP_K, xla=True)
    signatures = tf.saved_model.load(str(folder)).signatures
    for name in ("serving_default", "fill_mask"):
        expected = served(name, text=TEXTS)
        answer = signatures[name](text=tf.constant(TEXTS))
        assert answer.keys() == expected.keys()
        for output, array in expected.items():
            if array.dtype == np.float32:
                np.testing.assert_allclose(answer[output], array, atol=1e-5)
            else:
                np.testing.assert_array_equal(answer[output].numpy(), array)
    [finding] = audit_saved_model(folder)
    assert finding.problem == COMPILED
    records = tf.data.TFRecordDataset(str(folder / WARMUP_FILE))
    num_shapes = len(compiled_shapes(model.bert_config.max_len))
    assert len([*records]) == len(signatures) + num_shapes


def test_own_models_are_not_compiled(tokenizer, tmp_path):
    model = own_model(len(tokenizer.vocab))
    with pytest.raises(ValueError, match="`xla` requires a BERTModel or a model of a task"):
        export_saved_model(model, tmp_path, tokenizer=tokenizer, xla=True)
