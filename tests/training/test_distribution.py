import keras
import pytest

from keras_bert_d2l.training.distribution import check_batch_size, make_strategy, scope_of


def test_the_mirrored_strategy_uses_all_devices():
    assert make_strategy("mirrored").num_replicas_in_sync == 2  # set in tests/conftest.py


def test_without_a_strategy_the_scope_is_empty():
    with scope_of(make_strategy(None)):
        pass


def test_the_batch_size_must_be_a_multiple_of_the_number_of_devices():
    strategy = make_strategy("mirrored")
    check_batch_size(4, strategy)
    check_batch_size(5, None)
    with pytest.raises(ValueError, match=r"batch_size=5 for 2 devices"):
        check_batch_size(5, strategy)


@pytest.mark.slow
def test_a_missing_tpu_is_reported_in_one_line():
    with pytest.raises(
        RuntimeError, match=r"^Cannot connect to the TPU 'local': .*TPU VM"
    ) as error:
        make_strategy("tpu")
    assert "\n" not in str(error.value)


def test_strategies_reject_other_backends(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="Received: the backend 'jax'"):
        make_strategy("mirrored")
