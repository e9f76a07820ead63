import math

import keras
import numpy as np
import pytest

from keras_bert_d2l import (
    BERTAdamW,
    BERTConfig,
    BERTModel,
    RangeTest,
    SequenceClassifier,
    WarmupLinearDecay,
    find_learning_rate,
)

CONFIG = BERTConfig(20, 8, 12, 2, num_blks=0, dropout=0.1, embedding_dropout=0.1, max_len=8)
RATES = tuple(10.0**n for n in range(-12, 3))


def make_model(optimizer):
    keras.utils.set_random_seed(0)
    model = SequenceClassifier(BERTModel.from_bert_config(CONFIG), ["low", "high"])
    model.compile(optimizer, run_eagerly=True)
    return model


def make_batches(number=3):
    """Return batches of rows that are labeled 1 if the second token is above 10."""
    tokens = np.random.default_rng(0).integers(0, 20, (number, 4, 6), "int32")
    return [({"tokens": x, "segments": 0 * x}, (x[:, 1] > 10).astype(int)) for x in tokens]


def test_the_proposal_is_a_fifth_of_the_rate_of_the_lowest_smoothed_loss():
    found = RangeTest(RATES, tuple(9 - math.exp(-((n - 7) ** 2) / 20) for n in range(15)))
    assert found.best == 7
    assert found.proposal == pytest.approx(2e-6)
    assert "learning rate: 2e-06" in repr(found)


def test_one_lucky_batch_does_not_decide():
    losses = [8.0 - (4 <= n < 9) for n in range(15)]
    losses[11] = 6.0
    assert RangeTest(RATES, tuple(losses)).best in range(4, 9)


def test_of_losses_close_to_0_the_first_decides():
    losses = (*np.full(10, 0.7), *np.linspace(0.003, 0.001, 20), *np.full(10, 0.9))
    found = RangeTest(tuple(np.geomspace(1e-6, 1, 40)), losses)
    assert found.best == 14  # the first one whose neighbors are all close to 0


def test_without_a_fall_there_is_no_proposal():
    found = RangeTest(RATES, (8.0,) * 15)
    assert found.proposal is None
    assert repr(found).startswith(
        "No learning rate up to 1e+02 lowered the loss. Keep the default "
    )


@pytest.mark.slow
def test_losses_equal_those_of_a_training_with_these_rates():
    batches = make_batches()
    found = find_learning_rate(
        make_model(keras.optimizers.SGD()), batches, lowest=1e-3, highest=1e-1, steps=10
    )
    assert found.rates == pytest.approx(np.geomspace(1e-3, 1e-1, 10))
    model = make_model(keras.optimizers.SGD())
    for number, rate in enumerate(found.rates):
        model.optimizer.learning_rate = rate
        loss = model.train_on_batch(*batches[number % 3], return_dict=True)["loss"]
        assert loss == pytest.approx(found.losses[number], rel=1e-5)


@pytest.mark.long
def test_a_training_after_the_test_equals_one_without_it():
    tokens, positions = np.ones((2, 6), "int32"), np.array([[1, 2]] * 2)
    features = {"tokens": tokens, "segments": 0 * tokens, "pred_positions": positions}
    batch = features, {"mlm": np.array([[7, 8]] * 2), "nsp": np.array([0, 1])}
    weights = []
    for is_tested in (False, True):
        keras.utils.set_random_seed(0)
        model = BERTModel.from_bert_config(CONFIG)
        model.missing_heads = frozenset({"mlm"})
        model.compile(BERTAdamW(WarmupLinearDecay(1e-2, 1, 10)), run_eagerly=True)
        if is_tested:
            find_learning_rate(model, [batch], steps=10)
            assert model.missing_heads == {"mlm"}
        model.train_on_batch(*batch)
        weights.append([weight.numpy() for weight in model.weights])
    for without, with_test in zip(*weights, strict=True):
        np.testing.assert_array_equal(without, with_test)


@pytest.mark.slow
def test_the_test_ends_when_the_loss_diverges():
    found = find_learning_rate(
        make_model(keras.optimizers.SGD()), make_batches(), lowest=1.0, highest=1e30, steps=30
    )
    assert len(found.losses) < 30
    assert all(map(math.isfinite, found.losses))


def test_wrong_arguments_are_reported():
    given = {"model": make_model(BERTAdamW()), "data": make_batches()}
    for arguments, message in [
        ({"lowest": 1.0, "highest": 0.1}, "`lowest` must be below `highest`"),
        ({"steps": 5}, "`steps` must be an integer of at least 10"),
        ({"data": []}, "`data` must contain at least one batch"),
        ({"model": "mini"}, "`model` must be a `BatchModel`"),
        ({"model": BERTModel.from_bert_config(CONFIG)}, "`model` must be compiled"),
    ]:
        with pytest.raises(ValueError, match=message):
            find_learning_rate(**{**given, **arguments})


def test_a_loss_that_is_never_finite_is_reported():
    model = make_model(BERTAdamW())
    model.head.kernel.assign(model.head.kernel * np.nan)
    with pytest.raises(FloatingPointError, match="first batch is not finite"):
        find_learning_rate(model, make_batches())
