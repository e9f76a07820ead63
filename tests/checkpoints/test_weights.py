import keras
import numpy as np
import pytest

from keras_bert_d2l.checkpoints.weights import (
    POSITIONS,
    SAME,
    SWAPPED,
    SWAPPED_TRANSPOSED,
    TRANSPOSED,
    NamedArrays,
    Row,
    load_weights,
    named_weights,
    stored_weights,
)
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel

CONFIG = BERTConfig(8, 4, 8, 2, 1, 0.1, 16)
TOKENS = "encoder/token_embedding/embeddings"
LAYOUTS = {  # some layouts of a format that stores everything differently
    "encoder/pos_embedding": POSITIONS,
    "hidden/kernel": TRANSPOSED,
    "nsp/dense/kernel": SWAPPED_TRANSPOSED,
    "nsp/dense/bias": SWAPPED,
}


@pytest.fixture(scope="module")
def model():
    """A model, whose weights tests may load."""
    return BERTModel.from_bert_config(CONFIG)


@pytest.fixture(scope="module")
def table(model):
    """The table of a format whose weight names are in uppercase."""
    return [Row(name, name.upper(), LAYOUTS.get(name, SAME)) for name in named_weights(model)]


@pytest.fixture(scope="module")
def stored(model, table):
    """Weights in that format, with values that differ from those of a new model."""
    for number, weight in enumerate(named_weights(model).values()):
        size = int(np.prod(weight.shape))
        weight.assign(np.reshape(np.arange(size) / size + number, weight.shape))
    return stored_weights(model, table)


@pytest.fixture
def arrays(stored):
    return {name: array.copy() for name, array in stored.items()}


def load(model, table, arrays):
    file = NamedArrays(
        source="file",
        shapes={name: array.shape for name, array in arrays.items()},
        dtypes={name: array.dtype.name for name, array in arrays.items()},
        read=lambda name: arrays[name].astype("float32"),
    )
    load_weights(model, table, file)
    return sorted(model.missing_heads)


def test_weight_names_do_not_depend_on_the_name_or_scope_of_the_model(model):
    with keras.name_scope("outer"):
        other = BERTModel.from_bert_config(CONFIG, name="encoder")
    assert named_weights(other).keys() == named_weights(model).keys()


def test_weights_are_bitwise_identical_after_conversion_to_a_different_layout_and_back(
    model, table, arrays
):
    for weight in named_weights(model).values():
        weight.assign(np.zeros(weight.shape))
    assert load(model, table, arrays) == []
    again = stored_weights(model, table)
    assert again.keys() == arrays.keys() == {name.upper() for name in named_weights(model)}
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)
        assert again[name].flags.c_contiguous
        assert again[name].dtype == np.float32
    weights = {name: np.asarray(weight) for name, weight in named_weights(model).items()}
    np.testing.assert_array_equal(
        arrays["ENCODER/POS_EMBEDDING"], weights["encoder/pos_embedding"][0]
    )
    np.testing.assert_array_equal(arrays["HIDDEN/KERNEL"], weights["hidden/kernel"].T)
    is_next = weights["nsp/dense/kernel"][:, 1]  # column 1 in the model, row 0 in the file
    np.testing.assert_array_equal(arrays["NSP/DENSE/KERNEL"][0], is_next)
    np.testing.assert_array_equal(arrays["NSP/DENSE/BIAS"], weights["nsp/dense/bias"][::-1])


ZEROS = np.zeros(3, "float32")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"HIDDEN/BIAS": None, TOKENS.upper(): None}, "'file' lacks .*TOKEN_EMB.*incomplete"),
        ({f"EXTRA/{n}": ZEROS for n in range(5)}, "'file' .*: EXTRA/0, EXTRA/1, EXTRA/2 and 2"),
        ({TOKENS.upper(): np.zeros((9, 4), "float32")}, r"\(9, 4\) instead of \(8, 4\)"),
        ({"HIDDEN/BIAS": np.full(4, -np.inf, "float32")}, "not finite.*HIDDEN/BIAS"),
    ],
)
def test_arrays_that_do_not_match_are_rejected(changes, message, model, table, arrays):
    before = named_weights(model)[TOKENS].numpy()
    changed = {name: array for name, array in (arrays | changes).items() if array is not None}
    with pytest.raises(ValueError, match=message):
        load(model, table, changed)
    np.testing.assert_array_equal(named_weights(model)[TOKENS], before)


def test_a_format_that_lacks_a_weight_cannot_express_the_model(model, table, arrays):
    rows = [row for row in table if row.ours != "nsp/dense/bias"]
    for use in (lambda: stored_weights(model, rows), lambda: load(model, rows, arrays)):
        with pytest.raises(ValueError, match="cannot express this model.*nsp/dense/bias"):
            use()
