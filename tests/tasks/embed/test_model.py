import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTModel, CosineLoss, RankingLoss, TextEmbedder
from tests.nightly import nightly_except

VOCAB_SIZE, SIZE, LENGTH = 13, 6, 8


@pytest.fixture(scope="module")
def bert():
    return BERTModel(VOCAB_SIZE, 16, 24, 2, 1, 0.0, 12)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return {
        "tokens": rng.integers(0, VOCAB_SIZE, (SIZE, LENGTH), "int32"),
        "segments": rng.integers(0, 2, (SIZE, LENGTH), "int32"),
        "valid_lens": rng.integers(3, LENGTH + 1, SIZE, "int32"),
    }


@pytest.mark.parametrize("pooling", nightly_except({"mean"}, ["cls", "mean", "max"]))
def test_an_empty_batch_has_no_vectors(bert, batch, pooling):
    model = TextEmbedder(bert, pooling)
    matrix, vector = tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((None,), tf.int32)
    specs = {"tokens": matrix, "segments": matrix, "valid_lens": vector}
    in_graph = tf.function(lambda batch: model(batch), [specs], autograph=False)
    nothing = {name: tf.constant(array[:0]) for name, array in batch.items()}
    for embed in (model, in_graph):
        assert embed(nothing).shape == (0, 16)
    some = {name: tf.constant(array) for name, array in batch.items()}
    np.testing.assert_allclose(in_graph(some), model(some), atol=1e-6)


def test_cls_is_the_first_token_that_is_not_padding(bert, batch):
    model = TextEmbedder(bert, "cls", normalize=False)
    starts = np.array([0, 1, 3, 2, LENGTH - 1, LENGTH])[:SIZE]  # the last row is only padding
    mask = np.arange(LENGTH) >= starts[:, None]
    del batch["valid_lens"]
    encoded = bert.encoder(batch["tokens"], batch["segments"], attention_mask=mask).numpy()
    found = model({**batch, "attention_mask": mask})
    np.testing.assert_array_equal(found, encoded[np.arange(SIZE), starts % LENGTH])


def test_without_valid_lens_all_tokens_count(bert, batch):
    model = TextEmbedder(bert)
    expected = model({**batch, "valid_lens": np.full(SIZE, LENGTH)})
    del batch["valid_lens"]
    np.testing.assert_array_equal(model(batch), expected)
    np.testing.assert_array_equal(model(batch["tokens"], batch["segments"]), expected)


@pytest.mark.slow
def test_a_loss_of_pairs_trains_on_the_pairs_in_their_order(bert, batch):
    model = TextEmbedder(BERTModel.from_bert_config(bert.bert_config))

    def trained(loss, y, **options):
        model.encoder.set_weights(bert.encoder.get_weights())
        model.compile("sgd", loss, run_eagerly=True)
        model.fit(batch, np.array(y), verbose=0, **options)
        return model(batch)

    cosines = [0.1, 0.1, 1, 1, 0.5, 0.5]
    in_order = trained(CosineLoss(), cosines, batch_size=2, shuffle=False)
    np.testing.assert_array_equal(trained(CosineLoss(), cosines, batch_size=2), in_order)
    for loss, y in ((RankingLoss(), [0, 0, 1, 1, 2, 2]), (CosineLoss(), cosines)):
        with pytest.raises(ValueError, match="`shuffle` must be False for .*Loss.*Omit it"):
            trained(loss, y, shuffle=True)
        with pytest.raises(ValueError, match="`batch_size` must not split a pair.*batch_size=3"):
            trained(loss, y, batch_size=3)
    trained(RankingLoss(), [0, 0, -1, 1, 1, -1], batch_size=3)  # triplets


@pytest.mark.parametrize(
    ("loss", "y", "received"),
    [
        (RankingLoss, [0, 1, 0, 1], "the labels 0 and 1 for one pair"),
        (RankingLoss, [0, -1, 0, 1], "3 texts in pairs"),
        (CosineLoss, [0.5, 0.5, 0.1, 0.2], "the labels 0.1 and 0.2 for one pair"),
    ],
)
def test_the_texts_of_a_pair_must_follow_each_other(bert, batch, loss, y, received):
    model = TextEmbedder(bert)
    model.compile("sgd", loss(), run_eagerly=True)
    some = {name: array[: len(y)] for name, array in batch.items()}
    with pytest.raises(ValueError, match=f"must follow each other .*Loss.*: {received}"):
        model.fit(some, y)


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (None, [1, 1, 0.5, 0.5], "whole numbers.*Received: 0.5 at index 2. For scores, .*Cosine"),
        (CosineLoss(), [1, 1, 4.5, 4.5], "numbers from -1 to 1 .*Received: 4.5 at index 2"),
        (CosineLoss(), ["0.9", "0.9"], "numbers from -1 to 1 .*Received: '0.9' at index 0"),
    ],
)
def test_labels_are_groups_or_cosines_as_the_loss_requires(bert, batch, loss, y, message):
    model = TextEmbedder(bert)
    model.compile("sgd", loss, run_eagerly=True)
    with pytest.raises(ValueError, match=f"`labels` must be {message}"):
        model.evaluate({name: array[: len(y)] for name, array in batch.items()}, y)


def test_groups_of_pairs_may_be_a_column_of_names(bert, batch):
    pandas = pytest.importorskip("pandas")
    model = TextEmbedder(bert)
    model.compile("sgd", RankingLoss(), run_eagerly=True)
    names = pandas.Series(["b", "b", "a", "a", "c", "c"])
    assert model._data(batch, names)["y"].tolist() == [1, 1, 0, 0, 2, 2]
